// SPDX-License-Identifier: Apache-2.0
// Findings of small traces: which are made, and which are not.
#include "epilogue/trace/explain.h"

#include "explain/findings/find_finding.h"
#include "explain/gpu_trace.h"
#include "support/test.h"

namespace epilogue::trace::explain_test {

using namespace testing;

// A launch call of `call_us` and its kernel `delay_us` after it.
void launch(TraceBuilder& b, int64_t at_us, int64_t call_us, int64_t delay_us, int64_t kernel_us,
            const char* kernel = "kernel") {
  Event& call =
      b.event(Category::cuda_runtime, "cudaLaunchKernel", at_us * kUs, (at_us + call_us) * kUs);
  call.correlation = at_us + 1;
  const int64_t start = (at_us + call_us + delay_us) * kUs;
  Event& work = b.event(Category::kernel, kernel, start, start + kernel_us * kUs, 7);
  work.correlation = at_us + 1;
  work.args = static_cast<uint32_t>(b.trace.kernels.size());
  b.trace.kernels.emplace_back();
}

TEST(Explain, AnEmptyTraceHasAVerdictAndNothingElse) {
  const Explanation e = explain(TraceBuilder());
  ASSERT_FALSE(e.findings.empty());
  EXPECT_EQ(e.findings.front().id, "verdict");
  EXPECT_EQ(e.verdicts.whole.bound, Bound::cpu_only);
}

TEST(Explain, TheVerdictComesFirstAndErrorsNext) {
  TraceBuilder b;
  b.op("aten::mm", 0, 100 * kUs);
  b.event(Category::cuda_runtime, "cudaLaunchKernel", 10 * kUs, 20 * kUs).correlation = 5;
  const Explanation e = explain(b);  // a launch without a kernel: data were lost
  EXPECT_EQ(e.findings[0].id, "verdict");
  ASSERT_GT(e.findings.size(), 1U);
  EXPECT_EQ(e.findings[1].severity, Severity::error);
  EXPECT_EQ(e.launches_without_kernel, 1);
}

TEST(Explain, LaunchesThatTheDeviceWaitsForAreAFindingWithTheIdleTimeAsItsSaving) {
  TraceBuilder b;
  b.op("aten::mul", 0, 30 * kUs);
  launch(b, 0, 30, 0, 2);
  b.op("aten::mul", 40 * kUs, 70 * kUs);
  launch(b, 40, 30, 0, 2);
  const Explanation e = explain(b);
  const Finding f = finding_of(e, "launch-cost");
  ASSERT_FALSE(e.idle.empty());
  EXPECT_DOUBLE_EQ(*f.saving_us, static_cast<double>(e.idle[0].of(IdleCause::launch)) / 1000.0);
  EXPECT_EQ(f.evidence[0], "2 of 2 kernels take less time than the call that launches them");
}

TEST(Explain, OneKernelIsSpokenOfInTheSingular) {
  TraceBuilder b;
  b.op("aten::mul", 0, 30 * kUs);
  launch(b, 0, 30, 0, 2);
  const Finding f = finding_of(explain(b), "launch-cost");
  EXPECT_EQ(f.evidence[0], "1 of 1 kernel takes less time than the call that launches it");
}

TEST(Explain, OneSlowLaunchIsNamedAndNotTheirNumber) {
  TraceBuilder b;
  b.op("aten::mul", 0, 1030 * kUs);
  launch(b, 0, 1000, 0, 2);
  launch(b, 1010, 4, 0, 2);
  launch(b, 1020, 4, 0, 2);
  const Finding f = finding_of(explain(b), "launch-cost");
  ASSERT_EQ(f.evidence.size(), 3U);
  EXPECT_EQ(f.evidence[1], "cudaLaunchKernel: 3 calls, median 4.00 us, in all 1.01 ms");
  EXPECT_EQ(
      f.evidence[2],
      "one cudaLaunchKernel takes 1.00 ms of that, the first launch of its kernel: most likely "
      "it loads code to the device; calls before the recording (a warm-up) take it out");
}

TEST(Explain, ADeviceThatWaitsForDataIsAFindingThatNamesTheLoader) {
  const std::string name = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__";
  TraceBuilder b;
  b.op(name, 0, 40 * kUs);
  b.op("aten::mul", 60 * kUs, 70 * kUs);
  launch(b, 60, 5, 0, 30);
  b.annotation(name, 100 * kUs, 140 * kUs);
  const Explanation e = explain(b);
  EXPECT_EQ(e.verdicts.whole.bound, Bound::data);
  const Finding f = finding_of(e, "data-loader");
  EXPECT_DOUBLE_EQ(*f.saving_us, 80);
  EXPECT_EQ(f.evidence[0], name + ": 2 times, median 40.0 us, in all 80.0 us");
  TraceBuilder none;
  none.op("aten::mul", 60 * kUs, 70 * kUs);
  launch(none, 60, 5, 0, 30);
  EXPECT_EQ(find_finding(explain(none), "data-loader"), nullptr);
}

TEST(Explain, TheTitleSaysWhereTheShareThatIsJudgedIsAnother) {
  TraceBuilder b;
  b.op("aten::mul", 0, 40 * kUs);
  launch(b, 35, 5, 0, 40, "gemm");
  launch(b, 38, 2, 40, 20, "ncclDevKernel_AllReduce_Sum_f32_RING_LL");
  EXPECT_EQ(explain(b).findings.front().title,
            "overhead-bound: the device works 60 % of the time, 40.4 % as judged");
}

TEST(Explain, OneSlowStepIsNamed) {
  TraceBuilder b;
  int64_t at = 0;
  for (const int64_t us : {100, 100, 100, 400}) {
    b.annotation("ProfilerStep#" + std::to_string(at), at * kUs, (at + us) * kUs);
    at += us;
  }
  const Finding f = finding_of(explain(b), "slow-steps");
  EXPECT_EQ(f.title, "1 of 4 steps takes over 1.5 times the median: read the steps, not the mean");
  EXPECT_DOUBLE_EQ(*f.saving_us, 300);
  EXPECT_EQ(f.evidence.size(), 2U) << "the step, and what to do";
}

TEST(Explain, SlowStepsAreMeasuredAgainstTheMeanOfTheTwoInTheMiddle) {
  TraceBuilder b;
  int64_t at = 0;
  for (const int64_t us : {100, 110, 130, 190}) {  // median 120
    b.annotation("ProfilerStep#" + std::to_string(at), at * kUs, (at + us) * kUs);
    at += us;
  }
  EXPECT_DOUBLE_EQ(*finding_of(explain(b), "slow-steps").saving_us, 70);
}

TEST(Explain, EvenStepsAreNoFinding) {
  TraceBuilder b;
  for (int64_t i = 0; i < 4; ++i)
    b.annotation("ProfilerStep#" + std::to_string(i), i * 100 * kUs, (i + 1) * 100 * kUs);
  EXPECT_EQ(find_finding(explain(b), "slow-steps"), nullptr);
}

TEST(Explain, DurationsAreSaidInAUnitThatFitsThem) {
  TraceBuilder b;
  b.annotation("ProfilerStep#1", 0, 400 * kUs);
  launch(b, 0, 20, 0, 20);
  b.event(Category::cuda_runtime, "cudaDeviceSynchronize", 60 * kUs, 110 * kUs);
  launch(b, 200, 20, 0, 20);
  const Finding sync = finding_of(explain(b), "sync");
  EXPECT_EQ(sync.title, "the device idles 50.0 us while the host waits for it or for copies");
  EXPECT_EQ(sync.evidence[0],
            "cudaDeviceSynchronize in ProfilerStep#1: 1 time, the host waits 50.0 us");
}

TEST(Explain, OneLongOpThatLaunchesNothingIsNamedAndPromisesNothing) {
  TraceBuilder b;
  b.op("aten::empty", 0, 2000 * kUs);
  b.op("aten::view", 2000 * kUs, 2001 * kUs);
  b.op("aten::mm", 2100 * kUs, 2200 * kUs);
  launch(b, 2110, 10, 0, 50);
  const Finding f = finding_of(explain(b), "no-launch-ops");
  EXPECT_EQ(f.title, "one aten::empty starts no device work and takes 2.00 ms of the host's time");
  EXPECT_EQ(f.evidence[0], "aten::empty: 1 time, 2.00 ms");
  EXPECT_EQ(f.evidence[1], "aten::view: 1 time, 1.00 us");
  EXPECT_FALSE(f.saving_us);
}

TEST(Explain, ManyOpsThatLaunchNothingAreASaving) {
  TraceBuilder b;
  for (int64_t i = 0; i < 4; ++i) b.op("aten::view", i * 100 * kUs, (i * 100 + 50) * kUs);
  b.op("aten::mm", 500 * kUs, 600 * kUs);
  launch(b, 510, 10, 0, 5);
  const Explanation e = explain(b);
  const Finding f = finding_of(e, "no-launch-ops");
  EXPECT_EQ(f.title, "4 ops start no device work and take 200 us of the host's time");
  ASSERT_EQ(e.verdicts.whole.bound, Bound::overhead);
  EXPECT_DOUBLE_EQ(*f.saving_us, 200);
}

TEST(Explain, WhereLaunchesWereNotLinkedNobodyKnowsWhichOpsStartWork) {
  GpuTrace b;
  for (int64_t i = 0; i < 50; ++i) {
    b.op("aten::add", i * 100 * kUs, (i * 100 + 90) * kUs);
    b.gpu_kernel("mtia_kernel", (i * 100 + 20) * kUs, (i * 100 + 40) * kUs, 1000 + i);
  }
  EXPECT_EQ(find_finding(explain(b), "no-launch-ops"), nullptr);
}

TEST(Explain, ARunThatWaitsInCollectivesIsNotSaidToWork) {
  GpuTrace b;
  b.call("cudaLaunchKernel", 0, 2 * kUs, 1);
  b.gpu_kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 3 * kUs, 90 * kUs, 1, 20);
  b.call("cudaLaunchKernel", 3 * kUs, 4 * kUs, 2);
  b.gpu_kernel("elementwise", 90 * kUs, 100 * kUs, 2);
  const Explanation e = explain(b);
  ASSERT_EQ(e.verdicts.whole.bound, Bound::sync);
  EXPECT_EQ(e.findings.front().title,
            "sync-bound: collectives that no other kernel hides take 87 % of the time");
}

