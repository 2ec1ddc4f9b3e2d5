// SPDX-License-Identifier: Apache-2.0
#include "epilogue/trace/explain.h"

#include "explain/gpu_trace.h"
#include "support/test.h"

namespace epilogue::trace::health_test {

using namespace testing;

std::optional<HealthItem> item_of(const GpuTrace& b, std::string_view id) {
  for (HealthItem& item : health(b.trace, link(b.trace)))
    if (item.id == id) return std::move(item);
  return std::nullopt;
}
int64_t count_of(const GpuTrace& b, std::string_view id) {
  const std::optional<HealthItem> item = item_of(b, id);
  return item ? item->count : 0;
}

TEST(Health, AWholeTraceHasNothingToReport) {
  GpuTrace b;
  b.annotation("ProfilerStep#1", 0, 100);
  b.op("aten::mm", 10, 20);
  b.inputs({tensor({2, 2})});
  b.call("cudaLaunchKernel", 12, 14, 1);
  b.gpu_kernel("k", 15, 25, 1);
  const std::vector<HealthItem> items = health(b.trace, link(b.trace));
  ASSERT_EQ(items.size(), 2u) << "the profiler's cost and the era are always said";
  EXPECT_EQ(items[0].id, "profiler-cost");
  EXPECT_EQ(items[1].id, "era");
}

TEST(Health, LostKernelsComeFirst) {
  GpuTrace b;
  b.op("aten::mm", 10, 20);
  b.call("cudaLaunchKernel", 12, 14, 1);
  const std::vector<HealthItem> items = health(b.trace, link(b.trace));
  EXPECT_EQ(items[0].id, "kernel-data-lost");
  EXPECT_EQ(items[0].severity, Severity::error);
  EXPECT_EQ(items[0].count, 1);
  EXPECT_EQ(items[0].detail,
            "1 launch but no kernel: kernel data was lost. Nothing can be said of the device.");
  EXPECT_EQ(count_of(b, "launches-without-kernel"), 1);
  b.gpu_kernel("other", 30, 40);
  EXPECT_EQ(count_of(b, "kernel-data-lost"), 0) << "some of it is there";
  EXPECT_EQ(count_of(b, "launches-without-kernel"), 1);
  EXPECT_EQ(count_of(b, "kernels-without-launch"), 1);
}

TEST(Health, KernelsWithoutAnyLaunchCallAreAnotherMatter) {
  GpuTrace b;
  b.gpu_kernel("k", 30, 40);
  EXPECT_EQ(count_of(b, "no-launch-calls"), 1);
  EXPECT_EQ(count_of(b, "kernels-without-launch"), 0);
}

TEST(Health, OddTimesAreCounted) {
  GpuTrace b;
  b.op("aten::mm", 1000, 2000);
  b.trace.events.back().dur_ns = -5;
  b.call("cudaLaunchKernel", 1100, 1200, 1);
  b.gpu_kernel("early", 1050, 1150, 1);  // before its launch
  b.gpu_kernel("overlap", 1140, 1300);   // on the same stream
  b.gpu_kernel("next", 1300, 1400);      // back to back: no overlap
  b.gpu_kernel("elsewhere", 1140, 1300, 0, 8);
  b.gpu_kernel("lost", 0, 0, 0, 9);
  EXPECT_EQ(count_of(b, "negative-durations"), 1);
  EXPECT_EQ(count_of(b, "kernels-before-launch"), 1);
  EXPECT_EQ(count_of(b, "overlapping-kernels"), 1);
  EXPECT_EQ(count_of(b, "kernels-without-time"), 1);
  EXPECT_EQ(count_of(b, "window-end-far"), 0);
  b.trace.end_ns = 2 * kFarWindowEndNs;
  EXPECT_EQ(count_of(b, "window-end-far"), 1);
}

TEST(Health, MissingStepsAreCounted) {
  GpuTrace b;
  b.op("aten::mm", 0, 5);
  EXPECT_EQ(count_of(b, "no-steps"), 1);
  b.annotation("ProfilerStep#3", 0, 10);
  b.annotation("ProfilerStep#4", 10, 20);
  EXPECT_EQ(count_of(b, "steps-missing"), 0);
  b.annotation("ProfilerStep#8", 20, 30);
  EXPECT_EQ(count_of(b, "steps-missing"), 3);
  EXPECT_EQ(count_of(b, "no-steps"), 0);
}

TEST(Health, WhatTheReaderMetIsSaid) {
  GpuTrace b;
  b.op("aten::mm", 0, 5);
  b.trace.import.is_truncated = true;
  b.trace.import.skipped_events = 3;
  b.trace.import.skips = {{"bad-string", "a name is not closed", 3, 17}};
  b.trace.import.repairs = {{"bare-inf", "inf is no JSON", 2, 40},
                            {"bad-checksum", "the checksum is wrong", 1, 90, true}};
  b.trace.import.python_functions_left_out = 10;
  EXPECT_EQ(item_of(b, "truncated")->severity, Severity::error);
  EXPECT_EQ(count_of(b, "skipped-events"), 3);
  EXPECT_HAS(item_of(b, "skipped-events")->detail, "a name is not closed (3)");
  EXPECT_EQ(count_of(b, "repaired-events"), 2);
  EXPECT_EQ(item_of(b, "repaired-events")->detail, "Read all the same: inf is no JSON (2).");
  EXPECT_EQ(item_of(b, "bad-checksum")->severity, Severity::warning);
  EXPECT_EQ(item_of(b, "bad-checksum")->detail, "Read with a doubt: the checksum is wrong (1).");
  EXPECT_EQ(count_of(b, "stacks-recorded"), 10);
  EXPECT_TRUE(item_of(b, "stacks-recorded")->detail.starts_with("Python frames were recorded"));
  b.trace.metadata.emplace_back("epilogue_recorder", "{}");  // epilogue's own: no Python there
  EXPECT_TRUE(item_of(b, "stacks-recorded")
                  ->detail.starts_with("Call stacks and module ranges were recorded"));
}

TEST(Health, WrongExternalIdsAreSaid) {
  GpuTrace b;
  b.op("aten::result_type", 0, 5);
  b.op("aten::mm", 10, 20);
  b.call("cudaLaunchKernel", 12, 14, 1);
  b.gpu_kernel("k", 15, 25, 1).external_id = 1;
  EXPECT_EQ(count_of(b, "external-id-wrong"), 1);
}

TEST(Health, TheEraFollowsFromTheForm) {
  GpuTrace b;
  for (int64_t i = 0; i < 20; ++i) b.op("aten::mm", i * 1000, (i + 1) * 1000);
  EXPECT_HAS(item_of(b, "era")->detail, "before 2024-03");
  b.trace.import.is_bare_array = true;
  EXPECT_HAS(item_of(b, "era")->detail, "2021");
  b.trace.base_time_ns = 1;
  EXPECT_HAS(item_of(b, "era")->detail, "2024-05 or later");
  b.gpu_kernel("k", 0, 10);
  b.trace.kernels.back().graph_id = 0;
  EXPECT_HAS(item_of(b, "era")->detail, "2026-02");
  b.trace.metadata.emplace_back("epilogue_recorder", "{}");
  EXPECT_EQ(item_of(b, "era")->detail, "Written by epilogue.");
}

TEST(Health, OfAnEmptyTraceIsItsEra) {
  const std::vector<HealthItem> items = health(Trace(), Links());
  ASSERT_EQ(items.size(), 1u);
  EXPECT_EQ(items[0].id, "era");
}

}  // namespace epilogue::trace::health_test
