// SPDX-License-Identifier: Apache-2.0
// How ranks are shown: what is a bound says so, what is unknown is "-" or null.
#include <nlohmann/json.hpp>

#include "epilogue/trace/explain.h"
#include "epilogue/trace/report.h"
#include "explain/render/has_text.h"
#include "support/test.h"

namespace epilogue::trace::ranks_document_test {

using testing::has_text;

// Two whole ranks of `world_size`, one all-reduce each.
RanksExplanation two_ranks(int64_t world_size) {
  RanksExplanation e;
  for (const int64_t rank : {0, 1}) {
    RankSummary& s = e.ranks.emplace_back();
    s.path = "run/rank" + std::to_string(rank) + ".json";
    s.rank = rank;
    s.bound = Bound::sync;
    s.span_ns = 1'000'000;
    s.communication_ns = 100'000 + rank * 600'000;
    s.overlap_ns = 0;
    s.wait_ns = rank * 600'000;
    e.collectives.ranks.emplace_back().rank = rank;
  }
  e.world_size = world_size;
  if (world_size > 2) e.missing = {{2, world_size - 1}};
  e.collectives.waits = {{"all_reduce", 1, 100'000, {0, 600'000}}};
  return e;
}

TEST(RanksDocument, AWholeWorldIsShownAsItIs) {
  const std::string text = ranks_text(two_ranks(2));
  EXPECT_TRUE(text.starts_with("2 ranks\n")) << text;
  EXPECT_TRUE(has_text(text, "Collectives on all ranks")) << text;
  EXPECT_FALSE(has_text(text, "at least")) << text;
  EXPECT_FALSE(has_text(text, "at most")) << text;
}

TEST(RanksDocument, WithMissingRanksTimesAreBounds) {
  const std::string text = ranks_text(two_ranks(8));
  EXPECT_TRUE(text.starts_with("2 of 8 ranks\n")) << text;
  EXPECT_TRUE(has_text(text, "waiting at least")) << text;
  EXPECT_TRUE(has_text(text, "transfer at most")) << text;
  EXPECT_FALSE(has_text(text, "all ranks")) << text;
  const auto parsed = nlohmann::json::parse(ranks_json(two_ranks(8)));
  EXPECT_EQ(parsed["world_size"], 8);
  EXPECT_EQ(parsed["has_all_ranks"], false);
  EXPECT_EQ(parsed["missing_ranks"][0]["first"], 2);
  EXPECT_EQ(parsed["missing_ranks"][0]["last"], 7);
  EXPECT_EQ(parsed["ranks"][1]["wait_us"], 600.0);
}

TEST(RanksDocument, WhatIsUnknownIsNotZero) {
  RanksExplanation e = two_ranks(3);
  e.missing.clear();
  RankSummary& cut = e.ranks.emplace_back();
  cut.path = "run/rank2.json";
  cut.rank = 2;
  cut.is_truncated = true;
  e.collectives.ranks.emplace_back().rank = 2;
  e.collectives.waits[0].wait_ns.emplace_back();
  const std::string text = ranks_text(e);
  EXPECT_TRUE(has_text(text, "     2     0 ns     -              -       -                 -  -"))
      << text;
  EXPECT_TRUE(has_text(text, "0 ns, 600 us, -")) << text;
  const auto parsed = nlohmann::json::parse(ranks_json(e));
  for (const char* key : {"communication_us", "overlap_us", "wait_us", "gpu_busy_pct", "verdict"})
    EXPECT_TRUE(parsed["ranks"][2][key].is_null()) << key;
  EXPECT_TRUE(parsed["ranks"][2]["is_truncated"]);
  EXPECT_TRUE(parsed["waits"][0]["wait_us"][2].is_null());
}

TEST(RanksDocument, BandwidthsAreShownWhereSizesAreRecorded) {
  RanksExplanation e = two_ranks(2);
  EXPECT_TRUE(has_text(ranks_text(e), "The sizes of these collectives are not recorded"));
  EXPECT_TRUE(nlohmann::json::parse(ranks_json(e))["waits"][0]["algbw_gb_per_s"].is_null());
  e.collectives.waits[0].rates = CollectiveRates{1, 16, 24};
  e.collectives.waits[0].group = "[0, 1]";
  const std::string text = ranks_text(e);
  EXPECT_TRUE(has_text(text, "all_reduce [0, 1]      1    100 us  16.0 GB/s  24.0 GB/s  0 ns"))
      << text;
  EXPECT_TRUE(has_text(text, "as nccl-tests defines them, by the time of the transfer alone"));
  const auto waits = nlohmann::json::parse(ranks_json(e))["waits"][0];
  EXPECT_EQ(waits["busbw_gb_per_s"], 24.0);
  EXPECT_EQ(waits["group"], "[0, 1]");
  e.collectives.waits[0].rates->busbw_gb_s.reset();
  EXPECT_TRUE(has_text(ranks_text(e), "16.0 GB/s      -  0 ns")) << ranks_text(e);
}

