// SPDX-License-Identifier: Apache-2.0
#include "epilogue/trace/file.h"

#include "epilogue/trace/links.h"
#include "support/test.h"
#include "trace/trace_builder.h"

namespace epilogue::trace::select_test {

// Two steps; the first one's kernel runs while the second is under way.
Trace two_steps() {
  testing::TraceBuilder b;
  b.annotation("ProfilerStep#3", 0, 1'000'000);
  b.op("first", 100'000, 200'000);
  const int64_t first = b.last_id();
  b.annotation("ProfilerStep#4", 1'000'000, 2'000'000);
  b.op("second", 1'100'000, 1'200'000);
  const int64_t second = b.last_id();
  b.kernel("k1", 150'000, 160'000, first);
  b.trace.events.back().ts_ns = 1'500'000;
  b.kernel("k2", 1'150'000, 1'160'000, second);
  b.trace.events.back().ts_ns = 1'600'000;
  b.memory(150'000, 64);
  b.memory(1'150'000, 64);
  b.trace.end_ns = 2'000'000;
  return std::move(b.trace);
}

std::vector<std::string> names(const Trace& trace) {
  std::vector<std::string> names;
  for (const Event& e : trace.events) names.emplace_back(trace.name(e));
  std::sort(names.begin(), names.end());
  return names;
}

TEST(Select, AStepTakesTheKernelsThatItLaunchedAndThoseThatRanInIt) {
  const Trace t = select_step(two_steps(), 3).value();
  EXPECT_EQ(names(t),
            (std::vector<std::string>{"ProfilerStep#3", "epiLaunchKernel", "first", "k1"}));
  EXPECT_EQ(t.memory.size(), 1U);
  EXPECT_EQ(t.start_ns, 0);
  EXPECT_EQ(t.end_ns, 1'000'000);
  EXPECT_EQ(names(select_step(two_steps(), 4).value()),
            (std::vector<std::string>{"ProfilerStep#4", "epiLaunchKernel", "k1", "k2", "second"}));
}

TEST(Select, WhatIsLeftOutIsKeptBesideIt) {
  const Trace t = select_step(two_steps(), 3).value();
  ASSERT_TRUE(t.selection);
  EXPECT_EQ(t.selection->start_ns, 0);
  EXPECT_EQ(t.selection->end_ns, 1'000'000);
  // The other step, its op, its launch and its kernel.
  EXPECT_EQ(t.selection->outside.size(), 4U);
}

TEST(Select, CutsNoKernelFromALaunchAndNoStepInTwo) {
  // The launch of k2 is inside, k2 is not; step 4 is not whole.
  const Trace late = select_range(two_steps(), 1.05, 1.2).value();
  EXPECT_EQ(names(late), (std::vector<std::string>{"epiLaunchKernel", "k2", "second"}));
  EXPECT_EQ(link(late).launches_without_kernel, 0);
  // The launches of both kernels are outside.
  const Links cut = link(select_range(two_steps(), 1.4, {}).value());
  EXPECT_EQ(cut.kernels, 2);
  EXPECT_EQ(cut.kernels_launched_outside, 2);
  EXPECT_EQ(cut.kernels_without_launch, 0);
  // Events that began before and run into it.
  EXPECT_EQ(names(select_range(two_steps(), 1.505, 1.55).value()),
            (std::vector<std::string>{"k1"}));
}

TEST(Select, ASelectionCanBeCutAgain) {
  const Trace t = select_range(select_step(two_steps(), 4).value(), 0.05, 0.2).value();
  EXPECT_EQ(names(t), (std::vector<std::string>{"epiLaunchKernel", "k2", "second"}));
  EXPECT_EQ(t.selection->start_ns, 1'050'000);
  EXPECT_EQ(t.selection->end_ns, 1'200'000);
  EXPECT_EQ(t.selection->outside.size(), 5U);  // all but the three
}

TEST(Select, AnUnknownStepNamesTheKnownOnes) {
  const auto none = select_step(two_steps(), 9);
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.failure().code, FailureCode::no_such_step);
  EXPECT_HAS(none.failure().message, "no step 9: its steps are 3, 4");
  EXPECT_HAS(select_step(Trace(), 1).failure().message, "no ProfilerStep");
}

TEST(Select, OneStepIsNoCount) {
  const auto none = select_step(select_step(two_steps(), 3).value(), 4);
  EXPECT_HAS(none.failure().message, "no step 4: its only step is 3");
}

TEST(Select, ARangeIsAWindow) {
  const Trace t = select_range(two_steps(), 1.0, 1.55).value();
  EXPECT_EQ(names(t), (std::vector<std::string>{"epiLaunchKernel", "k1", "k2", "second"}));
  EXPECT_EQ(t.start_ns, 1'000'000);
  EXPECT_EQ(t.end_ns, 1'550'000);
  EXPECT_EQ(names(select_range(two_steps(), {}, 0.12).value()),
            (std::vector<std::string>{"first"}));
  EXPECT_EQ(select_range(two_steps(), 5.0, {}).failure().code, FailureCode::empty_range);
  for (const double to_ms : {0.5, 1.0}) {
    const auto none = select_range(two_steps(), 1.0, to_ms);
    ASSERT_FALSE(none.ok());
    EXPECT_EQ(none.failure().code, FailureCode::empty_range);
    EXPECT_HAS(none.failure().message, "the first must be less than the second");
  }
}

}  // namespace epilogue::trace::select_test
