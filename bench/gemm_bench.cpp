// SPDX-License-Identifier: Apache-2.0
// GEMM beside oneDNN on the same shapes in the same run: y = x W^T. Results agree first.
//
// Ours packs the weight on every call (eager). oneDNN runs twice: reading the weight where it lies,
// which is the same work, and with a weight packed beforehand, its best.
#include <fmt/format.h>

#include <cmath>
#include <cstdlib>
#include <vector>

#include "base/cpu_features.h"
#include "bench/agreement.h"
#include "bench/harness.h"
#include "bench/onednn_matmul.h"
#include "epilogue/autograd.h"
#include "epilogue/ops.h"

namespace epilogue::bench {
namespace {

struct Shape {
  int64_t m, k, n;
};
constexpr Shape kShapes[] = {
    {64, 64, 64},   {16, 64, 256},   {1024, 32, 64},     {256, 768, 3072},  {1, 768, 3072},
    {8, 768, 3072}, {512, 512, 512}, {1024, 1024, 1024}, {2048, 768, 3072}, {2048, 3072, 768}};

struct Ratios {
  double log_plain = 0;
  double log_packed = 0;
  int count = 0;
};

bool run_shape(const Shape& s, DType dtype, double seconds, Ratios& ratios) {
  const Tensor x = randn({s.m, s.k}, dtype);
  const Tensor w = uniform({s.n, s.k}, -1 / std::sqrt(static_cast<double>(s.k)),
                           1 / std::sqrt(static_cast<double>(s.k)), dtype);
  const Tensor y_plain = empty({s.m, s.n}, dtype);
  const Tensor y_packed = empty({s.m, s.n}, dtype);
  OnednnLinear plain(x, w, y_plain, false);
  OnednnLinear packed(x, w, y_packed, true);
  plain.run();
  packed.run();
  const Tensor ours = mm(x, t(w));
  const double tolerance = dtype == DType::f32 ? 2e-6 : 8e-3;
  const double error = std::max(relative_l2(ours, y_plain), relative_l2(ours, y_packed));
  if (!(error <= tolerance)) {
    fmt::print("{} x {} x {} {}: results differ, relative L2 {:.2e}\n", s.m, s.k, s.n,
               dtype_name(dtype), error);
    return false;
  }
  const std::vector<Contender> contenders = {{"epilogue", [&] { mm(x, t(w)); }},
                                             {"onednn, plain", [&] { plain.run(); }, true},
                                             {"onednn, packed", [&] { packed.run(); }, true}};
  const auto t = interleave(contenders, plan_for(contenders, seconds, 500));
  const double flops = 2.0 * static_cast<double>(s.m * s.n * s.k);
  const auto cell = [&](const Timing& x2) {
    return fmt::format("{:>8.1f} +-{:>4.1f} %", flops / x2.min_ns, x2.mad_ns / x2.median_ns * 100);
  };
  fmt::print("{:>5} x{:>5} x{:>5} {:<5}{:>18}{:>18}{:>18}{:>9.2f}{:>9.2f}   {:.1e}\n", s.m, s.k,
             s.n, dtype_name(dtype), cell(t[0]), cell(t[1]), cell(t[2]), t[1].min_ns / t[0].min_ns,
             t[2].min_ns / t[0].min_ns, error);
  ratios.log_plain += std::log(t[1].min_ns / t[0].min_ns);
  ratios.log_packed += std::log(t[2].min_ns / t[0].min_ns);
  ++ratios.count;
  return true;
}

int run(double seconds) {
  const NoGrad no_grad;
  fmt::print(
      "GEMM y = x W^T (m x k x n) beside oneDNN: {}\nnoise probe: {:.2f}x; GFLOP/s from the "
      "fastest sample, +- MAD; ratios above 1: epilogue is faster\n\n",
      machine_line(), noise_probe());
  fmt::print("{:<26}{:>18}{:>18}{:>18}{:>9}{:>9}   {}\n", "", "epilogue", "onednn plain",
             "onednn packed", "/plain", "/packed", "rel. L2");
  bool ok = true;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    Ratios ratios;
    for (const Shape& s : kShapes) ok = run_shape(s, dtype, seconds, ratios) && ok;
    if (ratios.count > 0)
      fmt::print("{}: geometric mean {:.2f} against plain, {:.2f} against packed\n\n",
                 dtype_name(dtype), std::exp(ratios.log_plain / ratios.count),
                 std::exp(ratios.log_packed / ratios.count));
  }
  return ok ? 0 : 1;
}

}  // namespace
}  // namespace epilogue::bench

int main(int argc, char** argv) {
  return epilogue::bench::run(argc > 1 ? std::atof(argv[1]) : 1.0);
}
