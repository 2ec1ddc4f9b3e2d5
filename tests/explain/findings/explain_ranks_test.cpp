// SPDX-License-Identifier: Apache-2.0
// Ranks side by side where some are missing, cut off or do not match: bounds and unknowns, never 0.
#include "epilogue/trace/explain.h"

#include "explain/findings/find_finding.h"
#include "explain/gpu_trace.h"
#include "support/test.h"

namespace epilogue::trace::explain_ranks_test {

using namespace testing;

constexpr char kReduceKernel[] = "ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)";

// A rank with one all-reduce of `us` that ends at 1 ms. World size 0: not said.
GpuTrace rank_of(int64_t rank, int64_t us, int64_t world_size) {
  GpuTrace b;
  b.trace.import.path = "runs/rank" + std::to_string(rank) + ".json";
  b.call("cudaLaunchKernelExC", 0, 5 * kUs, 1);
  b.gpu_kernel(kReduceKernel, (1000 - us) * kUs, 1000 * kUs, 1, 20);
  if (world_size > 0)
    b.trace.metadata.emplace_back("distributedInfo",
                                  "{\"rank\": " + std::to_string(rank) +
                                      ", \"world_size\": " + std::to_string(world_size) + "}");
  return b;
}

template <class... Traces>
std::vector<GpuTrace> list_of(Traces... traces) {
  std::vector<GpuTrace> list;
  (list.push_back(std::move(traces)), ...);
  return list;
}

RanksExplanation explained(const std::vector<GpuTrace>& traces) {
  std::deque<Links> links;
  std::vector<RankTrace> ranks;
  for (const GpuTrace& b : traces) ranks.push_back({b.trace, links.emplace_back(link(b.trace))});
  return explain_ranks(ranks);
}

TEST(ExplainRanks, AWholeWorldHasExactWaits) {
  const RanksExplanation e = explained(list_of(rank_of(0, 100, 2), rank_of(1, 700, 2)));
  EXPECT_EQ(e.world_size, 2);
  EXPECT_TRUE(e.missing.empty());
  EXPECT_TRUE(e.has_all_ranks());
  EXPECT_EQ(e.ranks[1].wait_ns, 600 * kUs);
  EXPECT_EQ(e.ranks[1].communication_ns, 700 * kUs);
  EXPECT_EQ(find_finding(e, "missing-ranks"), nullptr);
  const Finding last = finding_of(e, "straggler");
  EXPECT_EQ(last.title, "rank 0 arrives last: rank 1 waits 600 us in collectives");
  EXPECT_EQ(last.saving_us, 600);
}

TEST(ExplainRanks, MissingRanksAreNamedAndWaitsAreBounds) {
  const RanksExplanation e =
      explained(list_of(rank_of(1, 100, 8), rank_of(2, 700, 8), rank_of(5, 400, 8)));
  EXPECT_EQ(e.missing, (std::vector<RankRange>{{0, 0}, {3, 4}, {6, 7}}));
  const Finding* missing = find_finding(e, "missing-ranks");
  ASSERT_NE(missing, nullptr);
  EXPECT_EQ(missing->title, "3 of 8 ranks are here, missing: 0, 3 to 4, 6 to 7");
  EXPECT_EQ(missing, &e.findings.front());
  const Finding last = finding_of(e, "straggler");
  EXPECT_EQ(last.title,
            "rank 1 arrives last of those compared: rank 2 waits at least 600 us in collectives");
  EXPECT_EQ(
      last.evidence,
      std::vector<std::string>{
          "all_reduce: 1 matched, at most 100 us of transfer, one rank waits at least 600 us"});
  EXPECT_FALSE(last.saving_us);
}

TEST(ExplainRanks, AWorldOfAnySizeIsCountedInRanges) {
  const RanksExplanation e = explained(list_of(rank_of(0, 1, 1LL << 62), rank_of(1, 1, 1LL << 62)));
  EXPECT_EQ(e.missing, (std::vector<RankRange>{{2, (1LL << 62) - 1}}));
  const RanksExplanation one = explained(list_of(rank_of(0, 1, 2)));
  EXPECT_EQ(find_finding(one, "missing-ranks")->title, "1 of 2 ranks is here, missing: 1");
}

TEST(ExplainRanks, AnUnknownWorldIsSaidToBeUnknown) {
  const RanksExplanation whole = explained(list_of(rank_of(3, 100, 0), rank_of(4, 700, 0)));
  EXPECT_FALSE(whole.world_size);
  EXPECT_TRUE(whole.missing.empty());
  ASSERT_NE(find_finding(whole, "world-size-unknown"), nullptr);
  EXPECT_EQ(find_finding(whole, "world-size-unknown")->title,
            "no trace says how many ranks the run had; 2 ranks are here");
  const RanksExplanation gap = explained(list_of(rank_of(3, 100, 0), rank_of(7, 700, 0)));
  EXPECT_EQ(gap.missing, (std::vector<RankRange>{{4, 6}}));
  ASSERT_NE(find_finding(gap, "missing-ranks"), nullptr);
  EXPECT_EQ(find_finding(gap, "missing-ranks")->title,
            "2 ranks are here, missing between them: 4 to 6");
}

TEST(ExplainRanks, WhatACutOffRankLostIsUnknown) {
  std::vector<GpuTrace> traces = list_of(rank_of(0, 100, 3), rank_of(1, 700, 3));
  GpuTrace& cut = traces.emplace_back();
  cut.op("aten::mm", 0, 10);
  cut.trace.import.path = "runs/rank2.json";
  cut.trace.import.is_truncated = true;
  cut.trace.metadata.emplace_back("distributedInfo", R"({"rank": 2, "world_size": 3})");
  const RanksExplanation e = explained(traces);
  EXPECT_FALSE(e.has_all_ranks());
  EXPECT_EQ(e.ranks[1].wait_ns, 600 * kUs) << "the other two are compared";
  EXPECT_FALSE(e.ranks[2].wait_ns);
  EXPECT_FALSE(e.ranks[2].communication_ns);
  EXPECT_FALSE(e.ranks[2].bound);
  const Finding f = finding_of(e, "truncated-rank");
  EXPECT_EQ(f.title, "the trace of rank 2 ends early: its collectives are not matched");
}

// Rank 2 waits least of all, but nobody waits for it.
TEST(ExplainRanks, TheLastRankIsLookedForWithinAGroup) {
  std::vector<GpuTrace> traces =
      list_of(rank_of(0, 900, 4), rank_of(1, 100, 4), rank_of(2, 50, 4), rank_of(3, 60, 4));
  for (size_t r = 0; r < 4; ++r) {
    Trace& trace = traces[r].trace;
    trace.kernels.back().other_args = trace.strings.intern(
        std::string(R"({"Collective name": "allreduce", "Process Group Ranks": ")") +
        (r < 2 ? "[0, 1]" : "[2, 3]") + R"("})");
  }
  const Finding last = finding_of(explained(traces), "straggler");
  EXPECT_EQ(last.title, "rank 1 arrives last of [0, 1]: rank 0 waits 800 us in collectives");
  EXPECT_EQ(
      last.evidence,
      std::vector<std::string>{
          "all_reduce: 1 matched on ranks [0, 1], 100 us of transfer, up to 800 us of waiting"});
}

TEST(ExplainRanks, WaitsOfUnmatchedCollectivesAreUnknown) {
  std::vector<GpuTrace> traces = list_of(rank_of(0, 100, 2), rank_of(1, 700, 2));
  traces[1].gpu_kernel(kReduceKernel, 1100 * kUs, 1200 * kUs);
  const RanksExplanation e = explained(traces);
  EXPECT_FALSE(e.ranks[0].wait_ns);
  EXPECT_EQ(e.ranks[1].communication_ns, 800 * kUs);
  const Finding f = finding_of(e, "unmatched-collectives");
  EXPECT_EQ(f.title,
            "how long ranks wait in all_reduce is unknown: not all ranks ran it equally often");
  EXPECT_EQ(f.evidence, (std::vector<std::string>{"rank 0: 1", "rank 1: 2", f.action}));
}

}  // namespace epilogue::trace::explain_ranks_test
