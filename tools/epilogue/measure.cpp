// SPDX-License-Identifier: Apache-2.0
#include "measure.h"

#include <algorithm>
#include <functional>
#include <span>
#include <vector>

#include "backend/cpu/simd/probe.h"
#include "backend/cpu/simd/reduce.h"
#include "base/clock.h"
#include "base/thread_pool.h"
#include "epilogue/autograd.h"
#include "epilogue/fused.h"

namespace epilogue::tool {
namespace {

constexpr size_t kReadBytes = size_t{256} << 20;  // far beyond any last-level cache's share
constexpr size_t kFewestReadBytes = size_t{1} << 20;
constexpr size_t kReadStep = 4;
constexpr int kRounds = 5;
constexpr int64_t kChainWidth = 512;  // 1 MiB of f32 weights
constexpr int64_t kFlatDepth = 64;    // not less: narrower products pad their panels
constexpr int64_t kElementRows = 256;
constexpr int64_t kChainRows[] = {1, 4, 16, 64, 256, 1024};
constexpr int64_t kChainBudgetNs = 50'000'000;
constexpr int kFewestCalls = 20;

// The best of a few rounds: a shared machine is only ever slowed down by its neighbours.
double best_gflops(int threads, double (*probe)(double seconds) = simd::fma_gflops) {
  double best = 0;
  for (int round = 0; round < kRounds; ++round) {
    std::vector<double> rate(static_cast<size_t>(threads));
    parallel_for(threads, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) rate[static_cast<size_t>(i)] = probe(0.04);
    });
    double sum = 0;
    for (const double r : rate) sum += r;
    best = std::max(best, sum);
  }
  return best;
}

// Reads `data` over and over, so that what fits into a cache comes from there.
double best_read_rate(std::span<const float> data, bool all_threads) {
  double best = 0;
  const auto n = static_cast<int64_t>(data.size());
  for (int round = 0; round < kRounds; ++round) {
    const int64_t start = monotonic_ns();
    volatile float sink = 0;
    parallel_for(n, all_threads ? n / num_threads() : n, [&](int64_t begin, int64_t end) {
      sink = simd::row_kernels().sum(data.data() + begin, static_cast<size_t>(end - begin));
    });
    const auto ns = static_cast<double>(std::max<int64_t>(monotonic_ns() - start, 1));
    best = std::max(best, static_cast<double>(data.size_bytes()) / ns);
  }
  return best;
}

void measure_reads(Ceilings& c) {
  const std::vector<float> data(kReadBytes / sizeof(float), 1.0F);
  c.memory_gb_per_s_one_thread = best_read_rate(data, false);
  for (size_t bytes = kFewestReadBytes; bytes <= kReadBytes; bytes *= kReadStep)
    c.read_gb_per_s.emplace_back(
        bytes, best_read_rate(std::span(data).first(bytes / sizeof(float)), true));
  c.memory_gb_per_s = c.read_gb_per_s.back().second;
}

// The fastest of the calls that fit into a short while.
double best_call_ns(const std::function<void()>& call) {
  call();  // packs the weights
  const int64_t start = monotonic_ns();
  int64_t best = INT64_MAX;
  for (int run = 0; run < kFewestCalls || monotonic_ns() - start < kChainBudgetNs; ++run) {
    const int64_t before = monotonic_ns();
    call();
    best = std::min(best, monotonic_ns() - before);
  }
  return static_cast<double>(std::max<int64_t>(best, 1));
}

// x [rows, k] times a weight [n, k].
double product_ns(int64_t rows, int64_t k, int64_t n, DType dtype) {
  const Tensor x = randn({rows, k}, dtype);
  const Tensor weights[] = {randn({n, k}, dtype)};
  return best_call_ns([&] { fused_mlp(x, weights, {}, nn::Activation::relu); });
}

// Two products with biases and a relu, of many elements for their FLOPs.
struct Flat {
  static constexpr double kFlopsPerRow = 2.0 * 2 * kFlatDepth * kChainWidth;
  static constexpr double kElementsPerRow = kFlatDepth + kChainWidth;

  static double ns(int64_t rows, DType dtype) {
    const Tensor x = randn({rows, kFlatDepth}, dtype);
    const Tensor weights[] = {randn({kChainWidth, kFlatDepth}, dtype),
                              randn({kFlatDepth, kChainWidth}, dtype)};
    const Tensor biases[] = {randn({kChainWidth}, dtype), randn({kFlatDepth}, dtype)};
    return best_call_ns([&] { fused_mlp(x, weights, biases, nn::Activation::relu); });
  }
};

// Two chains with different shares of FLOPs and elements tell what each costs.
ChainRates chain_rates(DType dtype) {
  ChainRates rates{dtype, {}};
  constexpr double kFlopsPerElement = 2.0 * kChainWidth;
  const double deep_ns = product_ns(kElementRows, kChainWidth, kChainWidth, dtype);
  const double flat_ns = Flat::ns(kElementRows, dtype);
  // What the flat one would take if its FLOPs were all that counted, and elements came with them.
  const double share = Flat::kFlopsPerRow / (kFlopsPerElement * kChainWidth);
  const double more_elements = kElementRows * (Flat::kElementsPerRow - kChainWidth * share);
  rates.ns_per_element = std::max(0.0, (flat_ns - deep_ns * share) / more_elements);
  for (const int64_t rows : kChainRows) {
    const auto elements = static_cast<double>(rows * kChainWidth);
    const double ns = product_ns(rows, kChainWidth, kChainWidth, dtype);
    rates.gflops.emplace_back(
        rows, kFlopsPerElement * elements / std::max(1.0, ns - elements * rates.ns_per_element));
  }
  return rates;
}

void measure_chains(Ceilings& c) {
  const NoGrad no_grad;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    c.chains.push_back(chain_rates(dtype));
  c.chain_overhead_us = product_ns(1, 1, 1, DType::f32) * 1e-3;
  clear_fused_cache();
}

}  // namespace

Ceilings measure_ceilings(const std::function<void(double)>& progress) {
  Ceilings c;
  progress(0);
  c.f32_gflops_one_thread = best_gflops(1, simd::fma_gflops);
  progress(0.3);
  c.f32_gflops = best_gflops(num_threads(), simd::fma_gflops);
  progress(0.4);
  c.bf16_gflops = best_gflops(num_threads(), simd::bf16_gflops);
  progress(0.5);
  measure_reads(c);
  progress(0.8);
  measure_chains(c);
  progress(1);
  return c;
}

double measure_peak_gflops(DType dtype) {
  const double f32 = best_gflops(num_threads());
  if (dtype != DType::bf16) return f32;
  return std::max(f32, best_gflops(num_threads(), simd::bf16_gflops));
}

}  // namespace epilogue::tool
