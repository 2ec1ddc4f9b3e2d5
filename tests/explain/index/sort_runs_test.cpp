// SPDX-License-Identifier: Apache-2.0
#include "explain/index/sort_runs.h"

#include <algorithm>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include "explain/index/op_tree.h"
#include "support/test.h"

namespace epilogue::trace::sort_runs_test {

using testing::TraceBuilder;

using Start = std::pair<int64_t, size_t>;  // a time, and where it stood

// So many ascending runs, whose times overlap by `overlap` of a run's length.
std::vector<Start> runs_of(size_t size, size_t runs, double overlap, std::mt19937& rng) {
  std::vector<Start> list;
  const size_t length = std::max<size_t>(1, size / runs);
  for (size_t i = 0; i < size; ++i) {
    const size_t run = i / length;
    const double from = static_cast<double>(run) * static_cast<double>(length) * (1 - overlap);
    list.emplace_back(static_cast<int64_t>(from) + static_cast<int64_t>(i % length) +
                          static_cast<int64_t>(rng() % 2),
                      i);
  }
  return list;
}

TEST(SortRuns, IsAnOrdinarySortWhateverTheRuns) {
  std::mt19937 rng(7);
  for (const size_t size : {0U, 1U, 2U, 3U, 100U, 4096U, 5000U})
    for (const size_t runs : {1U, 2U, 3U, 5U, 17U, 100U, 5000U})
      for (const double overlap : {0.0, 0.3, 1.0}) {
        std::vector<Start> list = runs_of(size, runs, overlap, rng);
        std::vector<Start> expected = list;
        std::sort(expected.begin(), expected.end());
        sort_runs(list, std::less<>());
        ASSERT_EQ(list, expected) << size << " in " << runs << " runs, overlap " << overlap;
      }
}

TEST(SortRuns, OfSortedRunsEachElementIsComparedAFewTimes) {
  std::mt19937 rng(7);
  const std::vector<std::pair<size_t, size_t>> allowed = {{1, 2}, {2, 3}, {8, 6}};
  for (const auto& [runs, most] : allowed) {
    std::vector<Start> list;
    for (size_t r = 0; r < runs; ++r)
      for (size_t i = 0; i < 8192; ++i)
        list.emplace_back(static_cast<int64_t>(i * runs + (r * 5) % runs), list.size());
    size_t compared = 0;
    sort_runs(list, [&](const Start& a, const Start& b) {
      ++compared;
      return a < b;
    });
    EXPECT_TRUE(std::is_sorted(list.begin(), list.end()));
    EXPECT_LE(compared, most * list.size()) << runs << " runs";
  }
}

// By looking at all of them.
uint32_t innermost_by_hand(const Trace& trace, const std::vector<uint32_t>& spans,
                           const Moment& moment) {
  uint32_t found = kNone;
  for (const uint32_t i : spans) {
    const Event& e = trace.events[i];
    if (e.pid != moment.pid || e.tid != moment.tid || e.ts_ns > moment.ts_ns ||
        e.end_ns() <= moment.ts_ns)
      continue;
    const bool is_later =
        found == kNone || e.ts_ns > trace.events[found].ts_ns ||
        (e.ts_ns == trace.events[found].ts_ns && e.dur_ns < trace.events[found].dur_ns);
    if (is_later) found = i;
  }
  return found;
}

TEST(InnermostAt, FindsOnEachThreadTheSpanThatStartedLastInAnyOrderOfTheFile) {
  std::mt19937 rng(11);
  for (int round = 0; round < 50; ++round) {
    TraceBuilder b;
    std::vector<uint32_t> spans;
    std::vector<Moment> moments;
    // Nested: an op of 1000, ops of 100 within it, ops of 10 within these.
    for (int64_t tid = 0; tid < 3; ++tid)
      for (int64_t i = 0; i < 200; ++i) {
        const int64_t length = i % 3 == 0 ? 1000 : i % 3 == 1 ? 100 : 10;
        const int64_t at = static_cast<int64_t>(rng() % 20) * length;
        b.event(Category::cpu_op, "op", at, at + length).tid = tid;
        spans.push_back(static_cast<uint32_t>(b.trace.events.size() - 1));
        moments.push_back({b.trace.events.back().pid, static_cast<int64_t>(rng() % 4),
                           static_cast<int64_t>(rng() % 25000) - 1000});
      }
    const std::vector<uint32_t> found = innermost_at(b.trace, spans, moments);
    for (size_t m = 0; m < moments.size(); ++m) {
      const uint32_t expected = innermost_by_hand(b.trace, spans, moments[m]);
      ASSERT_EQ(found[m] == kNone, expected == kNone) << m;
      if (expected == kNone) continue;
      const Event& got = b.trace.events[found[m]];
      const Event& wanted = b.trace.events[expected];
      ASSERT_EQ(std::pair(got.ts_ns, got.dur_ns), std::pair(wanted.ts_ns, wanted.dur_ns)) << m;
    }
  }
}

}  // namespace epilogue::trace::sort_runs_test
