// SPDX-License-Identifier: Apache-2.0
// The GeGLU MLP as one row chain beside oneDNN's best (prepacked weights, post-ops) and our own
// eager ops, on the same work in the same run. Results agree first, each within its dtype's
// tolerance of the product in double.
#include <fmt/format.h>

#include <cmath>
#include <cstdlib>
#include <vector>

#include "backend/cpu/row_chain.h"
#include "base/cpu_features.h"
#include "epilogue/autograd.h"
#include "epilogue/ops.h"
#include "harness.h"
#include "onednn_mlp.h"

namespace epilogue::bench {
namespace {

struct Shape {
  int64_t m, k, h;
};
constexpr Shape kShapes[] = {{8192, 768, 3072}, {256, 768, 3072}, {512, 4096, 14336}, {64, 64, 256},
                             {16, 64, 256},     {1, 768, 3072},   {1, 4096, 14336}};
// Rows that are compared with the reference in double.
constexpr int64_t kCheckedRows = 8;

double relative_l2(const Tensor& a, const Tensor& reference) {
  const auto x = a.to_vector();
  const auto y = reference.to_vector();
  double difference = 0;
  double norm = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    difference += (x[i] - y[i]) * (x[i] - y[i]);
    norm += y[i] * y[i];
  }
  return std::sqrt(difference / norm);
}

Tensor eager(const Tensor& x, const GatedMlpWeights& w) {
  return mm(mul(gelu(mm(x, t(w.gate)), Gelu::tanh), mm(x, t(w.up))), t(w.down));
}

Tensor first_rows(const Tensor& x) { return slice(x, 0, 0, kCheckedRows, 1); }

Tensor reference(const Tensor& x, const GatedMlpWeights& w) {
  const auto f64 = [](const Tensor& t2) { return to(t2, DType::f64); };
  return eager(f64(first_rows(x)), {f64(w.gate), f64(w.up), f64(w.down)});
}

MatrixView view(const Tensor& t2) {
  return {t2.data(), t2.dtype(), t2.strides()[0], t2.strides()[1]};
}

std::unique_ptr<RowChain> make_chain(const GatedMlpWeights& w, DType dtype) {
  RowChainSpec spec;
  spec.dtype = dtype;
  const PointwiseProgram geglu = {2, {{PointwiseFn::gelu_tanh, 0}, {PointwiseFn::mul, 2, 1}}, {3}};
  spec.stages.push_back({{w.gate, w.up}, geglu, {}});
  spec.stages.push_back({{w.down}, {1, {}, {0}}, {}});
  return cpu::make_row_chain(spec);
}

bool run_shape(const Shape& s, DType dtype, double seconds) {
  const auto weight = [&](int64_t n, int64_t k) {
    const double bound = 1 / std::sqrt(static_cast<double>(k));
    return uniform({n, k}, -bound, bound, dtype);
  };
  const Tensor x = randn({s.m, s.k}, dtype);
  const GatedMlpWeights w = {weight(s.h, s.k), weight(s.h, s.k), weight(s.k, s.h)};
  const Tensor y = empty({s.m, s.k}, dtype);
  const Tensor y_peer = empty({s.m, s.k}, dtype);
  const auto chain = make_chain(w, dtype);
  OnednnGatedMlp peer(x, w, y_peer);
  const MatrixView results[] = {view(y)};
  const auto run_chain = [&] { chain->run(s.m, view(x), {}, results); };
  run_chain();
  peer.run();
  const Tensor expected = reference(x, w);
  const double tolerance = dtype == DType::f32 ? 3e-6 : 6e-3;
  const double error = relative_l2(first_rows(y), expected);
  const double peer_error = relative_l2(first_rows(y_peer), expected);
  const double eager_error = relative_l2(first_rows(eager(x, w)), expected);
  if (!(error <= tolerance) || !(peer_error <= 2 * tolerance)) {
    fmt::print("{} x {} x {}: results differ: {:.1e}, oneDNN {:.1e}\n", s.m, s.k, s.h, error,
               peer_error);
    return false;
  }
  const std::vector<Contender> contenders = {
      {"row chain", run_chain}, {"onednn", [&] { peer.run(); }}, {"eager", [&] { eager(x, w); }}};
  const auto t2 = interleave(contenders, plan_for(contenders, seconds, 500));
  const double flops = 6.0 * static_cast<double>(s.m) * static_cast<double>(s.k * s.h);
  const auto cell = [&](const Timing& c) {
    return fmt::format("{:>9.1f} GF +-{:>4.1f} %", flops / c.min_ns, c.mad_ns / c.median_ns * 100);
  };
  fmt::print("{:>5} x{:>5} x{:>6} {:<5}{:>20}{:>20}{:>20}{:>8.2f}{:>8.2f}   {:.1e} {:.1e}\n", s.m,
             s.k, s.h, dtype_name(dtype), cell(t2[0]), cell(t2[1]), cell(t2[2]),
             t2[1].min_ns / t2[0].min_ns, t2[2].min_ns / t2[0].min_ns, error, eager_error);
  std::fflush(stdout);
  return true;
}

int run(double seconds) {
  const NoGrad no_grad;
  fmt::print(
      "GeGLU MLP (m x k x hidden): {}\nnoise probe: {:.2f}x; from the fastest sample, +- MAD; "
      "ratios above 1: the row chain is faster; errors: relative L2 against double\n\n",
      machine_line(), noise_probe());
  fmt::print("{:<27}{:>20}{:>20}{:>20}{:>8}{:>8}   {}\n", "", "row chain", "onednn", "eager",
             "/onednn", "/eager", "error, eager's");
  bool ok = true;
  for (const DType dtype : {DType::bf16, DType::f32})
    for (const Shape& s : kShapes) ok = run_shape(s, dtype, seconds) && ok;
  return ok ? 0 : 1;
}

}  // namespace
}  // namespace epilogue::bench

int main(int argc, char** argv) {
  return epilogue::bench::run(argc > 1 ? std::atof(argv[1]) : 2.0);
}
