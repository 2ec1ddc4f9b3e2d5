// SPDX-License-Identifier: Apache-2.0
#include <nlohmann/json.hpp>

#include "epilogue/trace/report.h"
#include "epilogue/trace/table.h"
#include "support/test.h"

namespace epilogue::trace::table_json_test {

using nlohmann::json;

KeyAverages averages() {
  KeyAverages a;
  a.device_label = "KERNEL";
  a.rows.resize(3);
  a.rows[0] = {.key = "aten::mm",
               .count = 2,
               .cpu_time_total_ns = 4002,
               .self_cpu_time_total_ns = 1001,
               .device_time_total_ns = 3001,
               .self_device_time_total_ns = 3001,
               .flops = 240};
  a.rows[1] = {.key = "gemm \"x\" \xff",
               .device = RowDevice::device,
               .count = 2,
               .device_time_total_ns = 3001,
               .self_device_time_total_ns = 3001};
  a.rows[2] = {.key = "ProfilerStep*",
               .device = RowDevice::device,
               .is_user_annotation = true,
               .count = 1,
               .device_time_total_ns = 9000,
               .self_device_time_total_ns = 9000};
  return a;
}

TEST(TableJson, KeepsItsContract) {
  const json table = json::parse(table_json(averages()));
  EXPECT_EQ(table["schema_version"], 1);
  EXPECT_EQ(table["self_cpu_total_us"], 1.001);
  EXPECT_EQ(table["self_device_total_us"], 3.001);
  ASSERT_EQ(table["rows"].size(), 3U);
  const json& mm = table["rows"][0];
  EXPECT_EQ(mm["name"], "aten::mm");
  EXPECT_EQ(mm["count"], 2);
  EXPECT_EQ(mm["self_cpu_us"], 1.001);
  EXPECT_EQ(mm["cpu_total_us"], 4.002);
  EXPECT_EQ(mm["cpu_avg_us"], 2.001);
  EXPECT_EQ(mm["self_device_us"], 3.001);
  EXPECT_EQ(mm["device_total_us"], 3.001);
  EXPECT_EQ(mm["flops"], 240);
  EXPECT_EQ(mm["device_type"], "CPU");
  EXPECT_EQ(mm["is_user_annotation"], false);
  EXPECT_FALSE(mm.contains("cpu_memory_bytes"));
  EXPECT_FALSE(mm.contains("input_shapes"));
  EXPECT_EQ(table["rows"][1]["name"], "gemm \"x\" \xEF\xBF\xBD");
  EXPECT_EQ(table["rows"][1]["device_type"], "KERNEL");
  EXPECT_EQ(table["rows"][2]["is_user_annotation"], true);
}

TEST(TableJson, OptionalKeys) {
  KeyAverages a = averages();
  a.profile_memory = true;
  a.rows[0].self_cpu_memory_bytes = -64;
  a.rows[0].input_shapes = "[[3, 4]]";
  a.rows[0].overload_name = "out";
  a.rows[0].stack = {"f", "g"};
  const json row = json::parse(table_json(a))["rows"][0];
  EXPECT_EQ(row["self_cpu_memory_bytes"], -64);
  EXPECT_EQ(row["cpu_memory_bytes"], 0);
  EXPECT_EQ(row["device_memory_bytes"], 0);
  EXPECT_EQ(row["self_device_memory_bytes"], 0);
  EXPECT_EQ(row["input_shapes"], "[[3, 4]]");
  EXPECT_EQ(row["overload_name"], "out");
  EXPECT_EQ(row["stack"], (json{"f", "g"}));
}

TEST(TableJson, SortsAndLimits) {
  const json table =
      json::parse(table_json(averages(), {.sort_by = "self_kernel_time_total", .row_limit = 1}));
  ASSERT_EQ(table["rows"].size(), 1U);
  EXPECT_EQ(table["rows"][0]["name"], "ProfilerStep*");
  EXPECT_EQ(table["self_cpu_total_us"], 1.001);  // of all rows
  KeyAverages many;
  many.rows.resize(150);
  EXPECT_EQ(json::parse(table_json(many))["rows"].size(), 150U);
}

TEST(TableJson, Empty) {
  const json table = json::parse(table_json({}));
  EXPECT_EQ(table["rows"], json::array());
  EXPECT_EQ(table["self_cpu_total_us"], 0.0);
}

}  // namespace epilogue::trace::table_json_test