TEST(Explain, AWaitBehindWorkThatWasNotRecordedIsNoSaving) {
  GpuTrace b;
  b.annotation("step[DECODE bs=32]", 0, 2000 * kUs);
  b.call("hipMemcpyAsync", 10 * kUs, 12 * kUs, 1);
  b.work(Category::gpu_memcpy, "Memcpy HtoD (Pinned -> Device)", 14 * kUs, 18 * kUs, 1, 3);
  b.call("hipStreamWaitEvent", 100 * kUs, 101 * kUs);
  b.call("hipGraphLaunch", 110 * kUs, 150 * kUs, 3);
  for (int64_t i = 0; i < 10; ++i)
    b.gpu_kernel("Cijk_gemm", (480'000 + 980 * i) * kUs, (480'980 + 980 * i) * kUs, 3);
  const Explanation e = explain(b);
  EXPECT_EQ(e.verdicts.whole.bound, Bound::compute);
  EXPECT_HAS(e.findings.front().title, "as judged");
  const Finding f = finding_of(e, "idle-gap");
  EXPECT_EQ(f.title.find("the device shows no work for 480 ms while recorded work waits"), 0U);
  EXPECT_EQ(f.confidence, Confidence::low);
  EXPECT_FALSE(f.saving_us);
}

TEST(Explain, AGraphBreakIsAFindingAndARegionThatRunsOftenIsNone) {
  TraceBuilder b;
  b.annotation("ProfilerStep#1", 0, 1000 * kUs);
  for (int64_t i = 0; i < 4; ++i)
    b.op("Torch-Compiled Region: 0/0", i * 100 * kUs, (i * 100 + 50) * kUs);
  EXPECT_EQ(find_finding(explain(b), "graph-breaks"), nullptr);
  b.op("Torch-Compiled Region: 1/0", 500 * kUs, 550 * kUs);
  const Finding f = finding_of(explain(b), "graph-breaks");
  EXPECT_TRUE(f.title.starts_with("2.0 different compiled regions run per step")) << f.title;
}

