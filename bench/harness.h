// SPDX-License-Identifier: Apache-2.0
// Interleaved timing: contenders take turns in blocks within one run, so that a machine that
// changes speed changes it for all of them.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace epilogue::bench {

// A contender's work when it is its turn. A sample is the mean of `calls` calls in a row.
struct Block {
  int calls = 1;
  int samples = 5;
  int dropped = 2;  // samples before those, not kept: caches, clocks and threads that must wake up
};

// Calls a block of samples here: nanoseconds per call, one number per kept sample.
std::vector<double> run_block(const std::function<void()>& call, const Block& block);

struct Contender {
  // Runs a block; returns nanoseconds per call, one number per kept sample.
  using RunBlock = std::function<std::vector<double>(const Block&)>;

  // One that is called here, and one that runs its blocks elsewhere. `spins`: its threads spin for
  // a while after its last call, as OpenMP's do.
  Contender(std::string name, std::function<void()> call, bool spins = false);
  Contender(std::string name, RunBlock run, bool spins = false);
  // One whose calls return before their work is done: `wait` ends every sample.
  Contender(std::string name, std::function<void()> call, std::function<void()> wait);

  std::string name;
  RunBlock run;
  bool spins;
};

struct Timing {
  std::string name;
  double min_ns = 0;
  double median_ns = 0;
  double mad_ns = 0;  // median absolute deviation from the median
  size_t samples = 0;
};

struct Plan {
  double seconds = 1.0;       // for all contenders together; three rounds at least
  std::vector<Block> blocks;  // one per contender
  int64_t settle_ns = 0;      // pause before each block, for threads of others to fall asleep
};

// A `sample_us` that is long against the clock's resolution and a call through a pipe, short
// against a machine's moods.
inline constexpr double kSampleUs = 500;

// Chooses blocks whose samples take about `sample_us` each, or one call where that takes longer.
Plan plan_for(const std::vector<Contender>& contenders, double seconds, double sample_us);

std::vector<Timing> interleave(const std::vector<Contender>& contenders, const Plan& plan);

// A line about machine, threads and instruction set, for every report.
std::string machine_line();

// How steady the machine was: the ratio of the slowest to the fastest of repeated register-only
// loops. Above 1.15 the absolute figures of the run are doubtful (ratios less so).
double noise_probe();

}  // namespace epilogue::bench
