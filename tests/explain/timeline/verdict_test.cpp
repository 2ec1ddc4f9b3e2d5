// SPDX-License-Identifier: Apache-2.0
#include "epilogue/trace/time.h"

#include "epilogue/trace/ranks.h"
#include "explain/gpu_trace.h"
#include "support/test.h"

namespace epilogue::trace::verdict_test {

using namespace testing;

Verdicts judged(const GpuTrace& b) { return judge_time(b.trace, link(b.trace)); }

double sum(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}

TEST(Verdict, ADeviceThatWaitsForOpsIsOverheadBound) {
  GpuTrace b;
  b.op("aten::mm", 0, 80 * kUs);
  b.call("cudaLaunchKernel", 80 * kUs, 84 * kUs, 1);
  b.gpu_kernel("gemm", 90 * kUs, 100 * kUs, 1);
  const Verdict v = judged(b).whole;
  EXPECT_EQ(v.bound, Bound::overhead);
  EXPECT_DOUBLE_EQ(v.pct(TimePart::compute), 10);
  EXPECT_DOUBLE_EQ(v.pct(TimePart::profiler), 1);  // one op, 1 us
  EXPECT_DOUBLE_EQ(v.pct(TimePart::overhead), 79);
  EXPECT_DOUBLE_EQ(v.pct(TimePart::launch), 4);
  EXPECT_DOUBLE_EQ(v.pct(TimePart::queue), 6);
  EXPECT_DOUBLE_EQ(sum(v.part_pct), 100);
  ASSERT_FALSE(v.evidence.empty());
  EXPECT_EQ(v.evidence[0],
            "The device worked 10.0 us of 100 us (10.0 %); launches: 1, kernels: 1.");
}

TEST(Verdict, TheProfilersPartIsTakenOutBeforeJudging) {
  // 45 us busy of 100: below half. Ten ops of 5.5 us, of which the profiler takes 4 each.
  GpuTrace b;
  for (int64_t i = 0; i < 10; ++i) b.op("aten::add", i * 5500, (i + 1) * 5500);
  b.gpu_kernel("add", 55 * kUs, 100 * kUs);
  EXPECT_EQ(judged(b).whole.bound, Bound::memory) << "45 of 90 us: 1 us per op";
  b.trace.recorded.with_stack = true;
  const Verdicts inflated = judged(b);
  EXPECT_TRUE(inflated.profiler.is_inflated);
  EXPECT_EQ(inflated.profiler.total_ns, 40 * kUs);
  EXPECT_EQ(inflated.whole.bound, Bound::memory);
  EXPECT_DOUBLE_EQ(inflated.whole.pct(TimePart::profiler), 40);
  EXPECT_DOUBLE_EQ(inflated.whole.pct(TimePart::overhead), 15);
  b.trace.metadata.emplace_back("epilogue_recorder", R"({"ns_per_op": 100.0, "ops": 10})");
  const Verdicts measured = judged(b);
  EXPECT_TRUE(measured.profiler.is_measured);
  EXPECT_EQ(measured.profiler.total_ns, kUs);
  EXPECT_EQ(measured.whole.bound, Bound::overhead) << "45 of 99 us";
}

TEST(Verdict, RecentProfilersTakeLess) {
  GpuTrace b;
  for (int i = 0; i < 10; ++i) b.op("aten::relu", i * 10 * kUs, (i * 10 + 6) * kUs);
  b.trace.base_time_ns = 1'790'000'000'000'000'000;
  EXPECT_EQ(profiler_cost(b.trace, link(b.trace)).total_ns, 3'500);
  b.trace.recorded.record_shapes = true;
  EXPECT_EQ(profiler_cost(b.trace, link(b.trace)).total_ns, 6'000);
  b.trace.base_time_ns = 0;  // before 2024-05
  EXPECT_EQ(profiler_cost(b.trace, link(b.trace)).total_ns, 40'000);
}

TEST(Verdict, TheProfilersPartNeverExceedsAnOpsOwnTime) {
  GpuTrace b;
  b.op("aten::linear", 0, 10 * kUs);
  b.op("aten::t", kUs, 2 * kUs);
  b.trace.recorded.record_shapes = true;
  EXPECT_EQ(judged(b).profiler.total_ns, 4 * kUs + kUs);
}

TEST(Verdict, WorkingDevicesAreBoundByWhatTheyMostlyDo) {
  GpuTrace b;
  b.op("aten::mm", 0, 100);
  b.gpu_kernel("ampere_bf16_s16816gemm_bf16_128x128", 0, 50);
  b.gpu_kernel("vectorized_elementwise_kernel", 50, 90);
  EXPECT_EQ(judged(b).whole.bound, Bound::compute);
  b.gpu_kernel("softmax", 90, 110);
  EXPECT_EQ(judged(b).whole.bound, Bound::memory);
}

TEST(Verdict, WaitsLaunchesAndDataAreNamed) {
  GpuTrace sync;
  sync.call("cudaLaunchKernel", 0, 5, 1);
  sync.gpu_kernel("k", 6, 16, 1);
  sync.call("cudaStreamSynchronize", 6, 100);
  EXPECT_EQ(judged(sync).whole.bound, Bound::sync);

  GpuTrace launch;
  launch.call("cudaLaunchKernel", 0, 90, 1);
  launch.gpu_kernel("k", 90, 100, 1);
  EXPECT_EQ(judged(launch).whole.bound, Bound::launch);

  GpuTrace data;
  data.annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 0, 80);
  data.call("cudaLaunchKernel", 80, 85, 1);
  data.gpu_kernel("k", 86, 100, 1);
  EXPECT_EQ(judged(data).whole.bound, Bound::data);

  GpuTrace ranks;
  ranks.gpu_kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 0, 80);
  ranks.gpu_kernel("gemm", 80, 100);
  const Verdict v = judged(ranks).whole;
  EXPECT_EQ(v.bound, Bound::sync);
  EXPECT_DOUBLE_EQ(v.pct(TimePart::communication), 80);
  EXPECT_EQ(v.evidence[0],
            "The device worked 100 ns of 100 ns (100.0 %); launches: 0, kernels: 2.");
  EXPECT_EQ(v.evidence[2],
            "Largest loss: 80 ns (80.0 %) idle while the host waited for the device, or in "
            "collectives that no kernel hides.")
      << "a device that worked all the time is not said to have idled";
}

TEST(Verdict, AKernelThatRunsBesideACollectiveHidesItWhateverItsKind) {
  GpuTrace b;
  b.gpu_kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 0, 80, 0, 20);
  b.gpu_kernel("vectorized_elementwise_kernel", 10, 40);
  b.gpu_kernel("ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn", 40, 60);
  b.gpu_kernel("softmax", 80, 100);
  const Verdict v = judged(b).whole;
  EXPECT_DOUBLE_EQ(v.pct(TimePart::communication), 30) << "as the finding has it: alone";
  EXPECT_DOUBLE_EQ(v.pct(TimePart::memory), 50);
  EXPECT_DOUBLE_EQ(v.pct(TimePart::compute), 20);
  const Links links = link(b.trace);
  const RankTrace self{b.trace, links};
  const Collectives c = collectives({&self, 1});
  EXPECT_EQ(c.ranks.at(0).communication_ns - c.ranks.at(0).overlap_ns, 30);
}

TEST(Verdict, WhatAKernelsNameDoesNotTellItsOpDoes) {
  GpuTrace b;
  b.op("aten::convolution", 0, 10);
  b.op("aten::_convolution", 1, 9);
  b.call("cudaLaunchKernel", 2, 3, 1);
  b.gpu_kernel("mystery_engine_7", 10, 70, 1);
  b.op("aten::add", 11, 14);
  b.call("cudaLaunchKernel", 12, 13, 2);
  b.gpu_kernel("mystery_engine_7", 70, 100, 2);
  b.op("AddmmBackward0", 15, 30);
  b.op("aten::sum", 16, 20);
  b.call("cudaLaunchKernel", 17, 18, 3);
  b.gpu_kernel("mystery_sum", 100, 110, 3);
  const Verdict v = judged(b).whole;
  EXPECT_EQ(v.bound, Bound::compute);
  EXPECT_NEAR(v.pct(TimePart::compute), 100 * 60.0 / 110, 1e-9);
  EXPECT_NEAR(v.pct(TimePart::memory), 100 * 40.0 / 110, 1e-9);
}

TEST(Verdict, IdlenessOfUnknownCauseIsNoVerdict) {
  GpuTrace b;
  b.op("aten::mm", 0, 10 * kUs);
  b.call("cudaLaunchKernel", 8 * kUs, 9 * kUs, 1);
  b.gpu_kernel("gemm", 10 * kUs, 20 * kUs, 1);
  b.gpu_kernel("gemm", 90 * kUs, 100 * kUs);  // the host has ended
  const Verdict v = judged(b).whole;
  EXPECT_EQ(v.bound, Bound::unknown);
  EXPECT_EQ(bound_name(v.bound), "overhead-bound");
  EXPECT_DOUBLE_EQ(v.pct(TimePart::other), 70);
  ASSERT_GE(v.evidence.size(), 2u);
  EXPECT_EQ(v.evidence[1],
            "Largest loss: 70.0 us (70.0 %) idle while the trace says nothing of the host: the "
            "cause of this idle time is unknown.");

  GpuTrace device_only;
  device_only.gpu_kernel("gemm", 0, 10);
  device_only.gpu_kernel("gemm", 90, 100);
  EXPECT_EQ(judged(device_only).whole.bound, Bound::unknown);
}

bool says(const Verdict& v, std::string_view part) {
  return std::any_of(v.evidence.begin(), v.evidence.end(), [&](const std::string& sentence) {
    return sentence.find(part) != std::string::npos;
  });
}

TEST(Verdict, TheShareThatIsJudgedLeavesOutCollectives) {
  GpuTrace b;
  b.op("aten::mm", 0, 40 * kUs);
  b.gpu_kernel("gemm", 40 * kUs, 80 * kUs);
  b.gpu_kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 80 * kUs, 100 * kUs);
  const Verdict v = judged(b).whole;
  EXPECT_EQ(v.bound, Bound::overhead);
  EXPECT_DOUBLE_EQ(v.pct(TimePart::compute) + v.pct(TimePart::communication), 60);
  ASSERT_TRUE(v.judged_pct);
  EXPECT_NEAR(*v.judged_pct, 40.0 * 100 / 99, 1e-9);  // the profiler had 1 us of the op
  EXPECT_TRUE(says(v,
                   "Without 20.0 us of collectives that no other kernel hides and 1.00 us of the "
                   "profiler's own time, it worked 40.4 % of the time: the verdict rests on this "
                   "share."));
}

