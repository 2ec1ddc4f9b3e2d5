// SPDX-License-Identifier: Apache-2.0
// Ratios of interleaved pairs, with their interval: what a machine that changes speed between two
// samples does not decide.
#pragma once

#include <vector>

#include "bench/harness.h"

namespace epilogue::bench {

// A median and the interval that holds it with 95 % confidence: order statistics of the binomial,
// which ask nothing of how samples are distributed. With fewer than six samples the interval is all
// of them, which holds less: 94 % of five.
struct Median {
  double value = 0;
  double low = 0;
  double high = 0;
};
Median median_with_interval(std::vector<double> samples);

// One contender beside the first.
struct PairTiming {
  std::string name;
  double min_ns = 0;
  double median_ns = 0;
  Median ratio;  // the first one's time over this one's, round by round: above 1 this one is faster
  double lower_quartile = 0;  // of that
  double upper_quartile = 0;
  size_t rounds = 0;
};

// Every round times each contender for about `block_ms` (one call where that takes longer), in an
// order that rotates, and divides the first one's time by each other's. At least `least_rounds`
// rounds, more while `seconds` last.
std::vector<PairTiming> time_pairs(const std::vector<Contender>& contenders, double seconds,
                                   int least_rounds, double block_ms);

}  // namespace epilogue::bench
