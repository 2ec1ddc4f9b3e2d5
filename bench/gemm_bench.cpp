// SPDX-License-Identifier: Apache-2.0
// GEMM beside oneDNN on the same shapes in the same run: y = x W^T, the products of gated MLPs and
// some others. Results agree first.
//
// With the weight packed beforehand: a compiled linear layer, and oneDNN's best. With the weight
// where it lies, packed on every call: ours eager, and oneDNN's plain product.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <vector>

#include "base/cpu_features.h"
#include "bench/agreement.h"
#include "bench/harness.h"
#include "bench/onednn_matmul.h"
#include "epilogue/autograd.h"
#include "epilogue/compile.h"
#include "epilogue/ops.h"

namespace epilogue::bench {
namespace {

struct Shape {
  int64_t m, k, n;
};
constexpr Shape kShapes[] = {
    {8192, 768, 3072},  {8192, 3072, 768},  {256, 768, 3072}, {256, 3072, 768}, {512, 4096, 14336},
    {512, 14336, 4096}, {64, 64, 256},      {64, 256, 64},    {16, 64, 256},    {16, 256, 64},
    {1, 768, 3072},     {1, 3072, 768},     {1, 4096, 14336}, {1, 14336, 4096}, {64, 64, 64},
    {1024, 32, 64},     {1024, 1024, 1024}, {8, 768, 3072}};

struct Ratios {
  double log_plain = 0;
  double log_packed = 0;
  double least_packed = HUGE_VAL;
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
  Compiled linear_layer = compile([w](const Tensor& rows) { return linear(rows, w); });
  const Tensor eager = mm(x, t(w));
  const double tolerance = dtype == DType::f32 ? 2e-6 : 8e-3;
  const double error = std::max({relative_l2(eager, y_plain), relative_l2(eager, y_packed),
                                 relative_l2(linear_layer(x), y_packed)});
  if (!(error <= tolerance)) {
    fmt::print("{} x {} x {} {}: results differ, relative L2 {:.2e}\n", s.m, s.k, s.n,
               dtype_name(dtype), error);
    return false;
  }
  const std::vector<Contender> contenders = {{"packed", [&] { linear_layer(x); }},
                                             {"onednn, packed", [&] { packed.run(); }, true},
                                             {"eager", [&] { mm(x, t(w)); }},
                                             {"onednn, plain", [&] { plain.run(); }, true}};
  const auto t = interleave(contenders, plan_for(contenders, seconds, 500));
  const double flops = 2.0 * static_cast<double>(s.m * s.n * s.k);
  const auto cell = [&](const Timing& x2) {
    return fmt::format("{:>8.1f} +-{:>4.1f} %", flops / x2.min_ns, x2.mad_ns / x2.median_ns * 100);
  };
  const double packed_ratio = t[1].min_ns / t[0].min_ns;
  const double plain_ratio = t[3].min_ns / t[2].min_ns;
  fmt::print("{:>5} x{:>6} x{:>6} {:<5}{:>18}{:>18}{:>7.2f}{:>18}{:>18}{:>7.2f}   {:.1e}\n", s.m,
             s.k, s.n, dtype_name(dtype), cell(t[0]), cell(t[1]), packed_ratio, cell(t[2]),
             cell(t[3]), plain_ratio, error);
  std::fflush(stdout);
  ratios.log_packed += std::log(packed_ratio);
  ratios.log_plain += std::log(plain_ratio);
  ratios.least_packed = std::min(ratios.least_packed, packed_ratio);
  ++ratios.count;
  return true;
}

int run(double seconds) {
  const NoGrad no_grad;
  fmt::print(
      "GEMM y = x W^T (m x k x n) beside oneDNN: {}\nnoise probe: {:.2f}x; GFLOP/s from the "
      "fastest sample, +- MAD; ratios above 1: epilogue is faster\n\n",
      machine_line(), noise_probe());
  fmt::print("{:<28}{:>18}{:>18}{:>7}{:>18}{:>18}{:>7}   {}\n", "", "compiled", "onednn packed",
             "ratio", "eager", "onednn plain", "ratio", "rel. L2");
  bool ok = true;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    Ratios ratios;
    try {
      for (const Shape& s : kShapes) ok = run_shape(s, dtype, seconds, ratios) && ok;
    } catch (const Error& e) {  // a CPU that oneDNN has no such product for
      fmt::print("{}: left out: {}\n\n", dtype_name(dtype), e.what());
    }
    if (ratios.count > 0)
      fmt::print("{}: geometric mean {:.2f} compiled (least {:.2f}), {:.2f} eager, over oneDNN\n\n",
                 dtype_name(dtype), std::exp(ratios.log_packed / ratios.count), ratios.least_packed,
                 std::exp(ratios.log_plain / ratios.count));
  }
  return ok ? 0 : 1;
}

}  // namespace
}  // namespace epilogue::bench

int main(int argc, char** argv) {
  return epilogue::bench::run(argc > 1 ? std::atof(argv[1]) : 1.0);
}
