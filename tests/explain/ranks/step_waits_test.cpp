// SPDX-License-Identifier: Apache-2.0
// Who is waited for in each step, worked out by hand.
#include "epilogue/trace/explain.h"
#include "explain/findings/find_finding.h"
#include "explain/gpu_trace.h"
#include "support/test.h"

namespace epilogue::trace::step_waits_test {

using namespace testing;

constexpr char kReduce[] = "ncclDevKernel_AllReduce_Sum_f32_RING_LL";
constexpr int64_t kStep = 1000 * kUs;

// One step of 1 ms after the other, from ProfilerStep#5 on, each with one all-reduce that takes as
// long as `us` says and ends with its step.
GpuTrace rank_of(int64_t rank, int64_t world_size, const std::vector<int64_t>& us) {
  GpuTrace b;
  b.trace.import.path = "run/rank" + std::to_string(rank) + ".json";
  for (size_t s = 0; s < us.size(); ++s) {
    const int64_t start = static_cast<int64_t>(s) * kStep;
    const auto id = static_cast<int64_t>(s) + 1;
    b.annotation("ProfilerStep#" + std::to_string(s + 5), start, start + kStep);
    b.call("cudaLaunchKernelExC", start + kUs, start + 2 * kUs, id);
    b.gpu_kernel(kReduce, start + kStep - us[s] * kUs, start + kStep, id, 20);
  }
  b.trace.metadata.emplace_back("distributedInfo",
                                "{\"rank\": " + std::to_string(rank) +
                                    ", \"world_size\": " + std::to_string(world_size) + "}");
  return b;
}

RanksExplanation explained(const std::vector<GpuTrace>& traces) {
  std::deque<Links> links;
  std::vector<RankTrace> ranks;
  for (const GpuTrace& b : traces) ranks.push_back({b.trace, links.emplace_back(link(b.trace))});
  return explain_ranks(ranks);
}

// Ranks whose all-reduces take as long as each list says.
std::vector<GpuTrace> run_of(const std::vector<std::vector<int64_t>>& us) {
  std::vector<GpuTrace> traces;
  for (size_t r = 0; r < us.size(); ++r)
    traces.push_back(rank_of(static_cast<int64_t>(r), std::ssize(us), us[r]));
  return traces;
}

TEST(StepWaits, TheOthersLoseTheMeanOfTheirWaits) {
  const RanksExplanation e = explained(run_of({{110, 20}, {10, 120}, {210, 320}}));
  const std::vector<StepWaits>& steps = e.collectives.steps;
  ASSERT_EQ(steps.size(), 2u);
  EXPECT_EQ(steps[0].step, 5);
  EXPECT_EQ(steps[0].count, 1);
  EXPECT_EQ(steps[0].span_ns, kStep);
  EXPECT_EQ(steps[0].last_rank, 1);
  EXPECT_EQ(steps[0].lost_ns, 150 * kUs);
  EXPECT_EQ(steps[0].wait_ns, (std::vector<std::optional<int64_t>>{100 * kUs, 0, 200 * kUs}));
  EXPECT_EQ(steps[1].step, 6);
  EXPECT_EQ(steps[1].last_rank, 0);
  EXPECT_EQ(steps[1].lost_ns, 200 * kUs);
  ASSERT_EQ(e.collectives.stragglers.size(), 2u);
  EXPECT_EQ(e.collectives.stragglers[0].rank, 0);
  EXPECT_EQ(e.collectives.stragglers[0].steps, 1);
  EXPECT_EQ(e.collectives.stragglers[0].lost_ns, 200 * kUs);
}

TEST(StepWaits, WhatRunsBesideAWaitIsNotLost) {
  std::vector<GpuTrace> traces = run_of({{10}, {110}});
  traces[1].gpu_kernel("gemm", 900 * kUs, 970 * kUs);  // 40 us of the collective are left
  const StepWaits step = explained(traces).collectives.steps.at(0);
  EXPECT_EQ(step.wait_ns[1], 100 * kUs);
  EXPECT_EQ(step.lost_ns, 40 * kUs) << "890 to 900 and 970 to 1000";
}

TEST(StepWaits, ACollectiveOfDifferentStepsIsLeftOut) {
  std::vector<GpuTrace> traces = run_of({{10, 10}, {110, 110}});
  // Rank 1 launches the second one before its second step begins.
  for (Event& e : traces[1].trace.events)
    if (e.category == Category::cuda_runtime && e.correlation == 2) e.ts_ns -= 500 * kUs;
  const RanksExplanation e = explained(traces);
  ASSERT_EQ(e.collectives.steps.size(), 1u);
  EXPECT_EQ(e.collectives.steps[0].step, 5);
  EXPECT_EQ(e.collectives.waits[0].count, 2) << "matched all the same";
}

// A rank of CPUs: one gloo:all_reduce in each step, posted at the moment that `us` says before the
// step ends.
TraceBuilder gloo_rank(int64_t rank, const std::vector<int64_t>& us) {
  TraceBuilder b;
  b.trace.import.path = "run/rank" + std::to_string(rank) + ".json";
  for (size_t s = 0; s < us.size(); ++s) {
    const int64_t start = static_cast<int64_t>(s) * kStep;
    b.annotation("ProfilerStep#" + std::to_string(s + 5), start, start + kStep);
    b.op("aten::mm", start, start + kStep - us[s] * kUs);
    b.op("c10d::allreduce_", start + kStep - us[s] * kUs, start + kStep - (us[s] - 2) * kUs);
    b.annotation("gloo:all_reduce", start + kStep - us[s] * kUs, start + kStep, 9);
    b.inputs({testing::tensor({1024, 1024})});
  }
  b.trace.metadata.emplace_back("distributedInfo",
                                "{\"rank\": " + std::to_string(rank) + ", \"world_size\": 2}");
  return b;
}

RanksExplanation gloo_run(const std::vector<int64_t>& of_0, const std::vector<int64_t>& of_1) {
  const TraceBuilder a = gloo_rank(0, of_0);
  const TraceBuilder b = gloo_rank(1, of_1);
  const Links links_a = link(a.trace);
  const Links links_b = link(b.trace);
  const std::vector<RankTrace> ranks = {{a.trace, links_a}, {b.trace, links_b}};
  return explain_ranks(ranks);
}

TEST(StepWaits, CollectivesOfCpusAreMatchedByNameAndOrder) {
  const RanksExplanation e = gloo_run({310, 320, 330}, {10, 20, 30});
  EXPECT_TRUE(e.collectives.unmatched.empty());
  ASSERT_EQ(e.collectives.waits.size(), 1u);
  EXPECT_EQ(e.collectives.waits[0].name, "all_reduce");
  EXPECT_EQ(e.collectives.waits[0].count, 3);
  EXPECT_EQ(e.collectives.waits[0].transfer_ns, 60 * kUs);
  EXPECT_EQ(e.ranks[0].wait_ns, 900 * kUs);
  EXPECT_EQ(e.ranks[0].communication_ns, 960 * kUs);
  ASSERT_EQ(e.collectives.steps.size(), 3u);
  EXPECT_EQ(e.collectives.steps[0].last_rank, 1);
  EXPECT_EQ(e.collectives.steps[0].lost_ns, 300 * kUs) << "rank 0 is in no op meanwhile";
  const Finding f = finding_of(e, "straggler");
  EXPECT_EQ(f.title, "rank 1 arrives last: rank 0 waits 900 us in collectives");
  ASSERT_NE(find_finding(e, "communication-overlap"), nullptr);
  EXPECT_EQ(find_finding(e, "communication-overlap")->title,
            "0 % of the communication runs beside ops");
}

// Rank 1 is the last in one of two steps and waits 97 us itself in the other.
TEST(StepWaits, ARankThatWaitsItselfIsNotTheOneThatArrivesLast) {
  const Finding f = finding_of(gloo_run({250, 10}, {50, 107}), "straggler");
  EXPECT_EQ(
      f.title,
      "the ranks wait for each other in collectives: rank 0 200 us, rank 1 97.0 us; none is always "
      "the last");
  EXPECT_FALSE(f.saving_us);
}

TEST(StepWaits, RanksThatArriveTogetherHaveNoLast) {
  const RanksExplanation e = explained(run_of({{50, 50, 50}, {50, 50, 50}}));
  ASSERT_EQ(e.collectives.steps.size(), 3u);
  EXPECT_FALSE(e.collectives.steps[0].last_rank);
  EXPECT_EQ(e.collectives.steps[0].lost_ns, 0);
  EXPECT_TRUE(e.collectives.stragglers.empty());
  EXPECT_EQ(find_finding(e, "persistent-straggler"), nullptr);
  EXPECT_EQ(find_finding(e, "changing-stragglers"), nullptr);
}

TEST(PersistentStraggler, IsTheSameInThreeOfFourSteps) {
  const RanksExplanation e = explained(run_of({{10, 10, 10, 60}, {70, 50, 40, 10}}));
  const Finding f = finding_of(e, "persistent-straggler");
  EXPECT_EQ(f.title,
            "rank 0 is the last in 3 of 4 steps: the others lose 130 us of 4.00 ms (3.2 %)");
  EXPECT_EQ(f.evidence[0],
            "the last: rank 0 in 3 steps, 130 us lost to it; rank 1 in 1 step, 50.0 us lost to it");
  EXPECT_EQ(f.evidence[1], "most is lost in step 5: 60.0 us of 1.00 ms, to rank 0");
  EXPECT_EQ(f.cost_us, 130);
  EXPECT_EQ(f.saving_us, 130);
  EXPECT_EQ(find_finding(e, "changing-stragglers"), nullptr);
}

TEST(PersistentStraggler, SmallLossesAndFewStepsAreNoFinding) {
  // 26 us of each step, then 19: 2 % of 1 ms is the threshold.
  EXPECT_NE(find_finding(explained(run_of({{10, 10, 10}, {36, 36, 36}})), "persistent-straggler"),
            nullptr);
  EXPECT_EQ(find_finding(explained(run_of({{10, 10, 10}, {29, 29, 29}})), "persistent-straggler"),
            nullptr);
  EXPECT_EQ(find_finding(explained(run_of({{10, 10}, {300, 300}})), "persistent-straggler"),
            nullptr);
}

TEST(PersistentStraggler, SavesNothingKnownWhereRanksAreMissing) {
  std::vector<GpuTrace> traces;
  traces.push_back(rank_of(0, 4, {10, 10, 10}));
  traces.push_back(rank_of(2, 4, {90, 90, 90}));
  const Finding f = finding_of(explained(traces), "persistent-straggler");
  EXPECT_EQ(f.cost_us, 240);
  EXPECT_FALSE(f.saving_us);
  EXPECT_EQ(f.evidence[2], "ranks that are not compared may arrive later still");
}

TEST(ChangingStragglers, NoRankIsTheLastInThreeOfFourSteps) {
  const RanksExplanation e = explained(run_of({{10, 50, 10, 60}, {70, 10, 40, 10}}));
  const Finding f = finding_of(e, "changing-stragglers");
  EXPECT_EQ(f.title,
            "no rank is always the last: in 4 steps the others lose 180 us of 4.00 ms (4.5 %)");
  EXPECT_EQ(f.saving_us, 180);
  EXPECT_EQ(find_finding(e, "persistent-straggler"), nullptr);
  EXPECT_EQ(
      find_finding(explained(run_of({{10, 25, 10, 25}, {25, 10, 25, 10}})), "changing-stragglers"),
      nullptr)
      << "15 us of 1 ms are too little";
}

}  // namespace epilogue::trace::step_waits_test
