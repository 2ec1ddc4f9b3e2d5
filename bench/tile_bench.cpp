// SPDX-License-Identifier: Apache-2.0
// Fused MLPs and products of bf16 on AMX beside what its tiles can do at all: the median share of
// the peak that random values reach out of L1, on all threads, measured before and after each call.
// Results are compared with the same computation in double first.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "backend/cpu/chain/row_chain.h"
#include "backend/cpu/simd/probe.h"
#include "base/clock.h"
#include "base/cpu_features.h"
#include "epilogue/fused.h"
#include "epilogue/ops.h"
#include "harness.h"
#include "tile_peak.h"

namespace epilogue::bench {
namespace {

constexpr double kSeconds = 1.0;
constexpr size_t kFewestCalls = 7;
constexpr double kMostError = 5e-3;  // relative, L2

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

struct Figures {
  double gflops;
  double peak;
  double share;
  double lowest;  // of the middle half of the shares
  double highest;
};

template <class Run>
Figures measure(const simd::TileProbe& probe, double flops, const Run& run) {
  run();
  run();
  std::vector<double> gflops;
  std::vector<double> peaks = {tile_peak_gflops(probe)};
  std::vector<double> shares;
  const int64_t start = monotonic_ns();
  while (gflops.size() < kFewestCalls ||
         static_cast<double>(monotonic_ns() - start) < 1e9 * kSeconds) {
    const int64_t before = monotonic_ns();
    run();
    gflops.push_back(flops / static_cast<double>(monotonic_ns() - before));
    peaks.push_back(tile_peak_gflops(probe));
    shares.push_back(2 * gflops.back() / (peaks.back() + peaks[peaks.size() - 2]));
  }
  std::ranges::sort(shares);
  return {median(gflops), median(peaks), median(shares), shares[shares.size() / 4],
          shares[shares.size() * 3 / 4]};
}

double widened(uint16_t bits) {
  const uint32_t wide = uint32_t{bits} << 16;
  float value = 0;
  std::memcpy(&value, &wide, sizeof value);
  return value;
}
double at(const Tensor& t, int64_t i, int64_t j) {
  return widened(static_cast<const uint16_t*>(t.data())[i * t.size(1) + j]);
}

// Some rows of `y` beside `row(i)` in double.
template <class Row>
double relative_error(const Tensor& y, const Row& row) {
  double error = 0;
  double sum = 0;
  const int64_t step = std::max<int64_t>(1, y.size(0) / 3);
  for (int64_t i = step / 2; i < y.size(0); i += step) {
    const std::vector<double> expected = row(i);
    for (size_t j = 0; j < expected.size(); ++j) {
      const double e = at(y, i, static_cast<int64_t>(j)) - expected[j];
      error += e * e;
      sum += expected[j] * expected[j];
    }
  }
  return std::sqrt(error / sum);
}
std::vector<double> times(const std::vector<double>& x, const Tensor& w) {
  std::vector<double> y(static_cast<size_t>(w.size(0)));
  for (int64_t j = 0; j < w.size(0); ++j)
    for (size_t q = 0; q < x.size(); ++q)
      y[static_cast<size_t>(j)] += x[q] * at(w, j, static_cast<int64_t>(q));
  return y;
}
std::vector<double> row_of(const Tensor& x, int64_t i) {
  std::vector<double> row(static_cast<size_t>(x.size(1)));
  for (size_t q = 0; q < row.size(); ++q) row[q] = at(x, i, static_cast<int64_t>(q));
  return row;
}

Tensor weight(int64_t n, int64_t k) {
  return to(randn({n, k}, DType::f32) * (1.0 / std::sqrt(static_cast<double>(k))), DType::bf16);
}

bool print(const std::string& name, const Figures& f, double error) {
  fmt::print("{:<26}{:>8.0f}{:>8.0f}{:>8.1f} %  [{:.1f}, {:.1f}]{:>10.1e}{}\n", name, f.gflops,
             f.peak, 100 * f.share, 100 * f.lowest, 100 * f.highest, error,
             error > kMostError ? "  WRONG" : "");
  std::fflush(stdout);
  return error <= kMostError;
}

bool run_mlp(const simd::TileProbe& probe, int64_t m, int64_t k, int64_t h) {
  const Tensor x = randn({m, k}, DType::bf16);
  const Tensor gate = weight(h, k);
  const Tensor up = weight(h, k);
  const Tensor down = weight(k, h);
  const FusedMlp mlp = FusedMlp::gated(gate, up, down, nn::Activation::geglu);
  const Tensor y = empty({m, k}, DType::bf16);
  const Figures f =
      measure(probe, 6.0 * static_cast<double>(m * k * h), [&] { mlp.run_into(x, y); });
  const double error = relative_error(y, [&](int64_t i) {
    const std::vector<double> row = row_of(x, i);
    std::vector<double> hidden = times(row, gate);
    const std::vector<double> u = times(row, up);
    for (size_t j = 0; j < hidden.size(); ++j) {
      const double g = hidden[j];
      hidden[j] = 0.5 * g * (1 + std::tanh(0.7978845608028654 * (g + 0.044715 * g * g * g))) * u[j];
    }
    return times(hidden, down);
  });
  return print(fmt::format("mlp {} x {} x {}", m, k, h), f, error);
}

bool run_product(const simd::TileProbe& probe, int64_t m, int64_t k, int64_t n) {
  const Tensor x = randn({m, k}, DType::bf16);
  const Tensor w = weight(n, k);
  const Tensor y = empty({m, n}, DType::bf16);
  RowChainSpec spec;
  spec.dtype = DType::bf16;
  PointwiseProgram program = {.inputs = 1, .outputs = {0}};
  add_stage(spec, {w}, program, 0);
  const std::unique_ptr<RowChain> chain = cpu::make_row_chain(spec);
  const MatrixView from{x.data(), DType::bf16, k, 1};
  const std::vector<MatrixView> outputs = {{y.data(), DType::bf16, n, 1}};
  const Figures f = measure(probe, 2.0 * static_cast<double>(m * k * n),
                            [&] { chain->run(m, from, {}, outputs); });
  const double error = relative_error(y, [&](int64_t i) { return times(row_of(x, i), w); });
  return print(fmt::format("product {} x {} x {}", m, k, n), f, error);
}

struct Case {
  bool is_mlp;
  int64_t m, k, n;
};
constexpr Case kCases[] = {
    {true, 8192, 768, 3072},   {true, 256, 768, 3072},    {true, 64, 768, 3072},
    {true, 512, 4096, 14336},  {false, 1024, 1024, 1024}, {false, 2048, 2048, 2048},
    {false, 4096, 4096, 4096}, {false, 8192, 768, 3072},  {false, 8192, 3072, 768},
};

// "mlp:64x768x3072" or "product:1024x1024x1024".
bool parse(const std::string& text, Case& c) {
  std::array<char, 8> kind{};
  if (std::sscanf(text.c_str(), "%7[a-z]:%ldx%ldx%ld", kind.data(), &c.m, &c.k, &c.n) != 4)
    return false;
  c.is_mlp = std::string(kind.data()) == "mlp";
  return (c.is_mlp || std::string(kind.data()) == "product") && c.m > 0 && c.k > 0 && c.n > 0;
}

int run(const std::vector<std::string>& wanted) {
  std::vector<Case> cases;
  for (const std::string& text : wanted)
    if (!parse(text, cases.emplace_back())) {
      fmt::print("tile_bench: expected mlp:MxKxH or product:MxKxN, got {}\n", text);
      return 2;
    }
  if (cases.empty()) cases.assign(std::begin(kCases), std::end(kCases));
  if (!simd::TileProbe::is_there()) {
    fmt::print("tile_bench: needs AMX, found {}\n", isa_name(active_isa()));
    return 0;
  }
  const simd::TileProbe probe;
  fmt::print("{}; medians; share of the peak with its quartiles; relative error\n", machine_line());
  fmt::print("{:<26}{:>8}{:>8}{:>10}\n", "", "GFLOP/s", "peak", "share");
  bool is_right = true;
  for (const Case& c : cases)
    is_right = (c.is_mlp ? run_mlp : run_product)(probe, c.m, c.k, c.n) && is_right;
  return is_right ? 0 : 1;
}

}  // namespace
}  // namespace epilogue::bench

// tile_bench [mlp:MxKxH | product:MxKxN]...: these cases alone.
int main(int argc, char** argv) { return epilogue::bench::run({argv + 1, argv + argc}); }
