// SPDX-License-Identifier: Apache-2.0
#include "explain/render/table_formats.h"
#include "support/test.h"

namespace epilogue::trace::table_formats_test {

TEST(TableFormats, Time) {
  EXPECT_EQ(table_time(0, TimeUnit::automatic), "0.000us");
  EXPECT_EQ(table_time(999.9994, TimeUnit::automatic), "999.999us");
  EXPECT_EQ(table_time(999.9996, TimeUnit::automatic), "1000.000us");  // the unit is chosen first
  EXPECT_EQ(table_time(1000, TimeUnit::automatic), "1.000ms");
  EXPECT_EQ(table_time(999999, TimeUnit::automatic), "999.999ms");
  EXPECT_EQ(table_time(1e6, TimeUnit::automatic), "1.000s");
  EXPECT_EQ(table_time(7.3e9, TimeUnit::automatic), "7300.000s");
  EXPECT_EQ(table_time(-5000, TimeUnit::automatic), "-5000.000us");
  EXPECT_EQ(table_time(1500, TimeUnit::seconds), "0.002s");
  EXPECT_EQ(table_time(1500, TimeUnit::milliseconds), "1.500ms");
  EXPECT_EQ(table_time(2e6, TimeUnit::microseconds), "2000000.000us");
}

TEST(TableFormats, Share) {
  EXPECT_EQ(table_share(1, 3), "33.33%");
  EXPECT_EQ(table_share(3, 2), "150.00%");
  EXPECT_EQ(table_share(0, 5), "0.00%");
  EXPECT_EQ(table_share(0, 0), "NaN");
}

TEST(TableFormats, Memory) {
  EXPECT_EQ(table_memory(0), "0 b");
  EXPECT_EQ(table_memory(1023), "1023 b");
  EXPECT_EQ(table_memory(-1023), "-1023 b");
  EXPECT_EQ(table_memory(1024), "1.00 Kb");
  EXPECT_EQ(table_memory(-1536), "-1.50 Kb");
  EXPECT_EQ(table_memory((1 << 20) - 1), "1024.00 Kb");
  EXPECT_EQ(table_memory(1 << 20), "1.00 Mb");
  EXPECT_EQ(table_memory(50331648), "48.00 Mb");
  EXPECT_EQ(table_memory(int64_t{1} << 30), "1.00 Gb");
  EXPECT_EQ(table_memory(INT64_MIN), "-8589934592.00 Gb");
}

TEST(TableFormats, FlopsUnitFollowsTheSmallest) {
  EXPECT_EQ(flops_scale(1).unit, "FLOPs");
  EXPECT_EQ(flops_scale(999).unit, "FLOPs");
  EXPECT_EQ(flops_scale(1000).unit, "KFLOPs");
  EXPECT_EQ(flops_scale(38654705664).unit, "GFLOPs");
  EXPECT_EQ(flops_scale(UINT64_MAX).unit, "PFLOPs");
  EXPECT_EQ(table_flops(2097152, flops_scale(2097152)), "   2.097");
  EXPECT_EQ(table_flops(38654705664, flops_scale(1000)), "38654705.664");
  EXPECT_EQ(table_flops(0, flops_scale(1000)), "--");
}

}  // namespace epilogue::trace::table_formats_test
