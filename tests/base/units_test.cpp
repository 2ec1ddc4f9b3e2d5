// SPDX-License-Identifier: Apache-2.0
// Numbers for people: three significant digits and the right unit.
#include "base/units.h"
#include "support/test.h"

namespace epilogue::units_test {

TEST(Units, Durations) {
  EXPECT_EQ(format_duration_ns(0), "0 ns");
  EXPECT_EQ(format_duration_ns(812), "812 ns");
  EXPECT_EQ(format_duration_ns(0.25), "0.25 ns");
  EXPECT_EQ(format_duration_ns(3'420), "3.42 us");
  EXPECT_EQ(format_duration_ns(1'200'000), "1.20 ms");
  EXPECT_EQ(format_duration_ns(2.5e9), "2.50 s");
  EXPECT_EQ(format_duration_ns(7.2e12), "7200 s");
  EXPECT_EQ(format_duration_ns(-3'420), "-3.42 us");
}

TEST(Units, RoundingTakesTheNextUnit) {
  EXPECT_EQ(format_duration_ns(999), "999 ns");
  EXPECT_EQ(format_duration_ns(999'499), "999 us");
  EXPECT_EQ(format_duration_ns(999'600), "1.00 ms");
  EXPECT_EQ(format_duration_ns(9'996), "10.0 us");
  EXPECT_EQ(format_duration_ns(99'960), "100 us");
}

TEST(Units, Bytes) {
  EXPECT_EQ(format_bytes(512), "512 B");
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(4096), "4.00 KiB");
  EXPECT_EQ(format_bytes(50.3 * 1024 * 1024), "50.3 MiB");
  EXPECT_EQ(format_bytes(1024.0 * 1024 - 1), "1.00 MiB");
}

TEST(Units, Flops) {
  EXPECT_EQ(format_flops(0), "0 FLOP");
  EXPECT_EQ(format_flops(8.39e6), "8.39 MFLOP");
  EXPECT_EQ(format_flops(38.7e9), "38.7 GFLOP");
  EXPECT_EQ(format_flops(1e18), "1000 PFLOP");
}

TEST(Units, Counts) {
  EXPECT_EQ(format_count(0), "0");
  EXPECT_EQ(format_count(999), "999");
  EXPECT_EQ(format_count(1'000), "1,000");
  EXPECT_EQ(format_count(1'234'567), "1,234,567");
  EXPECT_EQ(format_count(-100), "-100");
  EXPECT_EQ(counted(1, "copy", "copies"), "1 copy");
  EXPECT_EQ(counted(0, "copy", "copies"), "0 copies");
  EXPECT_EQ(counted(5'770, "copy", "copies"), "5,770 copies");
  EXPECT_EQ(format_count(-1'000), "-1,000");
  EXPECT_EQ(format_count(std::numeric_limits<int64_t>::min()), "-9,223,372,036,854,775,808");
}

}  // namespace epilogue::units_test
