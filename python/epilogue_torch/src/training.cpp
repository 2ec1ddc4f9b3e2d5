// SPDX-License-Identifier: Apache-2.0
// The ops of training: what stands between the products of an MLP, and the engine's products.
#include <torch/csrc/stable/library.h>

#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>

#include "tensors.h"
#include "torch_threads.h"

namespace epilogue_torch {
namespace {

using epilogue::Tensor;
using OptionalTorch = std::optional<Torch>;

// As the engine's pointwise kernels read it.
Tensor contiguous_of(const Torch& tensor, const char* what) {
  return epilogue::contiguous(view_of(tensor, what));
}
Tensor contiguous_of(const OptionalTorch& tensor, const char* what) {
  return tensor ? contiguous_of(*tensor, what) : Tensor();
}

void require_like(const Torch& gate, const OptionalTorch& tensor, const char* what) {
  if (!tensor) return;
  bool same = tensor->scalar_type() == gate.scalar_type() && tensor->dim() == gate.dim();
  for (int64_t d = 0; same && d < gate.dim(); ++d) same = tensor->size(d) == gate.size(d);
  if (!same)
    throw std::runtime_error(std::string("expected ") + what + " to be like gate: " +
                             describe(gate) + ", but got " + describe(*tensor));
}

Torch mlp_hidden(Torch gate, OptionalTorch up, std::string activation) {
  const epilogue::NoGrad no_grad;
  TorchThreads threads;
  const epilogue::ExecutorScope scope(threads);
  const Tensor in = contiguous_of(gate, "gate");
  require_like(gate, up, "up");
  Torch out = empty_like_rows(gate, in.sizes());
  epilogue::mlp_hidden_into(activation, in, contiguous_of(up, "up"), view_of(out, "out"));
  return out;
}

// Results of a pass backward over what stands between an MLP's products, beside gate.
struct GradientResults {
  GradientResults(const Torch& gate, const epilogue::Dims& sizes, bool has_up)
      : hidden(empty_like_rows(gate, sizes)),
        d_gate(empty_like_rows(gate, sizes)),
        d_up(empty_like_rows(gate, has_up ? sizes : epilogue::Dims{0})),
        views{view_of(hidden, "hidden"), view_of(d_gate, "d_gate"),
              has_up ? view_of(d_up, "d_up") : Tensor()} {}
  std::tuple<Torch, Torch, Torch> take() const { return {hidden, d_gate, d_up}; }

  Torch hidden;
  Torch d_gate;
  Torch d_up;
  epilogue::MlpGradients views;
};

std::tuple<Torch, Torch, Torch> mlp_gradients(Torch d_hidden, Torch gate, OptionalTorch up,
                                              std::string activation) {
  const epilogue::NoGrad no_grad;
  TorchThreads threads;
  const epilogue::ExecutorScope scope(threads);
  const Tensor in = contiguous_of(gate, "gate");
  require_like(gate, up, "up");
  require_like(gate, d_hidden, "d_hidden");
  const GradientResults out(gate, in.sizes(), up.has_value());
  epilogue::mlp_gradients_into(activation, contiguous_of(d_hidden, "d_hidden"), in,
                               contiguous_of(up, "up"), out.views);
  return out.take();
}

void require_factors(const Torch& a, const Torch& b) {
  require_defined(a, "a");
  require_defined(b, "b");
  if (a.dim() != 2 || b.dim() != 2 || a.size(1) != b.size(0))
    throw std::runtime_error("mat1 and mat2 shapes cannot be multiplied: " + describe(a) + " and " +
                             describe(b));
}

Torch product(Torch a, Torch b, OptionalTorch added) {
  require_factors(a, b);
  const epilogue::NoGrad no_grad;
  TorchThreads threads;
  const epilogue::ExecutorScope scope(threads);
  const Tensor left = view_of(a, "a");
  const Tensor right = view_of(b, "b");
  Torch out = empty_like_rows(a, {left.size(0), right.size(1)});
  epilogue::product_into(left, right, added ? view_of(*added, "added") : Tensor(),
                         view_of(out, "out"));
  return out;
}

std::tuple<Torch, Torch> product_hidden(Torch a, Torch b, OptionalTorch added, OptionalTorch gate,
                                        std::string activation) {
  require_factors(a, b);
  const epilogue::NoGrad no_grad;
  TorchThreads threads;
  const epilogue::ExecutorScope scope(threads);
  const epilogue::Dims sizes = {a.size(0), b.size(1)};
  Torch out = empty_like_rows(a, sizes);
  require_like(out, gate, "gate");
  Torch hidden = empty_like_rows(a, sizes);
  epilogue::product_hidden_into(
      activation, view_of(a, "a"), view_of(b, "b"), added ? view_of(*added, "added") : Tensor(),
      contiguous_of(gate, "gate"), view_of(out, "out"), view_of(hidden, "hidden"));
  return {out, hidden};
}

std::tuple<Torch, Torch, Torch> product_gradients(Torch a, Torch b, Torch gate, OptionalTorch up,
                                                  std::string activation) {
  require_factors(a, b);
  const epilogue::NoGrad no_grad;
  TorchThreads threads;
  const epilogue::ExecutorScope scope(threads);
  const Tensor in = contiguous_of(gate, "gate");
  require_like(gate, up, "up");
  const GradientResults out(gate, in.sizes(), up.has_value());
  epilogue::product_gradients_into(activation, view_of(a, "a"), view_of(b, "b"), in,
                                   contiguous_of(up, "up"), out.views);
  return out.take();
}

}  // namespace

STABLE_TORCH_LIBRARY_FRAGMENT(epilogue, m) {
  m.def("mlp_hidden(Tensor gate, Tensor? up, str activation) -> Tensor");
  m.def(
      "mlp_gradients(Tensor d_hidden, Tensor gate, Tensor? up, str activation) "
      "-> (Tensor hidden, Tensor d_gate, Tensor d_up)");
  m.def("product(Tensor a, Tensor b, Tensor? added) -> Tensor");
  m.def(
      "product_hidden(Tensor a, Tensor b, Tensor? added, Tensor? gate, str activation) "
      "-> (Tensor out, Tensor hidden)");
  m.def(
      "product_gradients(Tensor a, Tensor b, Tensor gate, Tensor? up, str activation) "
      "-> (Tensor hidden, Tensor d_gate, Tensor d_up)");
}

STABLE_TORCH_LIBRARY_IMPL(epilogue, CPU, m) {
  m.impl("mlp_hidden", TORCH_BOX(&mlp_hidden));
  m.impl("mlp_gradients", TORCH_BOX(&mlp_gradients));
  m.impl("product", TORCH_BOX(&product));
  m.impl("product_hidden", TORCH_BOX(&product_hidden));
  m.impl("product_gradients", TORCH_BOX(&product_gradients));
}

}  // namespace epilogue_torch
