// SPDX-License-Identifier: Apache-2.0
// The ops that torch sees. The package epilogue.torch calls them; docs/pytorch.md speaks of users.
#include <epilogue/round_weight.h>
#include <torch/csrc/stable/library.h>

#include <cstring>

#include "handle.h"
#include "torch_threads.h"

namespace epilogue_torch {
namespace {

using torch::headeronly::ScalarType;

int64_t prepare(std::vector<Torch> parameters, std::vector<Torch> weights,
                std::vector<std::optional<Torch>> biases, std::string activation,
                std::optional<ScalarType> dtype, std::string bits,
                std::vector<std::optional<Torch>> norms, std::vector<std::string> forms,
                std::vector<double> eps, bool residual, bool borrows) {
  return keep(std::make_shared<Handle>(Request{.parameters = std::move(parameters),
                                               .weights = std::move(weights),
                                               .biases = std::move(biases),
                                               .activation = std::move(activation),
                                               .dtype = dtype,
                                               .bits = std::move(bits),
                                               .norms = std::move(norms),
                                               .forms = std::move(forms),
                                               .eps = std::move(eps),
                                               .residual = residual,
                                               .borrows = borrows}));
}

// Weights that are rounded already, by their parts; `groups`: 0 for one of 8 bits.
int64_t prepare_rounded(std::vector<Torch> parameters, std::vector<Torch> steps,
                        std::vector<Torch> scales, std::vector<std::optional<Torch>> zeros,
                        std::vector<int64_t> inputs, std::vector<int64_t> groups,
                        std::vector<std::optional<Torch>> biases, std::string activation,
                        ScalarType dtype, std::string bits, std::vector<std::optional<Torch>> norms,
                        std::vector<std::string> forms, std::vector<double> eps, bool residual) {
  const size_t count = steps.size();
  if (scales.size() != count || zeros.size() != count || inputs.size() != count ||
      groups.size() != count)
    throw std::runtime_error("expected scales, zeros, inputs and groups for each of the steps");
  Request request{.parameters = std::move(parameters),
                  .weights = {},
                  .biases = std::move(biases),
                  .activation = std::move(activation),
                  .dtype = dtype,
                  .bits = std::move(bits),
                  .norms = std::move(norms),
                  .forms = std::move(forms),
                  .eps = std::move(eps),
                  .residual = residual};
  for (size_t i = 0; i < count; ++i) {
    const epilogue::Tensor some = part_of(steps[i], "steps");
    const epilogue::Tensor per_output = part_of(scales[i], "scales");
    const int64_t n = some.size(0);
    if (groups[i] == 0) {
      request.rounded.emplace_back(epilogue::Int8Weight{n, inputs[i], some, per_output});
    } else {
      request.rounded.emplace_back(
          epilogue::Int4Weight{n,
                               inputs[i],
                               groups[i],
                               some,
                               per_output,
                               zeros[i] ? part_of(*zeros[i], "zeros") : epilogue::Tensor(),
                               {}});
    }
  }
  return keep(std::make_shared<Handle>(request));
}

// weight [n, k] rounded into memory of the sizes that epilogue/rounded_weight.h states.
void round_into(Torch weight, std::string bits, Torch steps, Torch scales,
                std::optional<Torch> zeros) {
  TorchThreads threads;
  const epilogue::ExecutorScope scope(threads);
  const epilogue::NoGrad no_grad;
  const auto rounded = epilogue::round_weight(view_of(weight, "a weight"), quantisation_of(bits));
  const auto put = [](const epilogue::Tensor& from, const Torch& to, const char* what) {
    const epilogue::Tensor out = part_of(to, what);
    if (out.dtype() != from.dtype() || !(out.sizes() == from.sizes()))
      throw std::runtime_error("expected " + std::string(what) + " " + to_string(from) +
                               ", but got " + describe(to));
    std::memcpy(out.data(), from.data(), from.bytes());
  };
  std::visit(
      [&](const auto& w) {
        put(w.steps, steps, "steps");
        put(w.scales, scales, "scales");
        if constexpr (std::is_same_v<std::decay_t<decltype(w)>, epilogue::Int4Weight>)
          if (w.zeros.defined()) put(w.zeros, zeros.value_or(Torch()), "zeros");
      },
      rounded);
}

std::optional<Torch> run(Torch x, int64_t handle, std::vector<Torch> parameters) {
  return find(handle)->run(x, parameters);
}

std::vector<Torch> run_linear(Torch x, int64_t handle, std::vector<Torch> parameters,
                              std::optional<Torch> residual) {
  return find(handle)->run_linear(x, parameters, residual);
}

std::optional<Torch> run_summed(Torch x, int64_t handle, std::vector<Torch> parameters,
                                int64_t group, std::optional<Torch> bias,
                                std::optional<Torch> residual) {
  return find(handle)->run_summed(x, parameters, group, bias, residual);
}

std::optional<Torch> run_summed_later(Torch x, int64_t handle, std::vector<Torch> parameters,
                                      int64_t group, std::optional<Torch> bias) {
  return find(handle)->run_summed_later(x, parameters, group, bias);
}

std::optional<Torch> run_gathered(Torch x, int64_t handle, std::vector<Torch> parameters,
                                  int64_t group) {
  return find(handle)->run_gathered(x, parameters, group);
}

Torch run_kept_mlp(Torch x, std::vector<Torch> weights, std::vector<std::optional<Torch>> biases,
                   std::string activation, std::string bits) {
  std::vector<Torch> parameters;
  auto out = find_kept(weights, biases, activation, bits, parameters)->run(x, parameters);
  if (!out) throw std::runtime_error("expected weights that stay where they are during a call");
  return *out;
}

std::vector<Torch> run_linears(Torch x, std::vector<Torch> weights,
                               std::vector<std::optional<Torch>> biases, std::string bits) {
  std::vector<Torch> parameters;
  return find_kept(weights, biases, "none", bits, parameters)
      ->run_linear(x, parameters, std::nullopt);
}

std::vector<int64_t> widths_of(int64_t handle) { return find(handle)->widths(); }
int64_t columns_of(int64_t handle) { return find(handle)->columns(); }
void refresh_handle(int64_t handle) { find(handle)->refresh(); }

int64_t packed_bytes() { return epilogue::memory_stats().packed_bytes; }

}  // namespace

STABLE_TORCH_LIBRARY_FRAGMENT(epilogue, m) {
  m.def(
      "prepare(Tensor[] parameters, Tensor[] weights, Tensor?[] biases, str activation, "
      "ScalarType? dtype, "
      "str bits, Tensor?[] norms, str[] forms, float[] eps, bool residual, bool borrows=False) -> "
      "int");
  m.def(
      "prepare_rounded(Tensor[] parameters, Tensor[] steps, Tensor[] scales, Tensor?[] zeros, "
      "int[] inputs, int[] groups, Tensor?[] biases, str activation, ScalarType dtype, str bits, "
      "Tensor?[] norms, str[] forms, float[] eps, bool residual) -> int");
  m.def(
      "round_into(Tensor weight, str bits, Tensor(a!) steps, Tensor(b!) scales, Tensor(c!)? zeros) "
      "-> ()");
  m.def("fused_mlp(Tensor x, int handle, Tensor[] parameters) -> Tensor?");
  m.def(
      "summed(Tensor x, int handle, Tensor[] parameters, int group, Tensor? bias, Tensor? "
      "residual) "
      "-> Tensor?");
  m.def(
      "summed_later(Tensor x, int handle, Tensor[] parameters, int group, Tensor? bias) -> "
      "Tensor?");
  m.def("gathered(Tensor x, int handle, Tensor[] parameters, int group) -> Tensor?");
  m.def("linear(Tensor x, int handle, Tensor[] parameters, Tensor? residual) -> Tensor[]");
  m.def(
      "kept_mlp(Tensor x, Tensor[] weights, Tensor?[] biases, str activation, str bits=\"\") -> "
      "Tensor");
  m.def("linears(Tensor x, Tensor[] weights, Tensor?[] biases, str bits=\"\") -> Tensor[]");
  m.def("columns(int handle) -> int");
  m.def("widths(int handle) -> int[]");
  m.def("refresh(int handle) -> ()");
  m.def("handles() -> int");
  m.def("note_step() -> ()");
  m.def("packed_bytes() -> int");
}

STABLE_TORCH_LIBRARY_IMPL(epilogue, CPU, m) {
  m.impl("prepare", TORCH_BOX(&prepare));
  m.impl("prepare_rounded", TORCH_BOX(&prepare_rounded));
  m.impl("round_into", TORCH_BOX(&round_into));
  m.impl("fused_mlp", TORCH_BOX(&run));
  m.impl("linear", TORCH_BOX(&run_linear));
  m.impl("summed", TORCH_BOX(&run_summed));
  m.impl("summed_later", TORCH_BOX(&run_summed_later));
  m.impl("gathered", TORCH_BOX(&run_gathered));
  m.impl("kept_mlp", TORCH_BOX(&run_kept_mlp));
  m.impl("linears", TORCH_BOX(&run_linears));
}

STABLE_TORCH_LIBRARY_IMPL(epilogue, CompositeExplicitAutograd, m) {
  m.impl("columns", TORCH_BOX(&columns_of));
  m.impl("widths", TORCH_BOX(&widths_of));
  m.impl("refresh", TORCH_BOX(&refresh_handle));
  m.impl("handles", TORCH_BOX(&count_handles));
  m.impl("note_step", TORCH_BOX(&note_step));
  m.impl("packed_bytes", TORCH_BOX(&packed_bytes));
}

}  // namespace epilogue_torch
