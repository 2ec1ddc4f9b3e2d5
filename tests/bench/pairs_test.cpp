// SPDX-License-Identifier: Apache-2.0
// Medians with intervals, pairs, and processes that disturb.
#include "bench/pairs.h"

#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "bench/disturbance.h"
#include "support/test.h"

namespace epilogue::bench::pairs_test {

std::vector<double> numbers(int n) {
  std::vector<double> v(static_cast<size_t>(n));
  std::iota(v.rbegin(), v.rend(), 1.0);  // in falling order
  return v;
}

// From tables of the binomial distribution: of 20 samples the 6th and the 15th.
TEST(Median, HasTheIntervalOfOrderStatistics) {
  const Median twenty = median_with_interval(numbers(20));
  EXPECT_EQ(twenty.value, 10.5);
  EXPECT_EQ(twenty.low, 6);
  EXPECT_EQ(twenty.high, 15);
  const Median nine = median_with_interval(numbers(9));
  EXPECT_EQ(nine.value, 5);
  EXPECT_EQ(nine.low, 2);
  EXPECT_EQ(nine.high, 8);
}

TEST(Median, OfFewSamplesIsBetweenTheLeastAndTheLargest) {
  for (int n = 1; n <= 6; ++n) {
    const Median m = median_with_interval(numbers(n));
    EXPECT_EQ(m.low, 1) << n;
    EXPECT_EQ(m.high, n) << n;
  }
  EXPECT_EQ(median_with_interval({}).value, 0);
}

// Contenders that say how long they took: a machine that slows down by the round slows both.
TEST(Pairs, AreRatiosOfTheSameRound) {
  double speed = 1;
  const auto contender = [&](double ns) {
    return [&speed, ns](const Block& block) {
      speed *= 1.01;
      return std::vector<double>(static_cast<size_t>(block.samples), ns * 1e9 * speed);
    };
  };
  const std::vector<Contender> contenders = {{"first", contender(2)}, {"second", contender(1)}};
  const std::vector<PairTiming> timings = time_pairs(contenders, 0, 9, 1);
  ASSERT_EQ(timings.size(), 2U);
  EXPECT_EQ(timings[0].ratio.value, 1);
  EXPECT_EQ(timings[1].rounds, 9U);
  EXPECT_NEAR(timings[1].ratio.value, 2, 0.05);
  EXPECT_GT(timings[1].ratio.low, 1.9);
  EXPECT_LT(timings[1].ratio.high, 2.1);
}

// The state of a process, as /proc tells: T stopped, R running.
char state_of(pid_t pid) {
  std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
  std::string id, name;
  char state = '?';
  stat >> id >> name >> state;
  return state;
}

std::vector<pid_t> children() {
  std::ifstream list("/proc/self/task/" + std::to_string(getpid()) + "/children");
  return {std::istream_iterator<pid_t>(list), std::istream_iterator<pid_t>()};
}

int running(const std::vector<pid_t>& pids) {
  return static_cast<int>(
      std::ranges::count_if(pids, [](pid_t pid) { return state_of(pid) == 'R'; }));
}

TEST(Disturbance, RunsInItsScopeAndEndsWithItsOwner) {
  if (children().empty() &&
      !std::ifstream("/proc/self/task/" + std::to_string(getpid()) + "/children"))
    GTEST_SKIP() << "this kernel does not list children";
  {
    const Disturbers all;
    const std::vector<pid_t> pids = children();
    ASSERT_EQ(pids.size(), 2U);
    EXPECT_EQ(running(pids), 0);
    for (const Disturbance kind : kDisturbances) {
      {
        const DisturbanceScope scope(all, kind);
        EXPECT_EQ(running(pids), kind == Disturbance::quiet ? 0 : 1) << disturbance_name(kind);
      }
      for (int wait = 0; wait < 100 && running(pids) > 0; ++wait)
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
      EXPECT_EQ(running(pids), 0) << disturbance_name(kind);
    }
  }
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1) << "a child is left";
}

}  // namespace epilogue::bench::pairs_test
