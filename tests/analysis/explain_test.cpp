// SPDX-License-Identifier: Apache-2.0
// Findings of small traces: which are made, and which are not.
#include "epilogue/trace/explain.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "trace/trace_builder.h"

namespace epilogue::trace {
namespace {

using testing::kUs;
using testing::TraceBuilder;

Explanation explain(const TraceBuilder& b) { return explain(b.trace, link(b.trace)); }

const Finding* find(const Explanation& e, std::string_view id) {
  const auto at = std::find_if(e.findings.begin(), e.findings.end(),
                               [&](const Finding& f) { return f.id == id; });
  return at == e.findings.end() ? nullptr : &*at;
}

// A launch call of `call_us` and its kernel `delay_us` after it.
void launch(TraceBuilder& b, int64_t at_us, int64_t call_us, int64_t delay_us, int64_t kernel_us,
            const char* kernel = "kernel") {
  Event& call =
      b.event(Category::kCudaRuntime, "cudaLaunchKernel", at_us * kUs, (at_us + call_us) * kUs);
  call.correlation = at_us + 1;
  const int64_t start = (at_us + call_us + delay_us) * kUs;
  Event& work = b.event(Category::kKernel, kernel, start, start + kernel_us * kUs, 7);
  work.correlation = at_us + 1;
  work.args = static_cast<uint32_t>(b.trace.kernels.size());
  b.trace.kernels.emplace_back();
}

TEST(Explain, AnEmptyTraceHasAVerdictAndNothingElse) {
  const Explanation e = explain(TraceBuilder());
  ASSERT_FALSE(e.findings.empty());
  EXPECT_EQ(e.findings.front().id, "verdict");
  EXPECT_EQ(e.verdicts.whole.bound, Bound::kCpuOnly);
}

TEST(Explain, TheVerdictComesFirstAndErrorsNext) {
  TraceBuilder b;
  b.op("aten::mm", 0, 100 * kUs);
  b.event(Category::kCudaRuntime, "cudaLaunchKernel", 10 * kUs, 20 * kUs).correlation = 5;
  const Explanation e = explain(b);  // a launch without a kernel: data were lost
  EXPECT_EQ(e.findings[0].id, "verdict");
  ASSERT_GT(e.findings.size(), 1U);
  EXPECT_EQ(e.findings[1].severity, Severity::kError);
  EXPECT_EQ(e.launches_without_kernel, 1);
}

TEST(Explain, LaunchesThatTheDeviceWaitsForAreAFindingWithTheIdleTimeAsItsSaving) {
  TraceBuilder b;
  b.op("aten::mul", 0, 30 * kUs);
  launch(b, 0, 30, 0, 2);
  b.op("aten::mul", 40 * kUs, 70 * kUs);
  launch(b, 40, 30, 0, 2);
  const Explanation e = explain(b);
  const Finding* f = find(e, "launch-cost");
  ASSERT_NE(f, nullptr);
  ASSERT_FALSE(e.idle.empty());
  EXPECT_DOUBLE_EQ(*f->saving_us, static_cast<double>(e.idle[0].of(IdleCause::kLaunch)) / 1000.0);
  EXPECT_EQ(f->evidence[0], "2 of 2 kernels are over sooner than the call that launches them");
}

TEST(Explain, OneSlowStepIsNamed) {
  TraceBuilder b;
  int64_t at = 0;
  for (const int64_t us : {100, 100, 100, 400}) {
    b.annotation("ProfilerStep#" + std::to_string(at), at * kUs, (at + us) * kUs);
    at += us;
  }
  const Explanation e = explain(b);
  const Finding* f = find(e, "slow-steps");
  ASSERT_NE(f, nullptr);
  EXPECT_DOUBLE_EQ(*f->saving_us, 300);
  EXPECT_EQ(f->evidence.size(), 1U);
}

TEST(Explain, EvenStepsAreNoFinding) {
  TraceBuilder b;
  for (int64_t i = 0; i < 4; ++i)
    b.annotation("ProfilerStep#" + std::to_string(i), i * 100 * kUs, (i + 1) * 100 * kUs);
  EXPECT_EQ(find(explain(b), "slow-steps"), nullptr);
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

}  // namespace
}  // namespace epilogue::trace