TEST(Verdict, TheShareThatIsJudgedLeavesOutTheProfilersPart) {
  GpuTrace b;
  for (int64_t i = 0; i < 10; ++i) b.op("aten::add", i * 5500, (i + 1) * 5500);
  b.gpu_kernel("gemm", 55 * kUs, 100 * kUs);
  const Verdict v = judged(b).whole;
  EXPECT_EQ(v.bound, Bound::compute);
  EXPECT_DOUBLE_EQ(*v.judged_pct, 50);  // 45 of 90 us
  EXPECT_TRUE(says(v, "Without 10.0 us of the profiler's own time, it worked 50.0 % of the time"));
}

TEST(Verdict, WaitingBeforeTheFirstRecordedWorkNeedBeNoIdleness) {
  GpuTrace b;
  b.annotation("decode", 0, 20 * kUs);
  b.call("cudaMemcpyAsync", 0, 2 * kUs, 1);
  b.call("cudaMemcpyAsync", 10 * kUs, 12 * kUs, 2);
  b.work(Category::gpu_memcpy, "Memcpy HtoD (Pinned -> Device)", 80 * kUs, 85 * kUs, 1);
  b.work(Category::gpu_memcpy, "Memcpy HtoD (Pinned -> Device)", 85 * kUs, 90 * kUs, 2);
  const std::string_view reservation =
      "before the first recorded work of the device. The device may have been busy then";
  const Verdicts v = judged(b);
  EXPECT_EQ(v.whole.bound, Bound::memory) << "it worked 10 us of the 12 us that are judged";
  EXPECT_NEAR(*v.whole.judged_pct, 10 * 100 / 12.0, 1e-9);
  EXPECT_TRUE(says(v.whole, "Launched work waited 78.0 us before the first recorded work"));
  EXPECT_TRUE(says(v.regions.at(0).verdict, reservation));
  b.work(Category::gpu_memset, "Memset", 0, 1 * kUs);  // now it is known to have been free
  const Verdict free = judged(b).whole;
  EXPECT_FALSE(says(free, reservation));
  EXPECT_EQ(free.bound, Bound::queue) << "launches are a small part of it";
  EXPECT_EQ(bound_name(free.bound), "queue-bound");
  EXPECT_TRUE(says(free, "Of that, launch calls took 1.00 us only"));
}

