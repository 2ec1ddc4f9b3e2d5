// SPDX-License-Identifier: Apache-2.0
// Activations on an L1-sized tile of f32, every instruction set of this machine: time per element
// on one thread, and the largest error against double. The goal for gelu_tanh and silu with 512-bit
// vectors: 1e-6 absolute at under 0.5 ns.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "backend/cpu/simd/pointwise.h"
#include "backend/cpu/simd/targets.h"
#include "base/cpu_features.h"
#include "harness.h"

namespace epilogue::bench {
namespace {

constexpr size_t kTile = 4096;  // floats; with the result two thirds of a 48 KiB L1
constexpr double kLow = -8;
constexpr double kHigh = 8;  // beyond it a step of f32 is 1e-6 by itself
constexpr size_t kSweep = 1 << 20;
constexpr double kErrorGoal = 1e-6;
constexpr double kNsGoal = 0.5;
constexpr double kSampleUs = 200;

struct Activation {
  const char* name;
  PointwiseFn op;
  double (*exact)(double);
  bool has_goal;
};

double exact_sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double exact_gelu_tanh(double x) {
  constexpr double kSqrt2OverPi = 0.79788456080286535588;
  return x * exact_sigmoid(2 * kSqrt2OverPi * (x + 0.044715 * x * x * x));
}

constexpr Activation kActivations[] = {
    {"gelu_tanh", PointwiseFn::gelu_tanh, exact_gelu_tanh, true},
    {"silu", PointwiseFn::silu, [](double x) { return x * exact_sigmoid(x); }, true},
    {"gelu_erf", PointwiseFn::gelu_erf,
     [](double x) { return 0.5 * x * std::erfc(-x / std::sqrt(2.0)); }, false},
    {"sigmoid", PointwiseFn::sigmoid, exact_sigmoid, false},
    {"tanh", PointwiseFn::tanh, [](double x) { return std::tanh(x); }, false},
};

std::vector<float> sweep(size_t n) {
  std::vector<float> x(n);
  for (size_t i = 0; i < n; ++i)
    x[i] = static_cast<float>(kLow +
                              (kHigh - kLow) * static_cast<double>(i) / static_cast<double>(n - 1));
  return x;
}

double largest_error(const Activation& a) {
  const std::vector<float> x = sweep(kSweep);
  std::vector<float> y(x.size());
  simd::pointwise_kernels().run(a.op, {x.data()}, y.data(), x.size());
  double worst = 0;
  for (size_t i = 0; i < x.size(); ++i)
    worst = std::max(worst, std::abs(static_cast<double>(y[i]) - a.exact(x[i])));
  return worst;
}

// True where the goals of this instruction set were met.
bool run_level(Isa isa) {
  set_active_isa(isa);
  const std::vector<float> x = sweep(kTile);
  std::vector<float> y(kTile);
  std::vector<Contender> contenders;
  for (const Activation& a : kActivations)
    contenders.push_back({a.name, [&, kernel = simd::pointwise_kernels()[a.op]] {
                            const simd::TileOperand operand = x.data();
                            kernel(&operand, y.data(), kTile, nullptr);
                          }});
  const std::vector<Timing> timings = interleave(contenders, plan_for(contenders, 1, kSampleUs));
  bool reached = true;
  for (size_t i = 0; i < timings.size(); ++i) {
    const Activation& a = kActivations[i];
    const double error = largest_error(a);
    const double ns = timings[i].min_ns / static_cast<double>(kTile);
    fmt::print("{:<10}{:<12}{:>8.3f}{:>10.3f}{:>9.1f} %{:>12.1e}\n", isa_name(isa), a.name, ns,
               timings[i].median_ns / static_cast<double>(kTile),
               100 * timings[i].mad_ns / timings[i].median_ns, error);
    if (!a.has_goal) continue;
    reached = reached && error <= kErrorGoal && (!cpu_has(CpuFeature::avx512) || ns < kNsGoal);
  }
  return reached;
}

int run() {
  fmt::print("activations on {} f32 in L1, one thread: {}\n", kTile, machine_line());
  fmt::print("noise probe: {:.2f}x\n\n", noise_probe());
  fmt::print("{:<10}{:<12}{:>8}{:>10}{:>11}{:>12}\n", "level", "", "min ns", "median ns", "MAD",
             "error");
  bool reached = true;
  // Other sets run the f32 kernels of one of these.
  for (const Isa isa : {Isa::baseline, Isa::avx2, Isa::avx512})
    if (is_available(isa)) reached = run_level(isa) && reached;
  fmt::print(
      "\ngoal: gelu_tanh and silu within {:.0e} of double on [{:g}, {:g}], with 512-bit vectors "
      "under {:g} ns an element: {}\n",
      kErrorGoal, kLow, kHigh, kNsGoal, reached ? "reached" : "MISSED");
  return reached ? 0 : 1;
}

}  // namespace
}  // namespace epilogue::bench

int main() { return epilogue::bench::run(); }
