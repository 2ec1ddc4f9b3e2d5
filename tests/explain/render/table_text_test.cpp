// SPDX-License-Identifier: Apache-2.0
// Whole tables, to the character. A '|' marks the end of each line, where torch.profiler's spaces
// are.
#include "epilogue/base/error.h"
#include "epilogue/trace/report.h"
#include "epilogue/trace/table.h"
#include "support/test.h"
#include "trace/trace_builder.h"

namespace epilogue::trace::table_text_test {

using namespace testing;

// Each line with its end made visible.
std::string lines(const std::string& table) {
  std::istringstream in(table);
  std::string out = "\n";
  for (std::string line; std::getline(in, line);) out += line + "|\n";
  return out;
}

// Two steps of nn.Linear on the CPU device, 10 us and 20 us; the kernel takes 4 us and 8 us.
TraceBuilder linear_steps() {
  TraceBuilder b;
  b.trace.device_label = "KERNEL";
  for (int64_t step = 1; step <= 2; ++step) {
    const int64_t at = 100'000 * step;
    const int64_t us = 1'000 * step;
    b.annotation("ProfilerStep#" + std::to_string(step), at, at + 10 * us);
    b.op("aten::linear", at + us, at + 9 * us);
    b.op("aten::t", at + us, at + 2 * us);
    b.inputs({tensor({64, 32}, "c10::BFloat16")});
    b.op("aten::addmm", at + 3 * us, at + 8 * us);
    b.inputs({tensor({64}), tensor({1024, 32}), tensor({32, 64}), scalar("1"), scalar("1")});
    b.kernel("epi_avx512_gemm_bf16_6x64_tn_bias", at + 4 * us, at + 8 * us, b.last_id());
    b.event(Category::gpu_user_annotation, "ProfilerStep#" + std::to_string(step), at + 4 * us,
            at + 8 * us, 0);
  }
  return b;
}

TEST(TableText, CpuDevice) {
  EXPECT_EQ(lines(format_table(key_averages(linear_steps().trace),
                               {.sort_by = "self_kernel_time_total"})),
            R"(
-------------------------------------  ------------  ------------  ------------  ------------  ------------  ------------  ------------  ------------  ------------  ------------  |
                                 Name    Self CPU %      Self CPU   CPU total %     CPU total  CPU time avg   Self KERNEL  Self KERNEL %  KERNEL total  KERNEL time avg    # of Calls  |
-------------------------------------  ------------  ------------  ------------  ------------  ------------  ------------  ------------  ------------  ------------  ------------  |
                          aten::addmm        10.00%       3.000us        50.00%      15.000us       7.500us      12.000us       100.00%      12.000us       6.000us             2  |
                        ProfilerStep*         0.00%       0.000us         0.00%       0.000us       0.000us      12.000us       100.00%      12.000us       6.000us             2  |
    epi_avx512_gemm_bf16_6x64_tn_bias         0.00%       0.000us         0.00%       0.000us       0.000us      12.000us       100.00%      12.000us       6.000us             2  |
                        ProfilerStep*        20.00%       6.000us       100.00%      30.000us      15.000us       0.000us         0.00%      12.000us       6.000us             2  |
                         aten::linear        20.00%       6.000us        80.00%      24.000us      12.000us       0.000us         0.00%      12.000us       6.000us             2  |
                              aten::t        10.00%       3.000us        10.00%       3.000us       1.500us       0.000us         0.00%       0.000us       0.000us             2  |
                      epiLaunchKernel        40.00%      12.000us        40.00%      12.000us       6.000us       0.000us         0.00%       0.000us       0.000us             2  |
-------------------------------------  ------------  ------------  ------------  ------------  ------------  ------------  ------------  ------------  ------------  ------------  |
Self CPU time total: 30.000us|
Self KERNEL time total: 12.000us|
)");
}

TEST(TableText, CudaMemoryShapesAndFlops) {
  TraceBuilder b = linear_steps();
  b.trace.device_label = "CUDA";
  b.trace.recorded = {.record_shapes = true, .profile_memory = true, .with_flops = true};
  b.memory(103'500, 131072);                     // in the first addmm
  b.memory(209'000, 3 << 20, DeviceType::cuda);  // in the second
  b.memory(211'000, -1000);
  b.memory(500'000, -130072);  // in no op
  EXPECT_EQ(lines(format_table(key_averages(b.trace, {.group_by_input_shape = true}))), R"(
-------------------------------------  ------------  ------------  ------------  ------------  ------------  ------------  ------------  ------------  ------------  ------------  ------------  ------------  ------------  ------------  ----------------------------------------  ------------  |
                                 Name    Self CPU %      Self CPU   CPU total %     CPU total  CPU time avg     Self CUDA   Self CUDA %    CUDA total  CUDA time avg       CPU Mem  Self CPU Mem      CUDA Mem  Self CUDA Mem    # of Calls                              Input Shapes  Total MFLOPs  |
-------------------------------------  ------------  ------------  ------------  ------------  ------------  ------------  ------------  ------------  ------------  ------------  ------------  ------------  ------------  ------------  ----------------------------------------  ------------  |
                        ProfilerStep*        20.00%       6.000us       100.00%      30.000us      15.000us       0.000us         0.00%      12.000us       6.000us     127.02 Kb           0 b       3.00 Mb           0 b             2                                        []            --  |
                         aten::linear        20.00%       6.000us        80.00%      24.000us      12.000us       0.000us         0.00%      12.000us       6.000us     127.02 Kb           0 b       3.00 Mb           0 b             2                                        []            --  |
                              aten::t        10.00%       3.000us        10.00%       3.000us       1.500us       0.000us         0.00%       0.000us       0.000us           0 b           0 b           0 b           0 b             2                                [[64, 32]]            --  |
                          aten::addmm        10.00%       3.000us        50.00%      15.000us       7.500us      12.000us       100.00%      12.000us       6.000us     127.02 Kb     128.00 Kb       3.00 Mb           0 b             2      [[64], [1024, 32], [32, 64], [], []]         8.389  |
                      epiLaunchKernel        40.00%      12.000us        40.00%      12.000us       6.000us       0.000us         0.00%       0.000us       0.000us       -1000 b       -1000 b       3.00 Mb       3.00 Mb             2                                        []            --  |
                        ProfilerStep*         0.00%       0.000us         0.00%       0.000us       0.000us      12.000us       100.00%      12.000us       6.000us           0 b           0 b           0 b           0 b             2                                        []            --  |
    epi_avx512_gemm_bf16_6x64_tn_bias         0.00%       0.000us         0.00%       0.000us       0.000us      12.000us       100.00%      12.000us       6.000us           0 b           0 b           0 b           0 b             2                                        []            --  |
                             [memory]         0.00%       0.000us         0.00%       0.000us       0.000us       0.000us         0.00%       0.000us       0.000us    -127.02 Kb    -127.02 Kb           0 b           0 b             1                                        []            --  |
-------------------------------------  ------------  ------------  ------------  ------------  ------------  ------------  ------------  ------------  ------------  ------------  ------------  ------------  ------------  ------------  ----------------------------------------  ------------  |
Self CPU time total: 30.000us|
Self CUDA time total: 12.000us|
)");
}

TEST(TableText, LongNamesAreCut) {
  TraceBuilder b;
  b.op(std::string(51, 'a'), 0, 1'000'000'000);
  b.op(std::string(52, 'b'), 2'000'000'000, 2'999'000'000);
  b.op(std::string(60, 'c'), 4'000'000'000, 4'001'000'000);
  EXPECT_EQ(lines(format_table(key_averages(b.trace))), R"(
-------------------------------------------------------  ------------  ------------  ------------  ------------  ------------  ------------  |
                                                   Name    Self CPU %      Self CPU   CPU total %     CPU total  CPU time avg    # of Calls  |
-------------------------------------------------------  ------------  ------------  ------------  ------------  ------------  ------------  |
    aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa        50.00%        1.000s        50.00%        1.000s        1.000s             1  |
bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb...        49.95%     999.000ms        49.95%     999.000ms     999.000ms             1  |
cccccccccccccccccccccccccccccccccccccccccccccccccccc...         0.05%       1.000ms         0.05%       1.000ms       1.000ms             1  |
-------------------------------------------------------  ------------  ------------  ------------  ------------  ------------  ------------  |
Self CPU time total: 2.000s|
)");
}

TEST(TableText, AsyncRowsAndShareOfNothing) {
  TraceBuilder b;
  b.op("async", 0, 2'000);
  b.last_args().is_async = true;
  EXPECT_EQ(lines(format_table(key_averages(b.trace))), R"(
---------  ------------  ------------  ------------  ------------  ------------  ------------  |
     Name    Self CPU %      Self CPU   CPU total %     CPU total  CPU time avg    # of Calls  |
---------  ------------  ------------  ------------  ------------  ------------  ------------  |
    async           NaN       0.000us             0       2.000us       2.000us             1  |
---------  ------------  ------------  ------------  ------------  ------------  ------------  |
Self CPU time total: 0.000us|
)");
}

// With both columns PyTorch prints FLOPs below Source Location and the other way round.
TEST(TableText, StacksWithFlopsSwapTheLastColumns) {
  TraceBuilder b;
  b.trace.recorded = {.with_stack = true, .with_flops = true};
  b.op("aten::mul", 0, 1'000);
  b.inputs({tensor({50}), tensor({50})});
  b.last_args().stack = b.trace.strings.intern("mlp.py(12): forward;main.py(3): <module>;ignored");
  b.op("aten::t", 2'000, 5'000);
  EXPECT_EQ(lines(format_table(key_averages(b.trace, {.group_by_stack_n = 2}))), R"(
-------------  ------------  ------------  ------------  ------------  ------------  ------------  ------------------------  ------------  |
         Name    Self CPU %      Self CPU   CPU total %     CPU total  CPU time avg    # of Calls  Source Location            Total FLOPs  |
-------------  ------------  ------------  ------------  ------------  ------------  ------------  ------------------------  ------------  |
    aten::mul        25.00%       1.000us        25.00%       1.000us       1.000us             1    50.000                  mlp.py(12): forward  |
                                                                                                                             main.py(3): <module>  |
                                                                                                                                           |
      aten::t        75.00%       3.000us        75.00%       3.000us       3.000us             1  --                                      |
                                                                                                                                           |
-------------  ------------  ------------  ------------  ------------  ------------  ------------  ------------------------  ------------  |
Self CPU time total: 4.000us|
)");
}

TEST(TableText, StacksAreCutFromTheLeft) {
  TraceBuilder b;
  b.op("aten::t", 0, 1'000);
  b.last_args().stack = b.trace.strings.intern("a/very/long/path/to/mlp.py(12): forward");
  EXPECT_EQ(lines(format_table(key_averages(b.trace, {.group_by_stack_n = 1}),
                               {.max_src_column_width = 20})),
            R"(
-----------  ------------  ------------  ------------  ------------  ------------  ------------  --------------------  |
       Name    Self CPU %      Self CPU   CPU total %     CPU total  CPU time avg    # of Calls  Source Location       |
-----------  ------------  ------------  ------------  ------------  ------------  ------------  --------------------  |
    aten::t       100.00%       1.000us       100.00%       1.000us       1.000us             1  ...p.py(12): forward  |
                                                                                                                       |
-----------  ------------  ------------  ------------  ------------  ------------  ------------  --------------------  |
Self CPU time total: 1.000us|
)");
}

TEST(TableText, HeaderTopLevelLimitAndUnit) {
  EXPECT_EQ(lines(format_table(key_averages(linear_steps().trace),
                               {.sort_by = "cpu_time_total",
                                .row_limit = 1,
                                .header = "nn.Linear",
                                .top_level_events_only = true,
                                .time_unit = TimeUnit::milliseconds})),
            R"(
=================================================================================================================================================================================|
nn.Linear|
=================================================================================================================================================================================|
This report only display top-level ops statistics|
-------------------------------------  ------------  ------------  ------------  ------------  ------------  ------------  ------------  ------------  ------------  ------------  |
                                 Name    Self CPU %      Self CPU   CPU total %     CPU total  CPU time avg   Self KERNEL  Self KERNEL %  KERNEL total  KERNEL time avg    # of Calls  |
-------------------------------------  ------------  ------------  ------------  ------------  ------------  ------------  ------------  ------------  ------------  ------------  |
                        ProfilerStep*        20.00%       0.006ms       100.00%       0.030ms       0.015ms       0.000ms         0.00%       0.012ms       0.006ms             2  |
-------------------------------------  ------------  ------------  ------------  ------------  ------------  ------------  ------------  ------------  ------------  ------------  |
Self CPU time total: 0.030ms|
Self KERNEL time total: 0.012ms|
)");
}

TEST(TableText, OverloadNamesAndNodeIds) {
  KeyAverages a;
  a.rows = {{.key = "aten::add",
             .overload_name = "Tensor",
             .node_id = 3,
             .count = 1,
             .cpu_time_total_ns = 1000,
             .self_cpu_time_total_ns = 1000}};
  EXPECT_EQ(lines(format_table(a)), R"(
-------------  -------------  ------------  ------------  ------------  ------------  ------------  ------------  ------------  |
         Name  Overload Name    Self CPU %      Self CPU   CPU total %     CPU total  CPU time avg    # of Calls       Node ID  |
-------------  -------------  ------------  ------------  ------------  ------------  ------------  ------------  ------------  |
    aten::add         Tensor       100.00%       1.000us       100.00%       1.000us       1.000us             1             3  |
-------------  -------------  ------------  ------------  ------------  ------------  ------------  ------------  ------------  |
Self CPU time total: 1.000us|
)");
}

TEST(TableText, NothingToShow) {
  EXPECT_EQ(format_table({}), "");
  EXPECT_EQ(format_table({}, {.header = "header"}), "");
}

TEST(TableText, RowLimits) {
  const KeyAverages a = key_averages(linear_steps().trace);
  const auto rows = [&](int limit) {
    const std::string table = format_table(a, {.row_limit = limit});
    return std::count(table.begin(), table.end(), '\n') - 6;  // rules, header, footers
  };
  EXPECT_EQ(rows(0), 0);
  EXPECT_EQ(rows(3), 3);
  EXPECT_EQ(rows(100), 7);
  EXPECT_EQ(rows(-1), 7);
}

TEST(SortKeys, AllWorkAndKeepTies) {
  KeyAverages a;
  a.rows.resize(3);
  a.rows[0].key = "first";
  a.rows[1].key = "second";
  a.rows[2] = {.key = "third",
               .count = 1,
               .cpu_time_total_ns = 1,
               .self_cpu_time_total_ns = 1,
               .device_time_total_ns = 1,
               .self_device_time_total_ns = 1,
               .cpu_memory_bytes = 1,
               .self_cpu_memory_bytes = 1,
               .device_memory_bytes = 1,
               .self_device_memory_bytes = 1,
               .flops = 1};
  ASSERT_GT(sort_keys().size(), 5U);
  for (const std::string_view key : sort_keys()) {
    std::vector<Row> rows = a.rows;
    sort_rows(rows, key);
    EXPECT_EQ(rows[0].key, "third") << key;
    if (key != "key") {
      EXPECT_EQ(rows[1].key, "first") << key;
    }
  }
}

TEST(SortKeys, DeviceNamesMeanTheDevice) {
  for (const char* key : {"cuda_time_total", "xpu_time_total", "privateuse1_time_total",
                          "kernel_time_total", "device_time_total"}) {
    std::vector<Row> rows(2);
    rows[1].device_time_total_ns = 5;
    sort_rows(rows, key);
    EXPECT_EQ(rows[0].device_time_total_ns, 5) << key;
  }
}

TEST(SortKeys, UnknownKeyNamesTheOthers) {
  try {
    (void)format_table(key_averages(linear_steps().trace), {.sort_by = "cuda_tim"});
    FAIL() << "expected an error";
  } catch (const Error& e) {
    EXPECT_STREQ(
        e.what(),
        "[table] expected a sort key of cpu_time device_time cpu_time_total "
        "device_time_total self_cpu_time_total self_device_time_total cpu_memory_usage "
        "device_memory_usage self_cpu_memory_usage self_device_memory_usage count flops key "
        "(cuda, xpu and kernel mean device), got \"cuda_tim\"");
  }
}

TEST(TableText, ALineBreakInANameStaysInItsRow) {
  TraceBuilder b;
  b.op("first\nsecond\tthird", 0, 1'000);
  const std::string table = format_table(key_averages(b.trace), {});
  EXPECT_HAS(table, "    first\\x0asecond\\x09third  ");
  // Rule, headers, rule, one row, rule, total.
  EXPECT_EQ(std::count(table.begin(), table.end(), '\n'), 6) << table;
}

}  // namespace epilogue::trace::table_text_test
