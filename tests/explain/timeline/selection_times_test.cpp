// SPDX-License-Identifier: Apache-2.0
// Times in a part of a trace: the times of its window, as the whole trace knows them.
#include "epilogue/trace/explain.h"
#include "epilogue/trace/file.h"
#include "explain/gpu_trace.h"
#include "support/test.h"
#include "trace/real_traces.h"

namespace epilogue::trace::selection_times_test {

using namespace testing;

// The host runs ahead: step 2's window is filled with work of step 1, of before the recording, and
// ends before most of its own runs. In microseconds:
//   step 1 [0, 100)    launches a, b           recorded late: "early" [0, 30)
//   step 2 [100, 200)  launches c, waits       device: a [60, 130), b [140, 170), c [190, 260)
GpuTrace host_ahead() {
  GpuTrace b;
  b.annotation("ProfilerStep#1", 0, 100 * kUs);
  b.op("aten::mm", 10 * kUs, 50 * kUs);
  b.call("cudaLaunchKernel", 20 * kUs, 25 * kUs, 1);
  b.call("cudaLaunchKernel", 30 * kUs, 35 * kUs, 2);
  b.annotation("ProfilerStep#2", 100 * kUs, 200 * kUs);
  b.op("aten::add", 110 * kUs, 150 * kUs);
  b.call("cudaLaunchKernel", 145 * kUs, 150 * kUs, 3);
  b.call("cudaStreamSynchronize", 160 * kUs, 270 * kUs);
  b.gpu_kernel("early", 0, 30 * kUs, 99);
  b.gpu_kernel("ampere_sgemm_128x128_tn", 60 * kUs, 130 * kUs, 1);
  b.gpu_kernel("ampere_sgemm_128x128_tn", 140 * kUs, 170 * kUs, 2);
  b.gpu_kernel("add", 190 * kUs, 260 * kUs, 3);
  b.trace.end_ns = 270 * kUs;
  return b;
}

TEST(SelectionTimes, AStepIsAsBusyAsItsDeviceWas) {
  const Trace step = select_step(host_ahead().trace, 2).value();
  const Links links = link(step);
  const Timeline time = timeline(step, links);
  EXPECT_EQ(time.start_ns, 100 * kUs);
  EXPECT_EQ(time.span_ns(), 100 * kUs);
  ASSERT_EQ(time.devices.size(), 1u);
  EXPECT_EQ(time.devices[0].busy_ns, 70 * kUs);  // 30 + 30 + 10, nothing of it launched here but 10
  EXPECT_EQ(time.devices[0].kernel_ns, 70 * kUs);
  const DeviceIdle idle = idle_times(step, links).at(0);
  EXPECT_EQ(idle.idle_ns, 30 * kUs);
  // b was launched at 35 and waits in [130, 140), c at 150 and waits in [170, 190).
  EXPECT_EQ(idle.of(IdleCause::queue), 30 * kUs);
}

TEST(SelectionTimes, AStepAloneIsJudgedAsWithinTheWholeTrace) {
  const GpuTrace whole = host_ahead();
  const Verdicts all = judge_time(whole.trace, link(whole.trace));
  for (const int64_t number : {1, 2}) {
    const Trace step = select_step(host_ahead().trace, number).value();
    const Verdicts alone = judge_time(step, link(step));
    const RegionVerdict& within = all.regions.at(static_cast<size_t>(number - 1));
    EXPECT_EQ(alone.whole.bound, within.verdict.bound);
    EXPECT_EQ(alone.whole.part_pct, within.verdict.part_pct);
    ASSERT_EQ(alone.regions.size(), 1u);
    EXPECT_EQ(alone.regions[0].region.device_busy_ns, within.region.device_busy_ns);
    EXPECT_EQ(alone.regions[0].region.kernels, within.region.kernels);
    EXPECT_EQ(alone.regions[0].region.launched_work_ns, within.region.launched_work_ns);
  }
}

TEST(SelectionTimes, PerStepNumbersAreOfWhatTheStepLaunched) {
  std::map<std::string, std::optional<double>> values;
  for (const Quantity& q : quantities(select_step(host_ahead().trace, 2).value()))
    values[q.name] = q.value;
  EXPECT_EQ(values.at("kernels"), 3);
  EXPECT_EQ(values.at("kernels_per_step"), 1);
  EXPECT_EQ(values.at("kernel_us_per_step"), 70);
  EXPECT_EQ(values.at("gpu_busy_us"), 70);
  EXPECT_EQ(values.at("gpu_busy_pct"), 70);
  EXPECT_EQ(values.at("launches_without_kernel"), 0);
  EXPECT_EQ(values.at("kernels_without_launch"), 0);
}

TEST(SelectionTimes, ARangeSpansItsWindowAndNoMore) {
  // The synchronisation starts in it and runs past its end; so does c.
  const Trace part = select_range(host_ahead().trace, 0.155, 0.225).value();
  const Links links = link(part);
  EXPECT_EQ(timeline(part, links).start_ns, 155 * kUs);
  EXPECT_EQ(timeline(part, links).end_ns, 225 * kUs);
  EXPECT_EQ(timeline(part, links).devices.at(0).busy_ns, 50 * kUs);  // [155, 170), [190, 225)
  const DeviceIdle idle = idle_times(part, links).at(0);
  EXPECT_EQ(idle.idle_ns, 20 * kUs);
  EXPECT_EQ(idle.of(IdleCause::queue), 20 * kUs) << "c was launched before the window";
  EXPECT_TRUE(steps(part, links).empty()) << "half a step is none";
}

TEST(SelectionTimes, WhatTheHostDidBeganBeforeTheWindow) {
  GpuTrace b;
  b.op("aten::item", 0, 90 * kUs);
  b.call("cudaStreamSynchronize", 10 * kUs, 80 * kUs);
  b.call("cudaLaunchKernel", 85 * kUs, 90 * kUs, 1);
  b.gpu_kernel("k", 0, 15 * kUs);
  b.gpu_kernel("k", 60 * kUs, 95 * kUs);
  b.gpu_kernel("k", 95 * kUs, 100 * kUs, 1);
  b.trace.end_ns = 100 * kUs;
  const Trace part = select_range(std::move(b.trace), 0.02, 0.07).value();
  const DeviceIdle idle = idle_times(part, link(part)).at(0);
  EXPECT_EQ(idle.of(IdleCause::sync), 40 * kUs);
  EXPECT_EQ(idle.idle_ns, 40 * kUs);
}

TEST(SelectionTimes, AnOpenEndIsTheTraces) {
  const GpuTrace whole = host_ahead();
  const Timeline all = timeline(whole.trace, link(whole.trace));
  const Trace same = select_range(host_ahead().trace, 0, {}).value();
  const Timeline time = timeline(same, link(same));
  EXPECT_EQ(time.start_ns, all.start_ns);
  EXPECT_EQ(time.end_ns, all.end_ns);
  EXPECT_EQ(time.devices.at(0).busy_ns, all.devices.at(0).busy_ns);
  const Trace far = select_range(host_ahead().trace, 0.1, 5.0).value();
  EXPECT_EQ(timeline(far, link(far)).end_ns, all.end_ns);
}

TEST(SelectionTimes, ACutIsNoLossOfData) {
  const Trace part = select_range(host_ahead().trace, 0.12, 0.155).value();
  std::map<std::string, int64_t> counts;
  for (const HealthItem& item : health(part, link(part))) counts[item.id] = item.count;
  EXPECT_FALSE(counts.contains("launches-without-kernel"));
  EXPECT_FALSE(counts.contains("kernels-without-launch"));
  EXPECT_EQ(counts.at("kernels-launched-outside"), 2);
  EXPECT_EQ(link(part).kernels_launched_outside, 2);
}

TEST(SelectionTimes, CollectivesAreHiddenByWhatRunsBesideThemOutside) {
  GpuTrace b;
  b.annotation("ProfilerStep#1", 0, 100);
  b.op("record_param_comms", 10, 20);
  b.call("cudaLaunchKernel", 12, 15, 1);
  b.annotation("ProfilerStep#2", 100, 200);
  b.call("cudaLaunchKernel", 110, 115, 2);
  b.gpu_kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 120, 180, 1, 20);
  b.gpu_kernel("gemm", 130, 150, 2);
  b.trace.end_ns = 200;
  const Trace step = select_step(std::move(b.trace), 1).value();
  const Links links = link(step);
  const RankTrace rank{step, links};
  const RankCollectives found = collectives({&rank, 1}).ranks.at(0);
  EXPECT_EQ(found.communication_ns, 60);
  EXPECT_EQ(found.overlap_ns, 20);
}

