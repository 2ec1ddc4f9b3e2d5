// SPDX-License-Identifier: Apache-2.0
#include "explain/index/intervals.h"
#include "support/test.h"

namespace epilogue::trace {

// Found by argument-dependent lookup when a comparison fails.
void PrintTo(const Interval& i, std::ostream* out) {
  *out << "[" << i.begin_ns << ", " << i.end_ns << ")";
}

namespace intervals_test {

TEST(Intervals, UnionMergesWhatOverlapsOrTouches) {
  EXPECT_EQ(united({{30, 40}, {0, 10}, {5, 20}, {20, 25}, {31, 33}}),
            (IntervalSet{{0, 25}, {30, 40}}));
}

TEST(Intervals, EmptyAndReversedIntervalsCoverNothing) {
  EXPECT_TRUE(united({{5, 5}, {9, 3}}).empty());
  EXPECT_TRUE(united({}).empty());
  EXPECT_EQ(total_ns({}), 0);
}

TEST(Intervals, IntersectionAndDifference) {
  const IntervalSet a = {{0, 10}, {20, 30}, {40, 50}};
  const IntervalSet b = {{5, 25}, {28, 45}};
  EXPECT_EQ(intersected(a, b), (IntervalSet{{5, 10}, {20, 25}, {28, 30}, {40, 45}}));
  EXPECT_EQ(subtracted(a, b), (IntervalSet{{0, 5}, {25, 28}, {45, 50}}));
  EXPECT_EQ(subtracted(b, a), (IntervalSet{{10, 20}, {30, 40}}));
  EXPECT_EQ(subtracted(a, a), IntervalSet());
}

TEST(Intervals, GapsIncludeBothEndsOfTheWindow) {
  EXPECT_EQ(gaps({{10, 20}, {30, 40}}, {0, 50}), (IntervalSet{{0, 10}, {20, 30}, {40, 50}}));
  EXPECT_EQ(gaps({{10, 20}}, {12, 18}), IntervalSet());
  EXPECT_EQ(gaps({}, {3, 7}), (IntervalSet{{3, 7}}));
  EXPECT_EQ(gaps({}, {7, 3}), IntervalSet());
}

TEST(Intervals, CoverageOfWindows) {
  const IntervalSet set = {{10, 20}, {30, 40}};
  const Coverage coverage(set);
  EXPECT_EQ(coverage.within_ns({0, 100}), 20);
  EXPECT_EQ(coverage.within_ns({15, 35}), 10);
  EXPECT_EQ(coverage.within_ns({20, 30}), 0);
  EXPECT_EQ(coverage.within_ns({12, 14}), 2);
  EXPECT_TRUE(coverage.contains(10));
  EXPECT_FALSE(coverage.contains(20));
  EXPECT_FALSE(coverage.contains(0));
}

// Against one bool per moment.
TEST(Intervals, AgreeWithMomentsCountedOneByOne) {
  constexpr int kMoments = 60;
  std::mt19937 random(1);
  const auto draw = [&] {
    std::vector<Interval> list;
    for (unsigned i = random() % 8; i > 0; --i) {
      const auto begin = static_cast<int64_t>(random() % kMoments);
      list.push_back({begin, begin + static_cast<int64_t>(random() % 12)});
    }
    return list;
  };
  const auto in = [](const std::vector<Interval>& list, int64_t t) {
    for (const Interval& i : list)
      if (i.begin_ns <= t && t < i.end_ns) return true;
    return false;
  };
  for (int round = 0; round < 2000; ++round) {
    const std::vector<Interval> x = draw();
    const std::vector<Interval> y = draw();
    const IntervalSet a = united(x);
    const IntervalSet b = united(y);
    const IntervalSet both = intersected(a, b);
    const IntervalSet rest = subtracted(a, b);
    for (int64_t t = -1; t < kMoments + 13; ++t) {
      ASSERT_EQ(in(a, t), in(x, t)) << round;
      ASSERT_EQ(in(both, t), in(x, t) && in(y, t)) << round;
      ASSERT_EQ(in(rest, t), in(x, t) && !in(y, t)) << round;
    }
    ASSERT_EQ(total_ns(a), total_ns(both) + total_ns(rest)) << round;
    ASSERT_EQ(Coverage(b).within_ns({10, 40}), total_ns(intersected(b, {{10, 40}}))) << round;
  }
}

}  // namespace intervals_test
}  // namespace epilogue::trace
