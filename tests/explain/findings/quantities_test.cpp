// SPDX-License-Identifier: Apache-2.0
#include "epilogue/trace/explain.h"

#include "explain/gpu_trace.h"
#include "support/test.h"

namespace epilogue::trace::quantities_test {

using namespace testing;

std::optional<double> value_of(const std::vector<Quantity>& list, std::string_view name) {
  for (const Quantity& q : list)
    if (q.name == name) return q.value;
  ADD_FAILURE() << "there is no quantity " << name;
  return std::nullopt;
}

GpuTrace two_steps() {
  GpuTrace b;
  b.annotation("ProfilerStep#1", 0, 10'000);
  b.op("aten::mm", 1000, 3000);
  b.call("cudaLaunchKernel", 2000, 2500, 1);
  b.annotation("ProfilerStep#2", 10'000, 20'000);
  b.op("aten::add", 11'000, 12'000);
  b.op("aten::mul", 13'000, 14'000);
  b.call("cudaLaunchKernel", 11'000, 11'500, 2);
  b.call("cudaLaunchKernel", 13'000, 13'500, 9);  // its kernel was lost
  b.gpu_kernel("before_window", 0, 1000);
  b.gpu_kernel("ampere_sgemm_128x64_nn", 4000, 12'000, 1);  // reaches into step 2
  b.gpu_kernel("add", 15'000, 16'000, 2);
  return b;
}

TEST(Quantities, OfTwoSteps) {
  const std::vector<Quantity> list = quantities(two_steps().trace);
  EXPECT_EQ(value_of(list, "steps"), 2);
  EXPECT_EQ(value_of(list, "span_us"), 20);
  EXPECT_EQ(value_of(list, "ops"), 3);
  EXPECT_EQ(value_of(list, "kernels"), 3);
  EXPECT_EQ(value_of(list, "distinct_kernels"), 3);
  EXPECT_EQ(value_of(list, "launches"), 3);
  EXPECT_EQ(value_of(list, "kernels_without_launch"), 1);
  EXPECT_EQ(value_of(list, "launches_without_kernel"), 1);
  EXPECT_EQ(value_of(list, "gpu_busy_us"), 10);
  EXPECT_EQ(value_of(list, "gpu_busy_pct"), 50);
  EXPECT_EQ(value_of(list, "gpu_idle_pct"), 50);
  EXPECT_EQ(value_of(list, "wall_us_per_step"), 10);
  EXPECT_EQ(value_of(list, "ops_per_step"), 1.5);
  EXPECT_EQ(value_of(list, "kernels_per_step"), 1);
  EXPECT_EQ(value_of(list, "gemm_kernels_per_step"), 0.5);
  EXPECT_EQ(value_of(list, "kernel_us_per_step"), 4.5);
  EXPECT_EQ(value_of(list, "host_us_per_step"), 5.5);
  EXPECT_EQ(value_of(list, "queue_delay_us"), 2.5);  // of 1.5 and 3.5
  // Idle: [1, 2) [2.5, 4) [12, 15) [16, 20) us, of which queued [2.5, 4) [12, 15) and [13, 13.5).
  EXPECT_EQ(value_of(list, "idle_launch_pct"), 25);  // [2, 2.5) too, and the queue
  EXPECT_EQ(value_of(list, "idle_host_pct"), 25);
  EXPECT_EQ(value_of(list, "idle_sync_pct"), 0);
}

TEST(Quantities, WhatATraceCannotGiveIsUnknown) {
  GpuTrace b;
  b.op("aten::mm", 0, 10);
  const std::vector<Quantity> list = quantities(b.trace);
  for (const char* name :
       {"gpu_busy_us", "gpu_busy_pct", "gpu_idle_pct", "idle_host_pct", "queue_delay_us",
        "self_device_total_us", "peak_memory_bytes", "wall_us_per_step", "kernels_per_step"})
    EXPECT_FALSE(value_of(list, name)) << name;
  EXPECT_EQ(value_of(quantities(Trace()), "kernels"), 0);
}

TEST(Quantities, CompiledRegionsAndGraphBreaks) {
  GpuTrace b = two_steps();
  EXPECT_EQ(value_of(quantities(b.trace), "compiled_regions_per_step"), 0);
  EXPECT_EQ(value_of(quantities(b.trace), "graph_breaks_per_step"), 0);
  b.annotation("Torch-Compiled Region: 0/0", 100, 900);
  b.annotation("Torch-Compiled Region: 1/0", 200, 800);
  b.annotation("Torch-Compiled Region: 1/0", 300, 700);
  const std::vector<Quantity> list = quantities(b.trace);
  EXPECT_EQ(value_of(list, "compiled_regions_per_step"), 1.5);
  EXPECT_EQ(value_of(list, "graph_breaks_per_step"), 1);
  EXPECT_FALSE(value_of(quantities(Trace()), "graph_breaks_per_step"));
}

TEST(Quantities, KernelsThatOutlastTheirStepLeaveNoHostTime) {
  GpuTrace b;
  b.annotation("ProfilerStep#1", 0, 10 * kUs);
  b.op("ProfilerStep#1", 0, 10 * kUs);  // as old traces have it
  b.call("cudaLaunchKernel", kUs, 2 * kUs, 1);
  b.gpu_kernel("k", 5 * kUs, 100 * kUs, 1);
  const std::vector<Quantity> list = quantities(b.trace);
  EXPECT_EQ(value_of(list, "kernel_us_per_step"), 95);
  EXPECT_EQ(value_of(list, "host_us_per_step"), 0);
  EXPECT_EQ(value_of(list, "ops"), 0) << "a step is no op";
}

TEST(Quantities, NamesAndOrderDoNotDependOnTheTrace) {
  const std::vector<Quantity> full = quantities(two_steps().trace);
  const std::vector<Quantity> empty = quantities(Trace());
  ASSERT_EQ(full.size(), empty.size());
  for (size_t i = 0; i < full.size(); ++i) {
    EXPECT_EQ(full[i].name, empty[i].name);
    EXPECT_FALSE(full[i].doc.empty());
  }
}

TEST(Quantities, AnUnknownValueNeverHolds) {
  const std::vector<Quantity> list = quantities(Trace());
  for (const char* text : {"gpu_busy_pct >= 0", "gpu_busy_pct < 1", "gpu_busy_pct != 5"}) {
    const Judgement j = judge(parse_expectation(text).value(), list);
    EXPECT_TRUE(j.known);
    EXPECT_FALSE(j.found);
    EXPECT_FALSE(j.holds) << text;
  }
  EXPECT_FALSE(judge(parse_expectation("no_such_thing == 0").value(), list).known);
  EXPECT_TRUE(judge(parse_expectation("kernels == 0").value(), list).holds);
}

TEST(Quantities, BadExpectationsAreRefused) {
  for (const char* text : {"", "kernels", "== 5", "kernels = 5", "kernels == ", "kernels == five",
                           "kernels == 5 5", "kernels == inf"})
    EXPECT_FALSE(parse_expectation(text).ok()) << text;
  EXPECT_EQ(parse_expectation("  kernels<=5 ").value().op, "<=");
}

}  // namespace epilogue::trace::quantities_test
