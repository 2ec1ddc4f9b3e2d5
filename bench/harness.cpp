// SPDX-License-Identifier: Apache-2.0
#include "bench/harness.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <thread>

#include "base/clock.h"
#include "base/cpu_features.h"
#include "base/median.h"
#include "base/thread_pool.h"

namespace epilogue::bench {
namespace {

// OpenMP's threads spin after their last call: libgomp's for 300,000 pauses, about 14 ms where a
// pause takes 140 cycles.
constexpr int64_t kSettleNs = 15'000'000;
// Beside such a pause a block must be long to be worth it, and the clock has to come up again.
constexpr double kLongBlockNs = 30e6;
constexpr double kWarmUpNs = 2e6;
// A call this long is its own warm-up.
constexpr double kLongCallNs = 100e6;

double least(const std::vector<double>& v) { return *std::min_element(v.begin(), v.end()); }

void wait_for_nothing() {}

template <class Wait>
std::vector<double> run_here(const std::function<void()>& call, const Block& block, Wait&& wait) {
  std::vector<double> samples;
  for (int i = 0; i < block.dropped + block.samples; ++i) {
    const int64_t start = monotonic_ns();
    for (int k = 0; k < block.calls; ++k) call();
    wait();
    if (i >= block.dropped)
      samples.push_back(static_cast<double>(monotonic_ns() - start) / block.calls);
  }
  return samples;
}

Block block_for(const Contender& contender, double wanted_ns, bool has_pauses) {
  // The first call packs weights and plans.
  double call_ns = least(contender.run({.calls = 1, .samples = 1, .dropped = 0}));
  if (call_ns < kLongCallNs)
    call_ns = least(contender.run({.calls = 3, .samples = 3, .dropped = 1}));
  Block block;
  block.calls = std::clamp(static_cast<int>(wanted_ns / std::max(call_ns, 1.0)), 1, 1'000'000);
  const double sample_ns = std::max(call_ns * block.calls, 1.0);
  if (has_pauses) {
    block.samples = std::clamp(static_cast<int>(kLongBlockNs / sample_ns), 1, 100);
    block.dropped = std::clamp(static_cast<int>(kWarmUpNs / sample_ns), 1, 100);
  }
  if (sample_ns >= kLongCallNs) {
    block.samples = 1;
    block.dropped = 0;
  }
  return block;
}

Timing timing_of(const std::string& name, std::vector<double> samples) {
  Timing t;
  t.name = name;
  t.samples = samples.size();
  t.min_ns = least(samples);
  t.median_ns = median_of(samples);
  for (double& s : samples) s = std::abs(s - t.median_ns);
  t.mad_ns = median_of(samples);
  return t;
}

}  // namespace

std::vector<double> run_block(const std::function<void()>& call, const Block& block) {
  return run_here(call, block, wait_for_nothing);
}

Contender::Contender(std::string name_, std::function<void()> call, bool spins_)
    : name(std::move(name_)),
      run([call = std::move(call)](const Block& block) {
        return run_here(call, block, wait_for_nothing);
      }),
      spins(spins_) {}

Contender::Contender(std::string name_, std::function<void()> call, std::function<void()> wait)
    : name(std::move(name_)),
      run([call = std::move(call), wait = std::move(wait)](const Block& block) {
        return run_here(call, block, wait);
      }),
      spins(false) {}

Contender::Contender(std::string name_, RunBlock run_, bool spins_)
    : name(std::move(name_)), run(std::move(run_)), spins(spins_) {}

Plan plan_for(const std::vector<Contender>& contenders, double seconds, double sample_us) {
  Plan plan;
  plan.seconds = seconds;
  const bool has_pauses =
      std::any_of(contenders.begin(), contenders.end(), [](const Contender& c) { return c.spins; });
  plan.settle_ns = has_pauses ? kSettleNs : 0;
  for (const Contender& c : contenders)
    plan.blocks.push_back(block_for(c, sample_us * 1e3, has_pauses));
  return plan;
}

std::vector<Timing> interleave(const std::vector<Contender>& contenders, const Plan& plan) {
  std::vector<std::vector<double>> samples(contenders.size());
  const int64_t end = monotonic_ns() + static_cast<int64_t>(plan.seconds * 1e9);
  for (size_t round = 0; round < 3 || monotonic_ns() < end; ++round) {
    for (size_t k = 0; k < contenders.size(); ++k) {
      const size_t who = (k + round) % contenders.size();  // nobody always follows the same one
      if (plan.settle_ns > 0) std::this_thread::sleep_for(std::chrono::nanoseconds(plan.settle_ns));
      const std::vector<double> block = contenders[who].run(plan.blocks[who]);
      samples[who].insert(samples[who].end(), block.begin(), block.end());
    }
  }
  std::vector<Timing> timings;
  for (size_t k = 0; k < contenders.size(); ++k)
    timings.push_back(timing_of(contenders[k].name, std::move(samples[k])));
  return timings;
}

std::string machine_line() {
  return fmt::format("{}, {} thread(s), {} (found {})", cpu_model_name(), num_threads(),
                     isa_name(active_isa()), isa_name(detected_isa()));
}

double noise_probe() {
  double fastest = 1e30;
  double slowest = 0;
  for (int round = 0; round < 20; ++round) {
    const int64_t start = monotonic_ns();
    volatile uint64_t x = 88172645463325252ULL;
    for (int i = 0; i < 200'000; ++i) x = x * 6364136223846793005ULL + 1442695040888963407ULL;
    const auto ns = static_cast<double>(monotonic_ns() - start);
    fastest = std::min(fastest, ns);
    slowest = std::max(slowest, ns);
  }
  return slowest / fastest;
}

}  // namespace epilogue::bench