TEST(Explain, FramesThatResumeWithinTheirRegionAreGraphBreaks) {
  TraceBuilder b;
  b.annotation("ProfilerStep#1", 0, 1000 * kUs);
  b.op("Torch-Compiled Region: 0/0", 0, 900 * kUs);
  for (int64_t i = 0; i < 5; ++i)
    b.op("Torch-Compiled Region: 0/0", (100 + i) * kUs, (800 - i) * kUs);
  b.op("## Call CompiledFxGraph abc ##", 200 * kUs, 300 * kUs);
  const Finding f = finding_of(explain(b), "graph-breaks");
  EXPECT_EQ(f.title, "the graph breaks 5.0 times per step: 6.0 compiled regions run");
  EXPECT_EQ(
      f.evidence[1],
      "800 us of the regions' time is in no compiled graph: Python, and ops that run eagerly");
  EXPECT_FALSE(f.action.empty());
}

TEST(Explain, ThePeakSaysWhatWasThereBeforeTheWindow) {
  TraceBuilder b;
  b.memory(10, 1 << 20).total_allocated = 10 << 20;
  const Finding f = finding_of(explain(b), "memory-peak");
  EXPECT_EQ(f.title, "memory peaks at 10.0 MiB");
  EXPECT_EQ(f.evidence[0], "9.00 MiB of it was allocated before the window");
  EXPECT_EQ(f.evidence[1], "outside of ops: 1.00 MiB in 1 allocation");
}

TEST(Explain, CountsDistinctKernels) {
  TraceBuilder b;
  launch(b, 0, 5, 0, 2, "a");
  launch(b, 10, 5, 0, 2, "b");
  launch(b, 20, 5, 0, 2, "a");
  const Explanation e = explain(b);
  EXPECT_EQ(e.kernels, 3);
  EXPECT_EQ(e.distinct_kernels, 2);
}

}  // namespace epilogue::trace::explain_test
