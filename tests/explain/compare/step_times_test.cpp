// SPDX-License-Identifier: Apache-2.0
// Regressions: the test of Mann and Whitney, and steps judged by it.
#include "epilogue/trace/diff.h"
#include "explain/compare/mann_whitney.h"
#include "support/test.h"
#include "trace/trace_builder.h"

namespace epilogue::trace::step_times_test {

using Times = std::vector<int64_t>;

TEST(MannWhitney, IsExactForFewValues) {
  const MannWhitney apart = mann_whitney(Times{1, 2, 3, 4, 5}, Times{6, 7, 8, 9, 10});
  EXPECT_TRUE(apart.is_exact);
  EXPECT_NEAR(apart.p_larger, 1.0 / 252, 1e-12);
  EXPECT_NEAR(apart.p_smaller, 1, 1e-12);
  EXPECT_EQ(apart.superiority, 1);
  // All 462 choices of six of these values, counted one by one, ties by their mean ranks.
  const MannWhitney ties = mann_whitney(Times{10, 12, 12, 15, 11}, Times{12, 16, 18, 15, 20, 17});
  EXPECT_NEAR(ties.p_larger, 7.0 / 462, 1e-12);
  EXPECT_NEAR(ties.p_smaller, 461.0 / 462, 1e-12);
  const MannWhitney same = mann_whitney(Times{5, 5, 5}, Times{5, 5});
  EXPECT_NEAR(same.p_larger, 1, 1e-12);
  EXPECT_EQ(same.superiority, 0.5);
}

TEST(MannWhitney, IsTheNormalApproximationForMany) {
  Times a;
  Times b;
  for (int64_t i = 0; i < 40; ++i) a.push_back(100 + 7 * i % 13 + i / 3);
  for (int64_t i = 0; i < 35; ++i) b.push_back(101 + 5 * i % 11 + i / 3);
  const MannWhitney test = mann_whitney(a, b);  // values of SciPy's mannwhitneyu
  EXPECT_FALSE(test.is_exact);
  EXPECT_NEAR(test.p_larger, 0.7452468892407258, 1e-12);
  EXPECT_NEAR(test.p_smaller, 0.2581795522163182, 1e-12);
  EXPECT_NEAR(test.superiority, 638.5 / (40 * 35), 1e-12);
  EXPECT_EQ(mann_whitney(Times(50, 7), Times(50, 7)).p_larger, 1);
}

TEST(MannWhitney, KnowsTheSmallestPAndTheShift) {
  EXPECT_NEAR(smallest_p(5, 5), 1.0 / 252, 1e-15);
  EXPECT_NEAR(smallest_p(1, 3), 1.0 / 4, 1e-15);
  EXPECT_EQ(median_difference(Times{10, 20}, Times{11, 23}), 2);  // of -9, 1, 3, 13
  EXPECT_EQ(median_difference(Times(5000, 10), Times(3000, 14)), 4);
}

// A trace with a step of each length, in microseconds, half of it in an op.
Trace steps_of(const Times& lengths_us) {
  testing::TraceBuilder b;
  int64_t now = 0;
  for (size_t i = 0; i < lengths_us.size(); ++i) {
    const int64_t ns = lengths_us[i] * testing::kUs;
    b.annotation("ProfilerStep#" + std::to_string(i), now, now + ns);
    b.op("aten::mm", now + 100, now + 100 + ns / 2);
    now += ns + 1000;
  }
  return std::move(b.trace);
}

StepTimes times_of(std::initializer_list<Times> traces) {
  StepTimes times;
  for (const Times& lengths : traces) {
    const Trace trace = steps_of(lengths);
    times.add(trace, link(trace));
  }
  return times;
}

TEST(CompareSteps, FindsWhatIsSlowerBeyondNoise) {
  const StepTimes before = times_of({{100, 103, 101}, {102, 99, 104}});
  const StepComparison c = compare_steps(before, times_of({{120, 118}, {125, 119}, {122, 121}}));
  EXPECT_TRUE(c.can_decide);
  EXPECT_TRUE(c.has_regression);
  ASSERT_EQ(c.quantities.size(), 2U);  // no device
  EXPECT_EQ(c.p_needed, 0.005);
  EXPECT_EQ(c.quantities[0].name, "wall_us_per_step");
  EXPECT_NEAR(c.quantities[0].p, 1.0 / 924, 1e-12);
  EXPECT_TRUE(c.quantities[0].is_slower);
  EXPECT_NEAR(c.quantities[0].shift_ns, 19000, 1);
  // The other way round it is faster, which is no regression.
  const StepComparison back = compare_steps(times_of({{120, 118, 125, 119, 122, 121}}), before);
  EXPECT_FALSE(back.has_regression);
  EXPECT_TRUE(back.quantities[0].is_faster);
}

TEST(CompareSteps, LeavesNoiseAndSmallShiftsAlone) {
  const StepTimes before = times_of({{100, 140, 90, 120, 110, 130}});
  EXPECT_FALSE(compare_steps(before, times_of({{105, 150, 95, 125, 115, 130}})).has_regression);
  // Certain, and 1 % only.
  const StepTimes steady = times_of({{1000, 1001, 1002, 1003, 1004, 1005}});
  const StepTimes later = times_of({{1010, 1011, 1012, 1013, 1014, 1015}});
  const StepComparison small = compare_steps(steady, later);
  EXPECT_FALSE(small.has_regression);
  EXPECT_TRUE(small.quantities[0].is_within_tolerance);
  EXPECT_TRUE(compare_steps(steady, later, {.tolerance_pct = 0.5}).has_regression);
}

TEST(CompareSteps, DoesNotDecideByTooFewSteps) {
  const StepComparison few =
      compare_steps(times_of({{100, 100, 100}}), times_of({{200, 200, 200}}));
  EXPECT_FALSE(few.can_decide);
  EXPECT_FALSE(few.has_regression);
  EXPECT_NEAR(few.smallest_p, 1.0 / 20, 1e-12);
  EXPECT_FALSE(compare_steps({}, times_of({{1, 2}})).can_decide);
}

}  // namespace epilogue::trace::step_times_test