// A server's step: the stream waits for an event of work that ran before the recording, while a
// small copy on another stream has already run.
GpuTrace step_behind_others(bool waits_for_event) {
  GpuTrace b;
  b.annotation("step[DECODE bs=32]", 0, 2000 * kUs);
  b.call("hipMemcpyAsync", 10 * kUs, 12 * kUs, 1);
  b.work(Category::gpu_memcpy, "Memcpy HtoD (Pinned -> Device)", 14 * kUs, 18 * kUs, 1, 3);
  b.call("hipLaunchKernel", 20 * kUs, 22 * kUs, 2);
  b.gpu_kernel("small", 24 * kUs, 28 * kUs, 2);
  if (waits_for_event) b.call("hipStreamWaitEvent", 100 * kUs, 101 * kUs);
  b.call("hipGraphLaunch", 110 * kUs, 150 * kUs, 3);
  for (int64_t i = 0; i < 10; ++i)
    b.gpu_kernel("Cijk_gemm", (480'000 + 980 * i) * kUs, (480'980 + 980 * i) * kUs, 3);
  return b;
}

TEST(Verdict, WhatWaitsBehindWorkThatWasNotRecordedIsJudgedInItsOwnWindow) {
  const Verdicts v = judged(step_behind_others(true));
  EXPECT_EQ(v.whole.bound, Bound::compute);
  EXPECT_GT(*v.whole.judged_pct, 95);
  EXPECT_LT(v.whole.pct(TimePart::compute), 3) << "of the wall time it is little";
  EXPECT_TRUE(says(v.whole, "Launched work waited 480 ms on a stream that waits for an event"));
  EXPECT_TRUE(says(v.whole, "in which work that was not recorded may have run, it worked"));
  EXPECT_EQ(v.regions.at(0).verdict.bound, Bound::compute);
  EXPECT_GT(*v.regions.at(0).verdict.judged_pct, 95);
  const Verdicts known = judged(step_behind_others(false));
  EXPECT_EQ(known.whole.bound, Bound::queue) << "nothing says that the stream waited for others";
}

