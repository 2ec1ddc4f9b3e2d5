// SPDX-License-Identifier: Apache-2.0
// The GeGLU MLP as one row chain beside oneDNN's best (prepacked weights, post-ops) and our own
// eager ops, on the same work in the same run. Results agree first, each within its dtype's
// tolerance of the product in double.
#include <fmt/format.h>

#include <cmath>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "backend/cpu/chain/row_chain.h"
#include "base/cpu_features.h"
#include "bench/agreement.h"
#include "bench/harness.h"
#include "bench/onednn_model.h"
#include "epilogue/autograd.h"
#include "epilogue/ops.h"

namespace epilogue::bench {
namespace {

struct Shape {
  int64_t m, k, h;
};
constexpr Shape kShapes[] = {{8192, 768, 3072}, {256, 768, 3072}, {512, 4096, 14336}, {64, 64, 256},
                             {16, 64, 256},     {1, 768, 3072},   {1, 4096, 14336}};

struct GatedMlpWeights {
  Tensor gate;  // [h, k]
  Tensor up;    // [h, k]
  Tensor down;  // [n, h]
};

Tensor eager(const Tensor& x, const GatedMlpWeights& w) {
  return mm(mul(gelu(mm(x, t(w.gate)), Gelu::tanh), mm(x, t(w.up))), t(w.down));
}

Model model_of(const GatedMlpWeights& w) {
  Model model;
  model.stages.push_back({.weight = w.gate, .activation = nn::Activation::geglu, .up = w.up});
  model.stages.push_back({.weight = w.down});
  return model;
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
  const auto chain = make_chain(w, dtype);
  const Model model = model_of(w);
  std::optional<OnednnModel> peer;
  std::string missing;
  try {
    peer.emplace(model, x);
    peer->run();
  } catch (const Error& e) {
    peer.reset();
    missing = e.what();
  }
  const MatrixView results[] = {view(y)};
  const auto run_chain = [&] { chain->run(s.m, view(x), {}, results); };
  run_chain();
  const std::vector<int64_t> checked = checked_rows(s.m);
  const Tensor expected = exact_rows(model, x, checked);
  const auto error_of = [&](const Tensor& result) {
    return relative_l2(rows_of(result, checked), expected);
  };
  const double tolerance = tolerance_for(dtype, model).against_exact;
  const double error = error_of(y);
  const double peer_error = peer ? error_of(peer->result()) : 0;
  const double eager_error = error_of(eager(x, w));
  if (!(error <= tolerance) || !(peer_error <= tolerance)) {
    fmt::print("{} x {} x {}: results differ: {:.1e}, oneDNN {:.1e}\n", s.m, s.k, s.h, error,
               peer_error);
    return false;
  }
  std::vector<Contender> contenders = {{"row chain", run_chain}, {"eager", [&] { eager(x, w); }}};
  if (peer)
    contenders.emplace_back(
        "onednn", [&] { peer->run(); }, true);
  const auto times = interleave(contenders, plan_for(contenders, seconds, 500));
  const double flops = product_flops(model, s.m);
  const auto cell = [&](const Timing& c) {
    return fmt::format("{:>9.1f} GF +-{:>4.1f} %", flops / c.min_ns, c.mad_ns / c.median_ns * 100);
  };
  const auto ratio = [&](size_t i) {
    return i < times.size() ? fmt::format("{:.2f}", times[i].min_ns / times[0].min_ns) : "-";
  };
  fmt::print("{:>5} x{:>5} x{:>6} {:<5}{:>20}{:>20}{:>20}{:>8}{:>8}   {:.1e} {:.1e}\n", s.m, s.k,
             s.h, dtype_name(dtype), cell(times[0]), peer ? cell(times[2]) : "-", cell(times[1]),
             ratio(2), ratio(1), error, eager_error);
  if (!peer) fmt::print("    onednn left out: {}\n", missing);
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
