// SPDX-License-Identifier: Apache-2.0
// Process groups by name and the stages of a pipeline, worked out by hand.
#include "epilogue/trace/explain.h"
#include "explain/findings/find_finding.h"
#include "explain/gpu_trace.h"
#include "support/test.h"

namespace epilogue::trace::process_groups_test {

using namespace testing;

constexpr int64_t kSpan = 1000 * kUs;

// A rank of two that works for `work_us`, then waits in a receive for `wait_us`; the rest of a
// millisecond is idle, but for a last kernel of 1 us.
GpuTrace rank_of(int64_t rank, int64_t work_us, int64_t wait_us, const std::string& description) {
  GpuTrace b;
  b.trace.import.path = "run/rank" + std::to_string(rank) + ".json";
  b.call("cudaLaunchKernel", 0, kUs, 1);
  b.gpu_kernel("ampere_sgemm_128x64_tn", 0, work_us * kUs, 1);
  b.call("cudaLaunchKernel", 2 * kUs, 3 * kUs, 2);
  b.gpu_kernel("ncclDevKernel_SendRecv(ncclDevComm*)", work_us * kUs, (work_us + wait_us) * kUs, 2,
               20);
  b.trace.kernels.back().other_args = b.trace.strings.intern(
      R"({"Collective name": "send_recv", "Process Group Name": "7", "Process Group Ranks": "[0, 1]"})");
  b.call("cudaLaunchKernel", 4 * kUs, 5 * kUs, 3);
  b.gpu_kernel("elementwise", kSpan - kUs, kSpan, 3);
  b.trace.metadata.emplace_back(
      "distributedInfo",
      "{\"rank\": " + std::to_string(rank) +
          ", \"world_size\": 2, \"pg_config\": [{\"pg_name\": \"7\", \"pg_desc\": \"" +
          description + "\", \"pg_size\": 2, \"ranks\": [0, 1]}]}");
  return b;
}

RanksExplanation explained(const GpuTrace& a, const GpuTrace& b) {
  const Links links_a = link(a.trace);
  const Links links_b = link(b.trace);
  const std::vector<RankTrace> ranks = {{a.trace, links_a}, {b.trace, links_b}};
  return explain_ranks(ranks);
}

TEST(ProcessGroups, StagesHaveTheTimesOfTheirRanks) {
  const RanksExplanation e =
      explained(rank_of(0, 900, 0, "mesh_pp"), rank_of(1, 600, 300, "mesh_pp"));
  ASSERT_TRUE(e.collectives.pipeline.has_value());
  const std::vector<PipelineStage>& stages = e.collectives.pipeline->stages;
  ASSERT_EQ(stages.size(), 2u);
  EXPECT_EQ(stages[0].ranks, (std::vector<int64_t>{0}));
  EXPECT_EQ(stages[0].work_ns, 901 * kUs);
  EXPECT_EQ(stages[0].send_recv_ns, 0);
  EXPECT_EQ(stages[0].idle_ns, 99 * kUs);
  EXPECT_EQ(stages[1].work_ns, 601 * kUs);
  EXPECT_EQ(stages[1].send_recv_ns, 300 * kUs);
  EXPECT_EQ(stages[1].idle_ns, 99 * kUs);
  EXPECT_DOUBLE_EQ(e.collectives.pipeline->bubble_pct, 100.0 * 498 / 2000);
  ASSERT_EQ(e.collectives.groups.size(), 1u);
  const GroupTime& group = e.collectives.groups[0];
  EXPECT_EQ(group.name, "mesh_pp");
  EXPECT_EQ(group.parallelism, "pipeline");
  EXPECT_EQ(group.size, 2);
  EXPECT_EQ(group.count, 2);
  EXPECT_EQ(group.members, (std::vector<std::string>{"[0, 1]"}));
  EXPECT_EQ(group.total_ns, 150 * kUs) << "the mean";
  EXPECT_EQ(group.wait_ns, 150 * kUs);
}

TEST(ProcessGroups, AnUnevenPipelineNamesTheStageThatWorksMost) {
  const Finding f =
      finding_of(explained(rank_of(0, 900, 0, "mesh_pp"), rank_of(1, 600, 300, "mesh_pp")),
                 "pipeline-bubbles");
  EXPECT_EQ(f.title, "the pipeline of 2 stages stands still for up to 24.9 % of the time");
  EXPECT_HAS(f.action, "give stage 0 fewer layers");
  EXPECT_EQ(f.cost_us, 249);
}

TEST(ProcessGroups, AnEvenPipelineAsksForMoreMicroBatches) {
  const RanksExplanation e = explained(rank_of(0, 800, 100, "PIPELINE_MODEL_PARALLEL_GROUP"),
                                       rank_of(1, 790, 110, "PIPELINE_MODEL_PARALLEL_GROUP"));
  EXPECT_HAS(finding_of(e, "pipeline-bubbles").action, "more micro-batches");
}

TEST(ProcessGroups, FiveOfAHundredAreALossAndLessIsNot) {
  const auto finding = [](int64_t work_us) {
    const RanksExplanation e =
        explained(rank_of(0, work_us, 0, "mesh_pp"), rank_of(1, work_us, 0, "mesh_pp"));
    return find_finding(e, "pipeline-bubbles") != nullptr;
  };
  EXPECT_TRUE(finding(949)) << "50 us of idle time in 1000";
  EXPECT_FALSE(finding(950));
}

TEST(ProcessGroups, OtherGroupsAreNoPipeline) {
  for (const char* description :
       {"mesh_tp", "default_pg", "undefined", "stopped", "EXPERT_PP_GROUP"}) {
    const RanksExplanation e =
        explained(rank_of(0, 900, 0, description), rank_of(1, 600, 300, description));
    EXPECT_FALSE(e.collectives.pipeline.has_value()) << description;
    ASSERT_EQ(e.collectives.groups.size(), 1u);
  }
  const RanksExplanation e =
      explained(rank_of(0, 900, 0, "undefined"), rank_of(1, 600, 300, "undefined"));
  EXPECT_EQ(e.collectives.groups[0].name, "groups of 2 ranks");
}

}  // namespace epilogue::trace::process_groups_test
