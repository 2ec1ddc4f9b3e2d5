// SPDX-License-Identifier: Apache-2.0
#include "bench/pairs.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <thread>

#include "base/clock.h"
#include "base/median.h"

namespace epilogue::bench {
namespace {

// The largest number of samples that may lie below the interval: 2 P(Binomial(n, 1/2) <= k) <= 5 %.
size_t samples_outside(size_t n) {
  constexpr double kOutside = 0.025;
  double chance = std::pow(0.5, static_cast<double>(n));  // of k heads
  double sum = 0;
  for (size_t k = 0; k < n; ++k) {
    sum += chance;
    if (sum > kOutside) return k;  // k - 1 may lie outside: indices 0 to k - 1
    chance *= static_cast<double>(n - k) / static_cast<double>(k + 1);
  }
  return 0;
}

// Warm-up for caches, and for threads that sleep; a long call warms up by itself.
constexpr double kPairWarmUpNs = 5e6;
constexpr double kLongPairNs = 20e6;

// Threads of a peer spin after its last call (see harness.cpp).
constexpr auto kPairSettle = std::chrono::milliseconds(15);

}  // namespace

Median median_with_interval(std::vector<double> samples) {
  if (samples.empty()) return {};
  std::sort(samples.begin(), samples.end());
  const size_t outside = samples_outside(samples.size());
  const size_t first = outside == 0 ? 0 : outside - 1;
  return {median_of(samples), samples[first], samples[samples.size() - 1 - first]};
}

std::vector<PairTiming> time_pairs(const std::vector<Contender>& contenders, double seconds,
                                   int least_rounds, double block_ms) {
  const size_t n = contenders.size();
  std::vector<Block> blocks;
  for (const Contender& c : contenders) {
    const double ns = c.run({.calls = 1, .samples = 2, .dropped = 0}).back();
    Block block{.calls = 1, .samples = 1, .dropped = 0};
    block.calls = std::clamp(static_cast<int>(block_ms * 1e6 / std::max(ns, 1.0)), 1, 1'000'000);
    // Whoever follows another finds caches full of that one's data.
    if (ns < kLongPairNs)
      block.dropped = static_cast<int>(std::ceil(kPairWarmUpNs / (ns * block.calls)));
    blocks.push_back(block);
  }
  const bool has_pauses =
      std::any_of(contenders.begin(), contenders.end(), [](const Contender& c) { return c.spins; });
  std::vector<std::vector<double>> times(n);
  const int64_t end = monotonic_ns() + static_cast<int64_t>(seconds * 1e9);
  for (int round = 0; round < least_rounds || monotonic_ns() < end; ++round)
    for (size_t k = 0; k < n; ++k) {
      const size_t who = (k + static_cast<size_t>(round)) % n;
      if (has_pauses) std::this_thread::sleep_for(kPairSettle);
      times[who].push_back(contenders[who].run(blocks[who]).front());
    }
  std::vector<PairTiming> timings;
  for (size_t i = 0; i < n; ++i) {
    PairTiming t;
    t.name = contenders[i].name;
    t.rounds = times[i].size();
    t.min_ns = *std::min_element(times[i].begin(), times[i].end());
    t.median_ns = median_of(times[i]);
    std::vector<double> ratios(times[i].size());
    std::transform(times[0].begin(), times[0].end(), times[i].begin(), ratios.begin(),
                   std::divides<>());
    std::sort(ratios.begin(), ratios.end());
    t.lower_quartile = ratios[ratios.size() / 4];
    t.upper_quartile = ratios[(3 * ratios.size()) / 4 - (ratios.size() % 4 == 0 ? 1 : 0)];
    t.ratio = median_with_interval(std::move(ratios));
    timings.push_back(std::move(t));
  }
  return timings;
}

}  // namespace epilogue::bench