// Facts worked out from the events of the files alone: device work united within the step.
TEST(SelectionTimes, OfRealTracesAreTheUnionOfDeviceWorkInTheWindow) {
  struct Case {
    const char* name;
    int64_t step;
    double busy_us;
    double idle_pct;
  };
  for (const Case& c : {Case{"tracelens/h100_qwen_0.5b.json.gz", 6, 43'270, 8.2},
                        Case{"kineto/v100_resnet50_2021_bare_array.json.gz", 5, 132'300, 37.3}}) {
    if (!testing::has_real_trace(c.name))
      GTEST_SKIP() << testing::real_trace_path(c.name) << " is not there";
    const Trace whole = read_trace(testing::real_trace_path(c.name)).value();
    const Verdicts all = judge_time(whole, link(whole));
    const Trace step =
        select_step(read_trace(testing::real_trace_path(c.name)).value(), c.step).value();
    const Links links = link(step);
    const Timeline time = timeline(step, links);
    EXPECT_NEAR(static_cast<double>(time.devices.at(0).busy_ns) * 1e-3, c.busy_us, 50) << c.name;
    EXPECT_NEAR(100 - *time.busy_pct(), c.idle_pct, 0.1) << c.name;
    const Verdicts alone = judge_time(step, links);
    for (const RegionVerdict& r : all.regions) {
      if (r.region.name != alone.regions.at(0).region.name) continue;
      EXPECT_EQ(alone.whole.bound, r.verdict.bound) << c.name;
      ASSERT_EQ(alone.whole.part_pct.size(), r.verdict.part_pct.size()) << c.name;
      for (size_t i = 0; i < r.verdict.part_pct.size(); ++i)
        EXPECT_NEAR(alone.whole.part_pct[i], r.verdict.part_pct[i], 0.05) << c.name << " " << i;
    }
  }
}

}  // namespace epilogue::trace::selection_times_test
