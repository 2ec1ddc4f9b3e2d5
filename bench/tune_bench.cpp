// SPDX-License-Identifier: Apache-2.0
// The regret of Tune::model: the time of its plan over that of the best candidate, on shapes that
// no constant was fitted to.
//
//   tune_bench [--quick]
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/cpu_features.h"
#include "bench/harness.h"
#include "bench/pairs.h"
#include "epilogue/autograd.h"
#include "epilogue/compile.h"
#include "epilogue/nn.h"
#include "epilogue/ops.h"

namespace epilogue::bench {
namespace {

struct Shape {
  int64_t rows, width, hidden;
  bool gated;
};
constexpr Shape kShapes[] = {
    {1, 512, 2048, true},    {1, 2048, 5504, true},    {2, 896, 4864, true},
    {3, 1152, 6912, true},   {7, 640, 2560, false},    {12, 896, 4864, true},
    {20, 384, 1536, false},  {33, 512, 1376, true},    {48, 320, 1280, false},
    {96, 896, 2432, true},   {150, 1280, 5120, false}, {300, 640, 1728, true},
    {700, 384, 1536, false}, {1500, 512, 1376, true},  {50, 96, 96, true},
    {400, 32, 128, false},
};

double regret_of(const Shape& s, DType dtype) {
  const NoGrad no_grad;
  std::unique_ptr<nn::Module> module;
  if (s.gated) {
    module = std::make_unique<nn::GatedMLP>(s.width, s.hidden);
  } else {
    module = std::make_unique<nn::MLP>(s.width, s.hidden, 1, nn::Activation::gelu);
  }
  module->to(dtype);
  const Tensor x = randn({s.rows, s.width}, dtype);
  const auto function = [&](std::span<const Tensor> in) { return std::vector{(*module)(in[0])}; };
  Compiled measured(function, {.tune = Tune::measure});
  measured(x);
  double least = 0;
  double model = 0;
  std::string best;
  for (const PlanCandidate& c : measured.candidates()) {
    if (!c.median_us) continue;
    if (model == 0) model = *c.median_us;  // the model's comes first
    if (least == 0 || *c.median_us < least) {
      least = *c.median_us;
      best = c.name;
    }
  }
  // Once more, the two alone in pairs: the least of many medians is partly luck.
  Compiled by_model(function);
  Compiled by_name(function, {.choice = best});
  const std::vector<PairTiming> pairs =
      time_pairs({{"model", [&] { by_model(x); }}, {best, [&] { by_name(x); }}}, 0.3, 7, 2);
  const double regret = std::max(0.0, (pairs[1].ratio.value - 1) * 100);
  fmt::print(
      "{:>5} x {:>5} x {:>5} {:<5} {:<5} {:>10.1f} us {:>10.1f} us  {:<18} {:>6.1f} % [{:.1f}, "
      "{:.1f}]\n",
      s.rows, s.width, s.hidden, s.gated ? "gated" : "plain", dtype_name(dtype),
      pairs[0].median_ns * 1e-3, pairs[1].median_ns * 1e-3, best, regret,
      (pairs[1].ratio.low - 1) * 100, (pairs[1].ratio.high - 1) * 100);
  std::fflush(stdout);
  return regret;
}

int run(bool quick) {
  // A choice that an earlier run kept would not be this one's.
  setenv("EPILOGUE_CACHE_DIR", "off", 1);
  fmt::print("Regret of the model's plan: {}\nnoise probe: {:.2f}x\n\n", machine_line(),
             noise_probe());
  fmt::print("{:<37}{:>13}{:>14}  {:<18} {:>8}\n", "rows x width x hidden", "model", "best", "",
             "regret");
  std::vector<double> all;
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const Shape& s : kShapes)
      if (!quick || s.rows * s.width * s.hidden < 10'000'000) all.push_back(regret_of(s, dtype));
  const Median median = median_with_interval(all);
  std::sort(all.begin(), all.end());
  fmt::print("\nmedian regret {:.1f} %, of {} shapes; largest {:.1f} %\n", median.value, all.size(),
             all.back());
  constexpr double kMostRegretPct = 5;
  return median.value <= kMostRegretPct ? 0 : 1;
}

}  // namespace
}  // namespace epilogue::bench

int main(int argc, char** argv) {
  CLI::App app("The regret of Tune::model against the best candidate");
  bool quick = false;
  app.add_flag("--quick", quick, "small shapes alone");
  CLI11_PARSE(app, argc, argv);
  return epilogue::bench::run(quick);
}