TEST(RanksDocument, TimeOfTheDeviceAndKernelsOverRanks) {
  RanksExplanation e = two_ranks(2);
  EXPECT_FALSE(has_text(ranks_text(e), "Time of the device"));
  e.ranks[0].time = DeviceTime{500'000, 250'000, 50'000, 200'000};
  for (const int64_t us : {30, 20, 10}) {
    KernelOverRanks& k = e.kernels.emplace_back();
    k.name = "kernel" + std::to_string(us);
    k.count = 4;
    k.ranks = 1;
    k.total_ns = us * 1000;
    k.mean_ns = us * 500;
    k.max_ns = us * 1000;
    k.max_rank = 1;
  }
  const std::string text = ranks_text(e, {.top = 2});
  EXPECT_TRUE(has_text(text, "     0  500 us 50.0 %  250 us 25.0 %  50.0 us  5.0 %  200 us 20.0 %"))
      << text;
  EXPECT_TRUE(has_text(text, "     1              -              -               -              -"))
      << text;
  EXPECT_TRUE(
      has_text(text, "kernel30  memory      4      1        15.0 us   0 ns        -  30.0 us"))
      << text;
  EXPECT_TRUE(has_text(text, "kernel20") && has_text(text, "and 1 more")) << text;
  EXPECT_FALSE(has_text(text, "kernel10")) << text;
  const auto parsed = nlohmann::json::parse(ranks_json(e));
  EXPECT_EQ(parsed["kernels"].size(), 3u);
  EXPECT_TRUE(parsed["kernels"][0]["min_rank"].is_null());
  EXPECT_EQ(parsed["kernels"][0]["max_us"], 30.0);
  EXPECT_EQ(parsed["ranks"][0]["device_time"]["compute_us"], 500.0);
  EXPECT_TRUE(parsed["ranks"][1]["device_time"].is_null());
}

TEST(RanksDocument, StepsThatLoseMostComeFirst) {
  RanksExplanation e = two_ranks(2);
  EXPECT_FALSE(has_text(ranks_text(e), "Stragglers over steps"));
  e.collectives.steps = {{7, 1'000'000, 3, 1, 20'000, {20'000, 0}},
                         {8, 1'000'000, 3, 0, 600'000, {0, 600'000}},
                         {9, 1'000'000, 3, std::nullopt, 0, {0, std::nullopt}}};
  e.collectives.stragglers = {{0, 1, 600'000}, {1, 1, 20'000}};
  const std::string text = ranks_text(e, {.top = 2});
  EXPECT_TRUE(has_text(text,
                       "  step     time  last rank     lost   share  collectives\n"
                       "     8  1.00 ms          0   600 us  60.0 %            3\n"
                       "     7  1.00 ms          1  20.0 us   2.0 %            3\n"
                       "  and 1 more\n"))
      << text;
  const auto parsed = nlohmann::json::parse(ranks_json(e));
  EXPECT_EQ(parsed["steps"][0]["step"], 7) << "by number";
  EXPECT_EQ(parsed["steps"][1]["last_rank"], 0);
  EXPECT_EQ(parsed["steps"][1]["lost_us"], 600.0);
  EXPECT_EQ(parsed["steps"][1]["wait_us"][1], 600.0);
  EXPECT_TRUE(parsed["steps"][2]["last_rank"].is_null());
  EXPECT_TRUE(parsed["steps"][2]["wait_us"][1].is_null());
  EXPECT_EQ(parsed["stragglers"][0]["steps"], 1);
  EXPECT_EQ(parsed["stragglers"][0]["lost_us"], 600.0);
}

TEST(RanksDocument, NothingMatchedIsSaid) {
  RanksExplanation e = two_ranks(2);
  e.collectives.waits.clear();
  e.collectives.unmatched = {"all_reduce"};
  for (RankSummary& r : e.ranks) r.wait_ns.reset();
  EXPECT_TRUE(has_text(ranks_text(e), "No collective is matched between ranks")) << ranks_text(e);
  EXPECT_EQ(nlohmann::json::parse(ranks_json(e))["unmatched"][0], "all_reduce");
}

}  // namespace epilogue::trace::ranks_document_test
