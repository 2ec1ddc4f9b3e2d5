// SPDX-License-Identifier: Apache-2.0
#include "epilogue/trace/report.h"
#include "epilogue/trace/table.h"
#include "support/test.h"

namespace epilogue::trace::table_markdown_test {

TEST(TableMarkdown, IsAGithubTable) {
  KeyAverages a;
  a.with_flops = true;
  a.rows = {
      {.key = "aten::mm",
       .count = 2,
       .cpu_time_total_ns = 3000,
       .self_cpu_time_total_ns = 3000,
       .flops = 2000},
      {.key = "a|b_c*", .count = 1, .cpu_time_total_ns = 1000, .self_cpu_time_total_ns = 1000}};
  EXPECT_EQ(table_markdown(a, {.header = "Linear"}),
            "**Linear**\n\n"
            "| Name | Self CPU % | Self CPU | CPU total % | CPU total | CPU time avg | # of Calls "
            "| Total KFLOPs |\n"
            "|:---|---:|---:|---:|---:|---:|---:|---:|\n"
            "| aten::mm | 75.00% | 3.000us | 75.00% | 3.000us | 1.500us | 2 | 2.000 |\n"
            "| a\\|b\\_c\\* | 25.00% | 1.000us | 25.00% | 1.000us | 1.000us | 1 | -- |\n"
            "\nSelf CPU time total: 4.000us  \n");
  EXPECT_EQ(table_markdown({}), "");
}

}  // namespace epilogue::trace::table_markdown_test
