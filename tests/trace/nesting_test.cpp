// SPDX-License-Identifier: Apache-2.0
#include "trace/nesting.h"

#include "support/test.h"
#include "trace/trace_builder.h"

namespace epilogue::trace::nesting_test {

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

// Reference: the order by start and, as all spans last as long, by position.
std::vector<uint32_t> order_of_starts(const Trace& trace) {
  std::vector<uint32_t> order(trace.events.size());
  std::iota(order.begin(), order.end(), 0U);
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    return trace.events[a].ts_ns < trace.events[b].ts_ns;
  });
  return order;
}

TEST(EventOrder, OfManyEventsHoweverTheirTimesLie) {
  constexpr int64_t kFar_ns = int64_t{1} << 61;
  std::mt19937_64 random(1);
  const std::vector<std::function<int64_t(int64_t)>> starts = {
      [](int64_t i) { return i; },                                                // sorted
      [](int64_t i) { return -i; },                                               // reversed
      [](int64_t) { return 7; },                                                  // all at once
      [&](int64_t i) { return i + static_cast<int64_t>(random() % 50); },         // nearly sorted
      [&](int64_t) { return static_cast<int64_t>(random() % 1000); },             // many ties
      [&](int64_t) { return static_cast<int64_t>(random() >> 3U); },              // any
      [&](int64_t i) { return i % 1000 == 0 ? -kFar_ns / 2 : kFar_ns + i % 99; }  // a few far away
  };
  for (const size_t n : {size_t{1}, size_t{2}, size_t{5}, size_t{1000}, size_t{100'000}}) {
    for (size_t kind = 0; kind < starts.size(); ++kind) {
      TraceBuilder b;
      for (size_t i = 0; i < n; ++i) {
        const int64_t start_ns = starts[kind](static_cast<int64_t>(i));
        b.event(Category::other, "e", start_ns, start_ns + 1);
      }
      EXPECT_EQ(event_order(b.trace), order_of_starts(b.trace)) << n << " events, kind " << kind;
    }
  }
}

}  // namespace epilogue::trace::nesting_test
