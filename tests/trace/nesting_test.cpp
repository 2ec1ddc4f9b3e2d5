// SPDX-License-Identifier: Apache-2.0
#include "trace/nesting.h"

#include <gtest/gtest.h>

#include "trace/trace_builder.h"

namespace epilogue::trace::nesting_test {
namespace {

using testing::TraceBuilder;
using Parents = std::vector<uint32_t>;

Parents nest_one_lane(const std::vector<std::pair<int64_t, int64_t>>& spans) {
  std::vector<LaneSpan> lane;
  for (const auto& [start, end] : spans) lane.push_back({1, 1, start, end});
  return nest(lane);
}

TEST(Nest, FindsTheInnermostParent) {
  EXPECT_EQ(nest_one_lane({{0, 100}, {10, 40}, {20, 30}, {50, 60}}), (Parents{kNone, 0, 1, 0}));
}

TEST(Nest, SharedEdges) {
  // Start of one at the end of another: siblings. Same start, same end: nested.
  EXPECT_EQ(nest_one_lane({{0, 10}, {10, 20}}), (Parents{kNone, kNone}));
  EXPECT_EQ(nest_one_lane({{0, 10}, {0, 5}, {5, 10}}), (Parents{kNone, 0, 0}));
  EXPECT_EQ(nest_one_lane({{0, 10}, {0, 10}}), (Parents{kNone, 0}));
}

TEST(Nest, PartialOverlapMakesNoParent) {
  EXPECT_EQ(nest_one_lane({{0, 10}, {5, 15}, {6, 9}}), (Parents{kNone, kNone, 1}));
  // The outer span stays open behind the one that was left.
  EXPECT_EQ(nest_one_lane({{0, 100}, {0, 10}, {5, 15}}), (Parents{kNone, 0, 0}));
}

TEST(Nest, SpansWithoutDuration) {
  EXPECT_EQ(nest_one_lane({{0, 10}, {5, 5}, {5, 5}, {10, 10}}), (Parents{kNone, 0, 0, kNone}));
  EXPECT_EQ(nest_one_lane({}), Parents{});
}

TEST(Nest, LanesAreApart) {
  EXPECT_EQ(
      nest(std::vector<LaneSpan>{{1, 1, 0, 100}, {1, 2, 10, 20}, {2, 1, 10, 20}, {1, 1, 10, 20}}),
      (Parents{kNone, kNone, kNone, 0}));
}

TEST(EventOrder, ParentsComeFirstWhereTimesAreEqual) {
  TraceBuilder b;
  b.kernel("k", 10, 20, 3);  // launch 0, kernel 1
  b.op("inner", 10, 20);     // 2
  b.op("outer", 10, 20);     // 3, but begun before:
  b.trace.ops[0].ev_idx = 8;
  b.trace.ops[1].ev_idx = 7;
  b.annotation("step", 10, 20);  // 4
  b.op("first", 5, 6);           // 5
  b.op("longer", 10, 30);        // 6
  EXPECT_EQ(event_order(b.trace), (std::vector<uint32_t>{5, 6, 4, 3, 2, 0, 1}));
}

}  // namespace
}  // namespace epilogue::trace::nesting_test
