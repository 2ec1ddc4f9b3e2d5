// SPDX-License-Identifier: Apache-2.0
#include "measure.h"

#include <algorithm>
#include <vector>

#include "backend/cpu/simd/probe.h"
#include "backend/cpu/simd/reduce.h"
#include "base/clock.h"
#include "base/thread_pool.h"

namespace epilogue::tool {
namespace {

constexpr size_t kReadBytes = size_t{256} << 20;  // far beyond any last-level cache's share
constexpr int kRounds = 5;

// The best of a few rounds: a shared machine is only ever slowed down by its neighbours.
double best_gflops(int threads) {
  double best = 0;
  for (int round = 0; round < kRounds; ++round) {
    std::vector<double> rate(static_cast<size_t>(threads));
    parallel_for(threads, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) rate[static_cast<size_t>(i)] = simd::fma_gflops(0.04);
    });
    double sum = 0;
    for (const double r : rate) sum += r;
    best = std::max(best, sum);
  }
  return best;
}

double best_read_rate(const std::vector<float>& data, bool all_threads) {
  double best = 0;
  const auto n = static_cast<int64_t>(data.size());
  for (int round = 0; round < kRounds; ++round) {
    const int64_t start = monotonic_ns();
    volatile float sink = 0;
    parallel_for(n, all_threads ? n / num_threads() : n, [&](int64_t begin, int64_t end) {
      sink = simd::row_kernels().sum(data.data() + begin, static_cast<size_t>(end - begin));
    });
    const auto ns = static_cast<double>(monotonic_ns() - start);
    best = std::max(best, static_cast<double>(data.size() * sizeof(float)) / ns);
  }
  return best;
}

}  // namespace

Ceilings measure_ceilings(const std::function<void(double)>& progress) {
  Ceilings c;
  progress(0);
  c.f32_gflops_one_thread = best_gflops(1);
  progress(0.3);
  c.f32_gflops = best_gflops(num_threads());
  progress(0.6);
  const std::vector<float> data(kReadBytes / sizeof(float), 1.0F);
  c.memory_gb_per_s_one_thread = best_read_rate(data, false);
  progress(0.8);
  c.memory_gb_per_s = best_read_rate(data, true);
  progress(1);
  return c;
}

}  // namespace epilogue::tool
