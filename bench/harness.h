// SPDX-License-Identifier: Apache-2.0
// Interleaved timing: contenders take turns in blocks within one run, so that a machine that
// changes speed changes it for all of them.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace epilogue::bench {

struct Contender {
  std::string name;
  std::function<void()> call;
};

struct Timing {
  std::string name;
  double min_ns = 0;
  double median_ns = 0;
  double mad_ns = 0;  // median absolute deviation from the median
  size_t samples = 0;
};

struct Plan {
  double seconds = 1.0;      // for all contenders together
  int calls_per_sample = 1;  // a sample is the mean of so many calls in a row
  int samples_per_block = 5;
  int dropped_per_block = 2;  // first samples after a switch: caches and spinning threads of others
};

// Chooses calls_per_sample so that a sample of the slowest contender takes about `sample_us`.
Plan plan_for(const std::vector<Contender>& contenders, double seconds, double sample_us);

std::vector<Timing> interleave(const std::vector<Contender>& contenders, const Plan& plan);

// A line about machine, threads and instruction set, for every report.
std::string machine_line();

// How steady the machine was: the ratio of the slowest to the fastest of repeated register-only
// loops. Above 1.15 the absolute figures of the run are doubtful (ratios less so).
double noise_probe();

}  // namespace epilogue::bench