TEST(Verdict, AWaitThatRecordedWorkEndsIsSure) {
  GpuTrace b = step_behind_others(true);
  b.call("hipLaunchKernel", 478'950 * kUs, 478'951 * kUs, 9);
  b.gpu_kernel("other", 479'000 * kUs, 479'950 * kUs, 9,
               5);  // it ends 50 us before the graph starts
  EXPECT_FALSE(says(judged(b).whole, "on a stream that waits for an event"))
      << "the wait is that for the other stream, whose work started late";
}

TEST(Verdict, ARegionThatTheHostLeftEarlyIsJudgedInTheDevicesWindow) {
  GpuTrace b;
  b.annotation("decode", 0, 10 * kUs);
  b.call("cudaGraphLaunch", 2 * kUs, 4 * kUs, 1);
  b.annotation("decode", 10 * kUs, 20 * kUs);
  b.call("cudaGraphLaunch", 12 * kUs, 14 * kUs, 2);
  b.gpu_kernel("gemm", 15 * kUs, 95 * kUs, 1);
  b.gpu_kernel("gemm", 100 * kUs, 180 * kUs, 2);
  const Verdicts v = judged(b);
  ASSERT_EQ(v.regions.size(), 2u);
  EXPECT_EQ(v.regions[0].verdict.bound, Bound::compute);
  EXPECT_EQ(v.regions[0].region.device_end_ns, 95 * kUs);
  EXPECT_EQ(v.regions[1].verdict.bound, Bound::compute);
  EXPECT_EQ(v.regions[1].region.device_start_ns, 95 * kUs);
  EXPECT_EQ(v.regions[1].region.device_end_ns, 180 * kUs);
  EXPECT_NEAR(v.regions[1].verdict.pct(TimePart::compute), 80 * 100 / 85.0, 1e-9);
}

TEST(Verdict, StepsAreJudgedOneByOne) {
  GpuTrace b;
  b.annotation("ProfilerStep#1", 0, 100 * kUs);
  b.call("cudaLaunchKernel", 10 * kUs, 12 * kUs, 1);
  b.gpu_kernel("gemm", 13 * kUs, 95 * kUs, 1);
  b.annotation("ProfilerStep#2", 100 * kUs, 200 * kUs);
  b.op("aten::item", 100 * kUs, 190 * kUs);
  b.call("cudaLaunchKernel", 188 * kUs, 189 * kUs, 2);
  b.gpu_kernel("gemm", 190 * kUs, 195 * kUs, 2);
  b.annotation("ProfilerStep#3", 200 * kUs, 300 * kUs);
  b.op("aten::add", 210 * kUs, 220 * kUs);
  const Verdicts all = judged(b);
  ASSERT_EQ(all.regions.size(), 3u);
  EXPECT_EQ(all.regions[0].verdict.bound, Bound::compute);
  EXPECT_EQ(all.regions[1].verdict.bound, Bound::overhead);
  EXPECT_EQ(all.regions[2].verdict.bound, Bound::cpu_only);
  EXPECT_TRUE(all.regions[2].verdict.part_pct.empty());
}

TEST(Verdict, MissingKernelsAreToldFromMissingLaunches) {
  GpuTrace lost;
  lost.op("aten::mm", 0, 10);
  lost.call("cudaLaunchKernel", 2, 4, 1);
  const Verdict v = judged(lost).whole;
  EXPECT_EQ(v.bound, Bound::no_kernels);
  EXPECT_TRUE(v.part_pct.empty());

  GpuTrace host;
  host.op("aten::mm", 0, 10);
  EXPECT_EQ(judged(host).whole.bound, Bound::cpu_only);
  EXPECT_EQ(judge_time(Trace(), Links()).whole.bound, Bound::cpu_only);
}

}  // namespace epilogue::trace::verdict_test
