// SPDX-License-Identifier: Apache-2.0
// The ops that torch sees. The package epilogue.torch calls them; docs/pytorch.md speaks of users.
#include <torch/csrc/stable/library.h>

#include "handle.h"

namespace epilogue_torch {
namespace {

using torch::headeronly::ScalarType;

int64_t prepare(std::vector<Torch> parameters, std::vector<Torch> weights,
                std::vector<std::optional<Torch>> biases, std::string activation,
                std::optional<ScalarType> dtype, std::string bits,
                std::vector<std::optional<Torch>> norms, std::vector<std::string> forms,
                std::vector<double> eps, bool residual) {
  return keep(std::make_shared<Handle>(Request{.parameters = std::move(parameters),
                                               .weights = std::move(weights),
                                               .biases = std::move(biases),
                                               .activation = std::move(activation),
                                               .dtype = dtype,
                                               .bits = std::move(bits),
                                               .norms = std::move(norms),
                                               .forms = std::move(forms),
                                               .eps = std::move(eps),
                                               .residual = residual}));
}

std::optional<Torch> run(Torch x, int64_t handle, std::vector<Torch> parameters) {
  return find(handle)->run(x, parameters);
}

std::vector<Torch> run_linear(Torch x, int64_t handle, std::vector<Torch> parameters,
                              std::optional<Torch> residual) {
  return find(handle)->run_linear(x, parameters, residual);
}

std::vector<int64_t> widths_of(int64_t handle) { return find(handle)->widths(); }
int64_t columns_of(int64_t handle) { return find(handle)->columns(); }
void refresh_handle(int64_t handle) { find(handle)->refresh(); }
void release_handle(int64_t handle) { release(handle); }

int64_t packed_bytes() { return epilogue::memory_stats().packed_bytes; }

}  // namespace

STABLE_TORCH_LIBRARY_FRAGMENT(epilogue, m) {
  m.def(
      "prepare(Tensor[] parameters, Tensor[] weights, Tensor?[] biases, str activation, "
      "ScalarType? dtype, "
      "str bits, Tensor?[] norms, str[] forms, float[] eps, bool residual) -> int");
  m.def("fused_mlp(Tensor x, int handle, Tensor[] parameters) -> Tensor?");
  m.def("linear(Tensor x, int handle, Tensor[] parameters, Tensor? residual) -> Tensor[]");
  m.def("columns(int handle) -> int");
  m.def("widths(int handle) -> int[]");
  m.def("refresh(int handle) -> ()");
  m.def("release(int handle) -> ()");
  m.def("handles() -> int");
  m.def("note_step() -> ()");
  m.def("packed_bytes() -> int");
}

STABLE_TORCH_LIBRARY_IMPL(epilogue, CPU, m) {
  m.impl("prepare", TORCH_BOX(&prepare));
  m.impl("fused_mlp", TORCH_BOX(&run));
  m.impl("linear", TORCH_BOX(&run_linear));
}

STABLE_TORCH_LIBRARY_IMPL(epilogue, CompositeExplicitAutograd, m) {
  m.impl("columns", TORCH_BOX(&columns_of));
  m.impl("widths", TORCH_BOX(&widths_of));
  m.impl("refresh", TORCH_BOX(&refresh_handle));
  m.impl("release", TORCH_BOX(&release_handle));
  m.impl("handles", TORCH_BOX(&count_handles));
  m.impl("note_step", TORCH_BOX(&note_step));
  m.impl("packed_bytes", TORCH_BOX(&packed_bytes));
}

}  // namespace epilogue_torch
