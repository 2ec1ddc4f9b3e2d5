// SPDX-License-Identifier: Apache-2.0
#include "bench/harness.h"
#include "support/test.h"

namespace epilogue::bench::harness_test {

TEST(Harness, ABlockDropsItsFirstSamplesAndAveragesCalls) {
  int calls = 0;
  const Contender c("c", [&] { ++calls; });
  EXPECT_EQ(c.run({.calls = 3, .samples = 4, .dropped = 2}).size(), 4u);
  EXPECT_EQ(calls, 3 * (4 + 2));
}

// Contenders that answer with times of our own choice.
TEST(Harness, TimingsAreMinimumMedianAndDeviationOfTheKeptSamples) {
  std::vector<double> answers = {70, 10, 20, 40};
  size_t next = 0;
  const Contender c("c", [&](const Block& block) {
    std::vector<double> samples;
    for (int i = 0; i < block.samples; ++i) samples.push_back(answers[next++ % answers.size()]);
    return samples;
  });
  // Three rounds of four samples: 10, 20, 40 and 70, three times each. The median is the mean
  // of 20 and 40; deviations from 30 are 20, 10, 10 and 40, of which 10 and 20 are in the middle.
  const auto timings = interleave({c}, {.seconds = 0, .blocks = {{.calls = 1, .samples = 4}}});
  ASSERT_EQ(timings.size(), 1u);
  EXPECT_EQ(timings[0].samples, 12u);
  EXPECT_EQ(timings[0].min_ns, 10);
  EXPECT_EQ(timings[0].median_ns, 30);
  EXPECT_EQ(timings[0].mad_ns, 15);
}

TEST(Harness, BlocksRotateSoThatNobodyAlwaysFollowsTheSameOne) {
  std::string order;
  const auto contender = [&](const std::string& name) {
    return Contender(name, [&order, name](const Block&) {
      order += name;
      return std::vector<double>{1};
    });
  };
  const Block one{.calls = 1, .samples = 1, .dropped = 0};
  const std::vector<Contender> all = {contender("a"), contender("b"), contender("c")};
  interleave(all, {.seconds = 0, .blocks = {one, one, one}});
  EXPECT_EQ(order, "abcbcacab");
}

TEST(Harness, EachContenderGetsBlocksThatFitItsOwnSpeed) {
  const auto contender = [](double ns, bool spins) {
    return Contender(
        "c",
        [ns](const Block& b) { return std::vector<double>(static_cast<size_t>(b.samples), ns); },
        spins);
  };
  const Plan plan = plan_for({contender(1e3, false), contender(2e8, false)}, 1, 500);
  EXPECT_EQ(plan.blocks[0].calls, 500);  // of 1 us each
  EXPECT_EQ(plan.blocks[1].calls, 1);    // of 0.2 s: one call is a sample and its own warm-up
  EXPECT_EQ(plan.blocks[1].samples, 1);
  EXPECT_EQ(plan.blocks[1].dropped, 0);
  EXPECT_EQ(plan.settle_ns, 0);
  // Someone's threads spin: a pause before every block, and blocks that are worth it.
  const Plan paused = plan_for({contender(1e3, false), contender(1e3, true)}, 1, 500);
  EXPECT_GT(paused.settle_ns, 0);
  EXPECT_EQ(paused.blocks[0].samples, 60);  // 30 ms
  EXPECT_EQ(paused.blocks[0].dropped, 4);   // 2 ms
}

}  // namespace epilogue::bench::harness_test
