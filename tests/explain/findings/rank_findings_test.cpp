// SPDX-License-Identifier: Apache-2.0
// Ranks of CPUs: what is found in their own traces stands in the answer for all, by time; ranks
// that work by turns.
#include "epilogue/trace/explain.h"
#include "explain/findings/explain_ranks.h"
#include "explain/findings/find_finding.h"
#include "explain/findings/op_sequence.h"
#include "explain/ranks/rank_digest.h"
#include "support/test.h"

namespace epilogue::trace::rank_findings_test {

using namespace testing;

// Times of one step, in microseconds: a wait before the work, the work, and a wait behind it.
struct Step {
  int64_t before = 0;
  int64_t power = 0;  // aten::pow of a whole exponent
  int64_t work = 0;
  int64_t behind = 0;
};

OpSequence rank_of(int64_t rank, int64_t world, const Step& step) {
  OpSequence b;
  b.trace.import.path = "run/rank" + std::to_string(rank) + ".json";
  const auto wait = [&](std::string_view name, int64_t us) {
    b.annotation(name, b.at_us * kUs, (b.at_us + us) * kUs, 9);
    b.at_us += us;
  };
  for (int i = 0; i < 4; ++i) {
    wait("gloo:all_reduce", step.before);
    if (step.power > 0) b.add("aten::pow", step.power, {tensor({800, 50}), scalar("12")});
    b.add("aten::mm", step.work, {tensor({256, 256}), tensor({256, 256})});
    wait("gloo:broadcast", step.behind);
    b.end_step();
  }
  b.trace.metadata.emplace_back(
      "distributedInfo",
      "{\"rank\": " + std::to_string(rank) + ", \"world_size\": " + std::to_string(world) + "}");
  return b;
}

RanksExplanation explained(const std::vector<Step>& steps) {
  std::deque<OpSequence> traces;
  std::deque<Links> links;
  std::vector<RankTrace> ranks;
  for (size_t r = 0; r < steps.size(); ++r) {
    const OpSequence& b =
        traces.emplace_back(rank_of(static_cast<int64_t>(r), std::ssize(steps), steps[r]));
    ranks.push_back({b.trace, links.emplace_back(link(b.trace))});
  }
  return explain_ranks(ranks);
}

TEST(RankFindings, WhatIsFoundOnTheRanksAloneStandsAmongTheFindings) {
  const RanksExplanation e = explained({{20, 600, 400, 20}, {10, 610, 400, 20}});
  const Finding* f = find_finding(e, "long-op");
  ASSERT_NE(f, nullptr);
  EXPECT_EQ(f->evidence.front(), "on ranks 0 and 1 alike; times are those of one rank");
  EXPECT_HAS(f->action, "square and multiply");
  EXPECT_TRUE(f->claims.empty());
  EXPECT_EQ(find_finding(e, "verdict"), nullptr) << "each rank has its own";
  const Finding* overlap = find_finding(e, "communication-overlap");
  ASSERT_NE(overlap, nullptr);
  EXPECT_LT(f, overlap) << "the largest time comes first";
}

TEST(RankFindings, WhatOneRankHasAloneSaysSo) {
  const Finding f = finding_of(explained({{10, 600, 400, 20}, {610, 0, 400, 20}}), "long-op");
  EXPECT_EQ(f.evidence.front(), "on rank 0; on rank 1 it takes less, or is not there");
  const RanksExplanation none = explained({{20, 0, 400, 20}, {10, 0, 400, 20}});
  EXPECT_EQ(find_finding(none, "long-op"), nullptr);
}

// Ranks of one program: `python_us` of Python in each step, and a wait for the other rank.
OpSequence python_rank(int64_t rank, int64_t python_us, int64_t wait_us) {
  OpSequence b;
  b.trace.import.path = "run/rank" + std::to_string(rank) + ".json";
  for (int i = 0; i < 4; ++i) {
    b.annotation("gloo:all_reduce", b.at_us * kUs, (b.at_us + wait_us) * kUs, 9);
    b.at_us += wait_us;
    b.add("aten::mm", 500, {tensor({256, 256}), tensor({256, 256})});
    b.event(Category::python_function, "train.py(3): collate", b.at_us * kUs,
            (b.at_us + python_us) * kUs);
    b.at_us += python_us;
    b.add("aten::relu", 100, {tensor({256, 256})});
    b.end_step();
  }
  b.trace.metadata.emplace_back("distributedInfo",
                                "{\"rank\": " + std::to_string(rank) + ", \"world_size\": 2}");
  return b;
}

TEST(RankFindings, PythonOfARankThatWaitsIsItsWait) {
  const auto run = [](int64_t python0, int64_t wait0, int64_t python1, int64_t wait1) {
    const OpSequence a = python_rank(0, python0, wait0);
    const OpSequence b = python_rank(1, python1, wait1);
    const Links links_a = link(a.trace);
    const Links links_b = link(b.trace);
    const std::vector<RankTrace> ranks = {{a.trace, links_a}, {b.trace, links_b}};
    return explain_ranks(ranks);
  };
  EXPECT_NE(find_finding(run(600, 10, 10, 600), "between-ops"), nullptr)
      << "the late rank's own Python";
  EXPECT_EQ(find_finding(run(10, 10, 400, 600), "between-ops"), nullptr)
      << "it waits, and the other has none";
}

TEST(RankFindings, TheFirstTwoAndTheLastRankAreLookedAt) {
  const Step slow = {10, 600, 400, 20};
  const Step fast = {610, 0, 400, 20};
  const Finding f = finding_of(explained({slow, fast, slow, slow}), "long-op");
  EXPECT_EQ(f.evidence.front(), "on rank 0 and 3; on rank 1 it takes less, or is not there");
}

TEST(RankFindings, RanksThatWorkByTurnsAreNamed) {
  const RanksExplanation e = explained({{10, 0, 500, 500}, {510, 0, 490, 10}});
  const Finding f = finding_of(e, "rank-turns");
  EXPECT_HAS(f.action, "micro-batches");
  EXPECT_NEAR(*f.cost_us, 4 * 520, 4 * 20);
  EXPECT_EQ(find_finding(e, "straggler"), nullptr) << "the turns say it";
  EXPECT_EQ(find_finding(explained({{10, 0, 900, 100}, {110, 0, 890, 10}}), "rank-turns"), nullptr)
      << "both work most of the time";
  EXPECT_EQ(find_finding(explained({{10, 0, 900, 10}, {710, 0, 200, 10}}), "rank-turns"), nullptr)
      << "one of them never waits";
}

// Steps of DDP on a rank: gradients in the backward pass, and `after_us` behind the optimizer.
OpSequence ddp_rank(int64_t rank, int64_t gradients_us, int64_t after_us) {
  OpSequence b;
  b.trace.import.path = "run/rank" + std::to_string(rank) + ".json";
  const auto reduce = [&](int64_t us) {
    b.annotation("gloo:all_reduce", b.at_us * kUs, (b.at_us + us) * kUs, 9);
    b.at_us += us;
  };
  for (int i = 0; i < 4; ++i) {
    b.annotation("DistributedDataParallel.forward", b.at_us * kUs, (b.at_us + 100) * kUs);
    b.add("aten::mm", 500, {tensor({256, 256}), tensor({256, 256})});
    reduce(gradients_us);
    b.annotation("Optimizer.step#SGD.step", b.at_us * kUs, (b.at_us + 10) * kUs);
    b.at_us += 10;
    if (after_us > 0) reduce(after_us);
    b.end_step();
  }
  b.trace.metadata.emplace_back("distributedInfo",
                                "{\"rank\": " + std::to_string(rank) + ", \"world_size\": 2}");
  return b;
}

RanksExplanation ddp_run(int64_t gradients_us, int64_t after_us) {
  const OpSequence a = ddp_rank(0, gradients_us, after_us);
  const OpSequence b = ddp_rank(1, gradients_us, after_us);
  const Links links_a = link(a.trace);
  const Links links_b = link(b.trace);
  const std::vector<RankTrace> ranks = {{a.trace, links_a}, {b.trace, links_b}};
  return explain_ranks(ranks);
}

TEST(RankFindings, TheCollectiveThatTakesMostSaysHowToSendLess) {
  const RanksExplanation e = ddp_run(300, 0);
  const Finding* f = find_finding(e, "collective-cost");
  ASSERT_NE(f, nullptr);
  EXPECT_EQ(f->title.find("all_reduce takes 1.20 ms of"), 0U) << f->title;
  EXPECT_HAS(f->action, "bf16_compress_hook");
  const Finding* overlap = find_finding(e, "communication-overlap");
  ASSERT_NE(overlap, nullptr);
  EXPECT_LT(f, overlap) << "it has no saving of its own";
  EXPECT_EQ(find_finding(ddp_run(30, 0), "collective-cost"), nullptr) << "little";
}

TEST(RankFindings, WeightsThatDdpKeepsEqualNeedNoAverage) {
  const Finding f = finding_of(ddp_run(100, 300), "collective-cost");
  EXPECT_HAS(f.action, "weights stay equal");
  EXPECT_EQ(f.evidence[1].find("4 of them come after a step of the optimizer"), 0U)
      << f.evidence[1];
}

// Steps of a rank, which is in `work` for so long, posts a collective, and waits.
OpSequence posting_rank(int64_t rank, int64_t work_us, int64_t post_us) {
  OpSequence b;
  b.trace.import.path = "run/rank" + std::to_string(rank) + ".json";
  for (int i = 0; i < 4; ++i) {
    b.add("aten::mm", work_us, {tensor({256, 256}), tensor({256, 256})});
    b.add("c10d::allgather_", post_us);
    b.annotation("gloo:all_gather", b.at_us * kUs, ((i + 1) * 1000) * kUs, 9);
    b.at_us = (i + 1) * 1000;
    b.end_step();
  }
  b.trace.metadata.emplace_back("distributedInfo",
                                "{\"rank\": " + std::to_string(rank) + ", \"world_size\": 2}");
  return b;
}

RanksExplanation posted(const OpSequence& a, const OpSequence& b,
                        std::vector<std::string> left_out = {}) {
  const Links links_a = link(a.trace);
  const Links links_b = link(b.trace);
  RankDigests digests;
  digests.add({a.trace, links_a});
  digests.add({b.trace, links_b});
  return explain_ranks(digests, std::move(left_out));
}

TEST(RankFindings, ACollectiveIsNoWorkToGiveAway) {
  const RanksExplanation posts = posted(posting_rank(0, 300, 10), posting_rank(1, 300, 400));
  const Finding* f = find_finding(posts, "persistent-straggler");
  ASSERT_NE(f, nullptr);
  EXPECT_EQ(f->action.find("c10d::"), std::string::npos) << f->action;
  const RanksExplanation works = posted(posting_rank(0, 300, 10), posting_rank(1, 700, 10));
  ASSERT_NE(f = find_finding(works, "persistent-straggler"), nullptr);
  EXPECT_EQ(f->action.find("look at aten::mm on rank 1: give it less"), 0U) << f->action;
}

TEST(RankFindings, AFileThatIsNoRankStandsFirstOnlyIfARankMayBeMissing) {
  const auto first_of = [](int64_t other) {
    return posted(posting_rank(0, 300, 10), posting_rank(other, 700, 10), {"notes.json: no trace"})
        .findings.front()
        .id;
  };
  EXPECT_NE(first_of(1), "left-out-files") << "both ranks are here";
  const RanksExplanation missing =
      posted(posting_rank(0, 300, 10), posting_rank(2, 700, 10), {"notes.json: no trace"});
  const Finding* left_out = find_finding(missing, "left-out-files");
  const Finding* last = find_finding(missing, "persistent-straggler");
  ASSERT_NE(left_out, nullptr);
  ASSERT_NE(last, nullptr);
  EXPECT_LT(left_out, last) << "it may be rank 1";
}

}  // namespace epilogue::trace::rank_findings_test
