// SPDX-License-Identifier: Apache-2.0
#include "harness.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/clock.h"
#include "base/cpu_features.h"
#include "base/thread_pool.h"

namespace epilogue::bench {
namespace {

double median_of(std::vector<double> v) {
  const auto middle = v.begin() + static_cast<std::ptrdiff_t>(v.size() / 2);
  std::nth_element(v.begin(), middle, v.end());
  return *middle;
}

double sample_ns(const Contender& c, int calls) {
  const int64_t start = monotonic_ns();
  for (int i = 0; i < calls; ++i) c.call();
  return static_cast<double>(monotonic_ns() - start) / calls;
}

}  // namespace

Plan plan_for(const std::vector<Contender>& contenders, double seconds, double sample_us) {
  double slowest_ns = 1;
  for (const Contender& c : contenders) {
    c.call();
    slowest_ns = std::max(slowest_ns, std::min(sample_ns(c, 3), sample_ns(c, 3)));
  }
  Plan plan;
  plan.seconds = seconds;
  plan.calls_per_sample = std::clamp(static_cast<int>(sample_us * 1e3 / slowest_ns), 1, 1'000'000);
  return plan;
}

std::vector<Timing> interleave(const std::vector<Contender>& contenders, const Plan& plan) {
  std::vector<std::vector<double>> samples(contenders.size());
  const int64_t end = monotonic_ns() + static_cast<int64_t>(plan.seconds * 1e9);
  for (size_t round = 0; round < 3 || monotonic_ns() < end; ++round) {
    for (size_t k = 0; k < contenders.size(); ++k) {
      const size_t who = (k + round) % contenders.size();  // nobody always follows the same one
      for (int i = 0; i < plan.dropped_per_block; ++i)
        sample_ns(contenders[who], plan.calls_per_sample);
      for (int i = 0; i < plan.samples_per_block; ++i)
        samples[who].push_back(sample_ns(contenders[who], plan.calls_per_sample));
    }
  }
  std::vector<Timing> timings;
  for (size_t k = 0; k < contenders.size(); ++k) {
    Timing t;
    t.name = contenders[k].name;
    t.samples = samples[k].size();
    t.min_ns = *std::min_element(samples[k].begin(), samples[k].end());
    t.median_ns = median_of(samples[k]);
    for (double& s : samples[k]) s = std::abs(s - t.median_ns);
    t.mad_ns = median_of(samples[k]);
    timings.push_back(t);
  }
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
