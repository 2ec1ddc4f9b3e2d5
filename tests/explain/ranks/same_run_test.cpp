// SPDX-License-Identifier: Apache-2.0
#include "epilogue/trace/explain.h"
#include "explain/gpu_trace.h"
#include "explain/ranks/rank_digest.h"
#include "support/test.h"

namespace epilogue::trace::same_run_test {

using testing::GpuTrace;

// One op from `start_ns` on, 10 ns long.
GpuTrace trace_of(const std::string& path, const std::string& op = "aten::mm",
                  int64_t start_ns = 100) {
  GpuTrace b;
  b.event(Category::cpu_op, op, start_ns, start_ns + 10);
  b.trace.import.path = path;
  return b;
}

GpuTrace of_rank(const std::string& path, int64_t rank, int64_t world_size) {
  GpuTrace b = trace_of(path);
  b.trace.metadata.emplace_back("distributedInfo",
                                "{\"rank\": " + std::to_string(rank) +
                                    ", \"world_size\": " + std::to_string(world_size) + "}");
  return b;
}

template <class... Traces>
std::string reason(const Traces&... traces) {
  std::deque<Links> links;
  std::vector<RankTrace> ranks;
  [[maybe_unused]] const auto add = [&](const Trace& trace) {
    ranks.push_back({trace, links.emplace_back(link(trace))});
  };
  (add(traces.trace), ...);
  return why_not_ranks(ranks);
}

std::optional<int64_t> rank_of_file(const std::string& path) {
  return rank_info(trace_of(path).trace).rank;
}

TEST(SameRun, DistributedInfoComesBeforeTheFileName) {
  const RankInfo info = rank_info(of_rank("dir/rank9.json", 3, 8).trace);
  EXPECT_EQ(info.rank, 3);
  EXPECT_EQ(info.world_size, 8);
}

TEST(SameRun, FileNamesGiveTheNumberAfterTheLastRank) {
  EXPECT_EQ(rank_of_file("a/rank0.json.gz"), 0);
  EXPECT_EQ(rank_of_file("a/Rank_12_trace.json"), 12);
  EXPECT_EQ(rank_of_file("ranks/rank-7.json"), 7);
  EXPECT_EQ(rank_of_file("rank3/trace.json"), std::nullopt);
  EXPECT_EQ(rank_of_file("a/ranking.json"), std::nullopt);
  EXPECT_EQ(rank_of_file("a/trace.json"), std::nullopt);
}

TEST(SameRun, OtherRanksOfOneWorldAreRanks) {
  EXPECT_EQ(reason(of_rank("a", 1, 2), of_rank("b", 0, 2)), "");
  EXPECT_EQ(reason(of_rank("a", 1, 2), of_rank("b", 1, 2)), "a and b are both of rank 1");
  EXPECT_EQ(reason(of_rank("a", 1, 2), of_rank("b", 0, 4)),
            "b says that the run has 4 ranks, another trace says 2");
  EXPECT_EQ(reason(of_rank("a", 2, 2), of_rank("b", 0, 2)), "a says rank 2 of 2 ranks");
  EXPECT_EQ(reason(of_rank("a", 1, 2), trace_of("b")),
            "b does not say which rank it is of, but others do");
}

TEST(SameRun, WithoutRanksTheProgramAndTheTimeDecide) {
  EXPECT_EQ(reason(trace_of("a"), trace_of("b", "aten::mm", 105)), "");
  EXPECT_EQ(reason(trace_of("a"), trace_of("b", "aten::mm", 111)),
            "a and b ran at different times");
  EXPECT_EQ(reason(trace_of("a"), trace_of("b", "aten::add")), "a and b have different ops");
  EXPECT_EQ(reason(trace_of("a")), "");
  EXPECT_EQ(reason(), "");
}

TEST(SameRun, TimesAreComparedOnTheClockThatTracesShare) {
  GpuTrace later = trace_of("b");
  later.trace.base_time_ns = 1000;
  EXPECT_EQ(reason(trace_of("a"), later), "a and b ran at different times");
}

}  // namespace epilogue::trace::same_run_test
