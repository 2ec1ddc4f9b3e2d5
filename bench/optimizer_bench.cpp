// SPDX-License-Identifier: Apache-2.0
// One optimizer step over the parameters of a GeGLU MLP against the memory bandwidth of the same
// run: a step must read p, g, m, v and write p, m, v, and that takes what it takes.
//
// "stream" moves the same bytes between the same number of arrays with one addition each. First the
// kernel is compared with the plain-loops reference.
#include <fmt/format.h>

#include <array>
#include <cmath>
#include <memory>
#include <vector>

#include "base/thread_pool.h"
#include "epilogue/autograd.h"
#include "epilogue/ops.h"
#include "epilogue/optim.h"
#include "harness.h"

namespace epilogue::bench {
namespace {

constexpr int64_t kDim = 768;
constexpr int64_t kHidden = 3072;
constexpr double kGoal = 0.85;  // of the streaming bandwidth
constexpr int64_t kStreamGrain = 1 << 15;

std::vector<Tensor> parameters() {
  std::vector<Tensor> params;
  for (const Dims& sizes :
       {Dims{kHidden, kDim}, Dims{kHidden, kDim}, Dims{kDim, kHidden}, Dims{kHidden}, Dims{kDim}}) {
    params.push_back(randn(sizes));
    params.back().set_requires_grad(true);
    params.back().set_grad(randn(sizes));
  }
  return params;
}

int64_t elements(const std::vector<Tensor>& tensors) {
  int64_t n = 0;
  for (const Tensor& t : tensors) n += t.numel();
  return n;
}

// Three arrays are updated from a fourth: four reads, three writes.
struct Stream {
  explicit Stream(int64_t count) : n(count) {
    for (Tensor& t : arrays) t = rand({count});
  }
  double bytes() const { return 7 * 4.0 * static_cast<double>(n); }
  void run() const {
    parallel_for(n, kStreamGrain, [this](int64_t begin, int64_t end) {
      update(arrays[0].data_as<float>(), arrays[1].data_as<float>(), arrays[2].data_as<float>(),
             arrays[3].data_as<float>(), begin, end);
    });
  }
  static void update(float* __restrict a, float* __restrict b, float* __restrict c,
                     const float* __restrict d, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      a[i] += d[i];
      b[i] += d[i];
      c[i] += d[i];
    }
  }

  int64_t n;
  std::array<Tensor, 4> arrays;
};

struct Case {
  std::string name;
  std::shared_ptr<optim::Optimizer> optimizer;
  double bytes_per_element;
};

std::vector<Case> cases() {
  const auto adamw = [] { return std::make_shared<optim::AdamW>(parameters()); };
  const auto with_copy = adamw();
  with_copy->keep_low_precision_copies(DType::bf16);
  const auto sgd = std::make_shared<optim::SGD>(parameters(), optim::SGDOptions{.momentum = 0.9});
  return {{"AdamW", adamw(), 28}, {"AdamW + bf16 copy", with_copy, 30}, {"SGD, momentum", sgd, 20}};
}

// One AdamW step of the kernel and of formulas in double, on a few thousand elements.
bool agrees() {
  manual_seed(1);
  Tensor p = randn({5000});
  p.set_requires_grad(true);
  p.set_grad(randn({5000}));
  const std::vector<double> before = p.to_vector();
  const std::vector<double> g = p.grad().to_vector();
  optim::AdamW({p}).step();
  const std::vector<double> after = p.to_vector();
  double worst = 0;
  for (size_t i = 0; i < before.size(); ++i) {
    const double expected = before[i] * (1 - 1e-3 * 1e-2) - 1e-3 * g[i] / (std::abs(g[i]) + 1e-8);
    worst = std::max(worst, std::abs(after[i] - expected));
  }
  fmt::print("AdamW's first step against the formula in f64: largest error {:.1e}\n", worst);
  return worst < 1e-6;
}

int run() {
  fmt::print("optimizer steps, GeGLU MLP {} -> {}: {}\n", kDim, kHidden, machine_line());
  fmt::print("noise probe: {:.2f}x\n", noise_probe());
  if (!agrees()) return 1;
  const std::vector<Case> all = cases();
  const int64_t n = elements(all[0].optimizer->parameters());
  const Stream stream(n);
  std::vector<Contender> contenders = {{"stream", [&] { stream.run(); }}};
  for (const Case& c : all) contenders.push_back({c.name, [&c] { c.optimizer->step(); }});
  const std::vector<Timing> t = interleave(contenders, plan_for(contenders, 4, 2e4));
  const double peak = stream.bytes() / t[0].min_ns;
  fmt::print("{:.2f} M parameters; {:<20}\n\n{:<20}{:>24}{:>12}{:>14}\n",
             static_cast<double>(n) / 1e6, "minimum (median +- MAD)", "step", "ms", "GB/s",
             "of stream");
  const auto line = [&](const Timing& x, double bytes) {
    const double rate = bytes / x.min_ns;
    fmt::print(
        "{:<20}{:>24}{:>12.2f}{:>13.0f}%\n", x.name,
        fmt::format("{:.2f} ({:.2f} +- {:.2f})", x.min_ns / 1e6, x.median_ns / 1e6, x.mad_ns / 1e6),
        rate, 100 * rate / peak);
    return rate / peak;
  };
  line(t[0], stream.bytes());
  bool reached = true;
  for (size_t i = 0; i < all.size(); ++i)
    reached = line(t[i + 1], all[i].bytes_per_element * static_cast<double>(n)) >= kGoal && reached;
  fmt::print("\ngoal: {:.0f}% of the streaming bandwidth of this run: {}\n", 100 * kGoal,
             reached ? "reached" : "MISSED");
  return reached ? 0 : 1;
}

}  // namespace
}  // namespace epilogue::bench

int main() { return epilogue::bench::run(); }
