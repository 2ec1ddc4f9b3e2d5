// SPDX-License-Identifier: Apache-2.0
// Whole tables, to the character. A '|' marks the end of each line, where torch.profiler's spaces are.
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "epilogue/base/error.h"
#include "epilogue/trace/table.h"
#include "trace/trace_builder.h"

namespace epilogue::trace {
namespace {

using testing::scalar;
using testing::tensor;
using testing::TraceBuilder;

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
    b.event(Category::kGpuUserAnnotation, "ProfilerStep#" + std::to_string(step), at + 4 * us,
            at + 8 * us, 0);
  }
  return b;
}

TEST(TableText, CpuDevice) {
  EXPECT_EQ(lines(format_table(key_averages(linear_steps().trace),
                               {.sort_by = "self_kernel_time_total"})),
            R"(@@0@@)");
}

TEST(TableText, CudaMemoryShapesAndFlops) {
  TraceBuilder b = linear_steps();
  b.trace.device_label = "CUDA";
  b.trace.recorded = {.record_shapes = true, .profile_memory = true, .with_flops = true};
  b.memory(103'500, 131072);                     // in the first addmm
  b.memory(209'000, 3 << 20, DeviceType::kCuda);  // in the second
  b.memory(211'000, -1000);
  b.memory(500'000, -130072);  // in no op
  EXPECT_EQ(lines(format_table(key_averages(b.trace, {.group_by_input_shape = true}))), R"(@@1@@)");
}

TEST(TableText, LongNamesAreCut) {
  TraceBuilder b;
  b.op(std::string(51, 'a'), 0, 1'000'000'000);
  b.op(std::string(52, 'b'), 2'000'000'000, 2'999'000'000);
  b.op(std::string(60, 'c'), 4'000'000'000, 4'001'000'000);
  EXPECT_EQ(lines(format_table(key_averages(b.trace))), R"(@@2@@)");
}

TEST(TableText, AsyncRowsAndShareOfNothing) {
  TraceBuilder b;
  b.op("async", 0, 2'000);
  b.last_args().is_async = true;
  EXPECT_EQ(lines(format_table(key_averages(b.trace))), R"(@@3@@)");
}

// With both columns PyTorch prints FLOPs below Source Location and the other way round.
TEST(TableText, StacksWithFlopsSwapTheLastColumns) {
  TraceBuilder b;
  b.trace.recorded = {.with_stack = true, .with_flops = true};
  b.op("aten::mul", 0, 1'000);
  b.inputs({tensor({50}), tensor({50})});
  b.last_args().stack = b.trace.strings.intern("mlp.py(12): forward;main.py(3): <module>;ignored");
  b.op("aten::t", 2'000, 5'000);
  EXPECT_EQ(lines(format_table(key_averages(b.trace, {.group_by_stack_n = 2}))), R"(@@4@@)");
}

TEST(TableText, StacksAreCutFromTheLeft) {
  TraceBuilder b;
  b.op("aten::t", 0, 1'000);
  b.last_args().stack = b.trace.strings.intern("a/very/long/path/to/mlp.py(12): forward");
  EXPECT_EQ(lines(format_table(key_averages(b.trace, {.group_by_stack_n = 1}),
                               {.max_src_column_width = 20})),
            R"(@@5@@)");
}

TEST(TableText, HeaderTopLevelLimitAndUnit) {
  EXPECT_EQ(lines(format_table(key_averages(linear_steps().trace),
                               {.sort_by = "cpu_time_total",
                                .row_limit = 1,
                                .header = "nn.Linear",
                                .top_level_events_only = true,
                                .time_unit = TimeUnit::kMilliseconds})),
            R"(@@6@@)");
}

TEST(TableText, OverloadNamesAndNodeIds) {
  KeyAverages a;
  a.rows = {{.key = "aten::add", .overload_name = "Tensor", .node_id = 3, .count = 1,
             .cpu_time_total_ns = 1000, .self_cpu_time_total_ns = 1000}};
  EXPECT_EQ(lines(format_table(a)), R"(@@7@@)");
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
  a.rows[2] = {.key = "third", .count = 1, .cpu_time_total_ns = 1, .self_cpu_time_total_ns = 1,
               .device_time_total_ns = 1, .self_device_time_total_ns = 1, .cpu_memory_bytes = 1,
               .self_cpu_memory_bytes = 1, .device_memory_bytes = 1, .self_device_memory_bytes = 1,
               .flops = 1};
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
    EXPECT_STREQ(e.what(),
                 "[table] expected a sort key of cpu_time device_time cpu_time_total "
                 "device_time_total self_cpu_time_total self_device_time_total cpu_memory_usage "
                 "device_memory_usage self_cpu_memory_usage self_device_memory_usage count flops key "
                 "(cuda, xpu and kernel mean device), got \"cuda_tim\"");
  }
}

}  // namespace
}  // namespace epilogue::trace
