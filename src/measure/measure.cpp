// SPDX-License-Identifier: Apache-2.0
#include "measure/measure.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <span>
#include <vector>

#include "backend/cpu/simd/panels/kernel_list.h"
#include "backend/cpu/simd/panels/packed_weights.h"
#include "backend/cpu/simd/probe.h"
#include "backend/cpu/simd/reduce.h"
#include "base/clock.h"
#include "base/cpu_features.h"
#include "base/large_memory.h"
#include "base/thread_pool.h"
#include "epilogue/autograd.h"
#include "epilogue/fused.h"

namespace epilogue::measure {
namespace {

constexpr size_t kReadBytes = size_t{256} << 20;  // far beyond any last-level cache's share
constexpr size_t kFewestReadBytes = size_t{1} << 20;
constexpr size_t kReadStep = 4;
constexpr size_t kStreamBytes = size_t{16} << 20;  // weights of an MLP: beyond a core's L2
constexpr int kRounds = 3;
constexpr double kProbeSeconds = 0.015;
constexpr int64_t kChainWidth = 512;  // 1 MiB of f32 weights
constexpr int64_t kFlatDepth = 64;    // not less: narrower products pad their panels
constexpr int64_t kElementRows = 256;
constexpr int64_t kChainRows[] = {1, 4, 16, 64, 256, 1024};
constexpr int64_t kChainBudgetNs = 4'000'000;
constexpr int kChainPasses = 3;  // apart from each other: a neighbour may stay for milliseconds
constexpr int kFewestCalls = 5;

// The best of a few rounds: a shared machine is only ever slowed down by its neighbours.
double best_gflops(int threads, double (*probe)(double seconds) = simd::fma_gflops) {
  double best = 0;
  for (int round = 0; round < kRounds; ++round) {
    std::vector<double> rate(static_cast<size_t>(threads));
    parallel_for(threads, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) rate[static_cast<size_t>(i)] = probe(kProbeSeconds);
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
  const int rounds = data.size_bytes() < kReadBytes ? 4 * kRounds : kRounds;
  for (int round = 0; round < rounds; ++round) {
    const int64_t start = monotonic_ns();
    std::atomic<float> sink = 0;  // what nobody reads would not be computed
    parallel_for(n, all_threads ? n / num_threads() : n, [&](int64_t begin, int64_t end) {
      sink.store(simd::row_kernels().sum(data.data() + begin, static_cast<size_t>(end - begin)),
                 std::memory_order_relaxed);
    });
    const auto ns = static_cast<double>(std::max<int64_t>(monotonic_ns() - start, 1));
    best = std::max(best, static_cast<double>(data.size_bytes()) / ns);
  }
  return best;
}

// Memory as weights have it: large pages where the system has them; each thread's part is its own.
class ReadBuffer {
 public:
  explicit ReadBuffer(size_t bytes) : memory_(allocate_large(bytes)) {
    const auto count = static_cast<int64_t>(bytes / sizeof(float));
    auto* const floats = static_cast<float*>(memory_.get());
    parallel_for(
        count, std::max<int64_t>(1, count / num_threads()),
        [&](int64_t begin, int64_t end) { std::fill(floats + begin, floats + end, 1.0F); });
  }
  std::span<const float> first(size_t bytes) const {
    return {static_cast<const float*>(memory_.get()), bytes / sizeof(float)};
  }

 private:
  LargeMemory memory_;
};

void measure_reads(MachineFigures& f) {
  const ReadBuffer data(kReadBytes);
  f.memory_gb_per_s_one_thread = best_read_rate(data.first(kReadBytes), false);
  f.stream_gb_per_s_one_thread = best_read_rate(data.first(kStreamBytes), false);
  for (size_t bytes = kFewestReadBytes; bytes <= kReadBytes; bytes *= kReadStep)
    f.read_gb_per_s.emplace_back(bytes, best_read_rate(data.first(bytes), true));
  f.memory_gb_per_s = f.read_gb_per_s.back().second;
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

// Values of either sign about 1, in `type`: products of zeros, or of values that stay the same,
// cost less power, and some processors multiply them faster.
std::vector<float> random_values(simd::FloatType type, size_t count) {
  std::vector<float> f32(count);
  uint32_t seed = 1;
  for (float& x : f32) {
    seed = seed * 1664525 + 1013904223;
    x = static_cast<float>(seed >> 8) / (1 << 23) - 1;
  }
  std::vector<float> values(count);
  simd::from_f32(type, f32.data(), values.data(), count);
  return values;
}

// One thread's packed product of a block of rows, out of its L2, in GFLOP/s.
double product_gflops(simd::FloatType type) {
  constexpr int64_t kRows = 96;
  constexpr int64_t kDepth = 512;
  constexpr int64_t kPanels = 4;
  const simd::PanelKernel& kernel =
      simd::choose_panel_kernel({.weights = type, .rows = kRows}).kernel();
  const int64_t width = kernel.layout.width;
  const std::vector<float> columns =
      random_values(type, static_cast<size_t>(kDepth * kPanels * width));
  const simd::PackedPart part{{columns.data(), type, kPanels * width, 1}, kDepth};
  const simd::PackedWeights weights({&part, 1}, kPanels * width, kernel.layout);
  const std::vector<float> rows =
      random_values(kernel.layout.rows, static_cast<size_t>(kRows * kDepth));
  const double flops = 2.0 * kRows * kDepth * static_cast<double>(weights.panels() * width);
  std::vector<float> sums(static_cast<size_t>(kRows * width * weights.panels()));
  if (kernel.tiles != nullptr) {
    constexpr int64_t kSteps = kDepth / simd::kTileK;
    std::vector<float> tiles(static_cast<size_t>(simd::TiledRows::bytes_of(kRows, kSteps) / 4));
    simd::TileArgs args;
    args.rows = {reinterpret_cast<uint16_t*>(tiles.data()), kRows, kSteps, kSteps};
    for (int64_t i = 0; i < kRows; ++i)
      args.rows.set_row(i, reinterpret_cast<const uint16_t*>(rows.data()) + i * kDepth, kDepth);
    args.weights = weights.tiles(0);
    args.last = kPanels * width / simd::kTileBlock;
    args.resident = kSteps;
    args.sums = sums.data();
    return flops / best_call_ns([&] { kernel.tiles(args); });
  }
  simd::PanelArgs args = {.m = kRows, .k = kDepth, .a = rows.data(), .a_stride = kDepth};
  args.sums[0] = sums.data();
  return flops / best_call_ns([&] {
           for (int64_t p = 0; p < weights.panels(); ++p) {
             args.panel = weights.panel(p, 0);
             kernel.one(args);
           }
         });
}

// A parallel_for whose pieces wait until all have begun, in microseconds: what it costs to have
// help.
double handoff_us() {
  constexpr int kCalls = 200;
  constexpr int kMostSpins = 100'000;  // where a thread gets no core
  std::array<double, kCalls> us{};
  for (double& each : us) {
    std::atomic<int> begun{0};
    const int threads = num_threads();
    const int64_t before = monotonic_ns();
    parallel_for(threads, 1, [&](int64_t, int64_t) {
      begun.fetch_add(1);
      for (int spins = 0; begun.load() < threads && spins < kMostSpins; ++spins) {
      }
    });
    each = static_cast<double>(monotonic_ns() - before) * 1e-3;
  }
  // The undisturbed samples: a neighbour makes many of them slow.
  constexpr int kUndisturbed = kCalls / 10;
  std::ranges::nth_element(us, us.begin() + kUndisturbed);
  return us[kUndisturbed];
}

// x [rows, k] times a weight [n, k].
double product_ns(int64_t rows, int64_t k, int64_t n, DType dtype) {
  const Tensor x = full({rows, k}, 0.5, dtype);
  const Tensor weights[] = {full({n, k}, 0.5, dtype)};
  return best_call_ns([&] { fused_mlp(x, weights, {}, nn::Activation::relu); });
}

// Two products with biases and a relu, of many elements for their FLOPs.
struct Flat {
  static constexpr double kFlopsPerRow = 2.0 * 2 * kFlatDepth * kChainWidth;
  static constexpr double kElementsPerRow = kFlatDepth + kChainWidth;

  static double ns(int64_t rows, DType dtype) {
    const Tensor x = full({rows, kFlatDepth}, 0.5, dtype);
    const Tensor weights[] = {full({kChainWidth, kFlatDepth}, 0.5, dtype),
                              full({kFlatDepth, kChainWidth}, 0.5, dtype)};
    const Tensor biases[] = {full({kChainWidth}, 0.5, dtype), full({kFlatDepth}, 0.5, dtype)};
    return best_call_ns([&] { fused_mlp(x, weights, biases, nn::Activation::relu); });
  }
};

// The least time of each chain that is measured, over passes.
struct ChainTimes {
  double deep_ns = INFINITY;
  double flat_ns = INFINITY;
  std::array<double, std::size(kChainRows)> rows_ns;
  ChainTimes() { rows_ns.fill(INFINITY); }

  void add_pass(DType dtype) {
    deep_ns = std::min(deep_ns, product_ns(kElementRows, kChainWidth, kChainWidth, dtype));
    flat_ns = std::min(flat_ns, Flat::ns(kElementRows, dtype));
    for (size_t i = 0; i < rows_ns.size(); ++i)
      rows_ns[i] = std::min(rows_ns[i], product_ns(kChainRows[i], kChainWidth, kChainWidth, dtype));
  }
};

// Two chains with different shares of FLOPs and elements tell what each costs.
ChainRates chain_rates(DType dtype, const ChainTimes& times) {
  ChainRates rates{std::string(dtype_name(dtype)), {}};
  constexpr double kFlopsPerElement = 2.0 * kChainWidth;
  // The time that the flat one would take if its FLOPs were all that counted, and elements came
  // with them.
  const double share = Flat::kFlopsPerRow / (kFlopsPerElement * kChainWidth);
  const double more_elements = kElementRows * (Flat::kElementsPerRow - kChainWidth * share);
  rates.ns_per_element = std::max(0.0, (times.flat_ns - times.deep_ns * share) / more_elements);
  for (size_t i = 0; i < times.rows_ns.size(); ++i) {
    const auto elements = static_cast<double>(kChainRows[i] * kChainWidth);
    const double ns = std::max(1.0, times.rows_ns[i] - elements * rates.ns_per_element);
    rates.gflops.emplace_back(kChainRows[i], kFlopsPerElement * elements / ns);
  }
  return rates;
}

void measure_chains(MachineFigures& f) {
  const NoGrad no_grad;
  constexpr DType kTypes[] = {DType::f32, DType::bf16, DType::f16};
  std::array<ChainTimes, std::size(kTypes)> times;
  for (int pass = 0; pass < kChainPasses; ++pass)
    for (size_t i = 0; i < times.size(); ++i) times[i].add_pass(kTypes[i]);
  for (size_t i = 0; i < times.size(); ++i) f.chains.push_back(chain_rates(kTypes[i], times[i]));
  f.chain_overhead_us = product_ns(1, 1, 1, DType::f32) * 1e-3;
  clear_fused_cache();
}

}  // namespace

MachineFigures measure_machine(const std::function<void(double)>& progress) {
  MachineFigures f = {
      .cpu = cpu_identity(), .isa = std::string(isa_name(active_isa())), .threads = num_threads()};
  progress(0);
  f.f32_gflops_one_thread = best_gflops(1, simd::fma_gflops);
  f.f32_gflops = best_gflops(num_threads(), simd::fma_gflops);
  progress(0.2);
  f.bf16_gflops = best_gflops(num_threads(), simd::bf16_gflops);
  f.f32_product_gflops = product_gflops(simd::FloatType::f32);
  f.bf16_product_gflops = product_gflops(simd::FloatType::bf16);
  f.handoff_us = handoff_us();
  progress(0.3);
  measure_reads(f);
  progress(0.7);
  measure_chains(f);
  progress(1);
  return f;
}

double measure_peak_gflops(DType dtype) {
  const double f32 = best_gflops(num_threads());
  if (dtype != DType::bf16) return f32;
  return std::max(f32, best_gflops(num_threads(), simd::bf16_gflops));
}

double measure_read_gb_per_s(int64_t bytes) {
  const auto size = static_cast<size_t>(std::max<int64_t>(bytes, 4096));
  return best_read_rate(ReadBuffer(size).first(size), true);
}

}  // namespace epilogue::measure
