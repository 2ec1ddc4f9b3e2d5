// SPDX-License-Identifier: Apache-2.0
// The experts of a mixture as one op, with the weights that they were packed from under a number
// that Python holds. The package epilogue.torch calls it.
#include <epilogue/fused.h>
#include <torch/csrc/stable/library.h>

#include <memory>
#include <optional>
#include <shared_mutex>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <vector>

#include "handle.h"
#include "torch_threads.h"
#include "weights.h"

namespace epilogue_torch {
namespace {

using epilogue::DType;
using epilogue::Expert;
using epilogue::Tensor;
using torch::headeronly::ScalarType;

using Tensors = std::vector<Torch>;

// What epilogue::prepare_experts takes. Of each kind of weights and biases: one tensor of all
// experts, one for each expert, or, where there is none, none.
struct ExpertsRequest {
  Tensors parameters;  // that the others are, or are views of
  Tensors gates;       // empty where gate and up are one tensor, or there is no gate
  Tensors ups;
  Tensors downs;
  Tensors gate_biases;
  Tensors up_biases;
  Tensors down_biases;
  std::string activation;  // a name of epilogue::nn::Activation
  epilogue::ExpertLayout layout;
  std::optional<ScalarType> dtype;  // to compute in: the weights' own, or autocast's
  epilogue::nn::SwiGluClamp clamp;
  epilogue::Quantisation bits;
  bool borrows = false;  // the caller names the parameters at each call, and keeps their memory
};

[[noreturn]] void fail(const std::string& expected, const std::string& got) {
  throw std::runtime_error("[epilogue::experts] expected " + expected + ", got " + got);
}

DType engine_dtype_of(ScalarType type) {
  switch (type) {
    case ScalarType::Float: return DType::f32;
    case ScalarType::BFloat16: return DType::bf16;
    case ScalarType::Half: return DType::f16;
    default: fail("a dtype of Float, BFloat16 or Half", torch::headeronly::toString(type));
  }
}

class ExpertsHandle {
 public:
  explicit ExpertsHandle(const ExpertsRequest& request) : weights_(request.borrows) {
    const epilogue::NoGrad no_grad;
    TorchThreads threads;
    const epilogue::ExecutorScope scope(threads);
    if (request.ups.empty() || request.ups.size() != request.downs.size())
      fail("as many tensors of down as of up",
           std::to_string(request.downs.size()) + " and " + std::to_string(request.ups.size()));
    dtype_ =
        request.dtype ? engine_dtype_of(*request.dtype) : view_of(request.ups[0], "up").dtype();
    const auto activation = epilogue::nn::parse_activation(request.activation);
    std::vector<Expert> experts;
    for (size_t i = 0; i < request.ups.size(); ++i) {
      add_experts(request, i, activation, experts);
      group_of_.resize(experts.size(), static_cast<int64_t>(i));
    }
    k_ = experts.at(0).up.size(1);
    experts_.emplace(std::move(experts), activation, request.clamp, request.bits);
    // Of many tensors, to pass them takes longer than to look at those of the chosen experts.
    weights_.watch(request.parameters, group_of_.back() > 0 && !request.borrows);
  }

  // Nullopt if one of the request's parameters has other memory since, as far as the chosen experts
  // read it. `parameters`: as they are now; empty, where experts have a
  // tensor each: the same objects.
  std::optional<Torch> run(const Torch& x, const Torch& index, const Torch& weights,
                           const Tensors& parameters) {
    const epilogue::NoGrad no_grad;
    TorchThreads threads;
    const epilogue::ExecutorScope scope(threads);
    const Tensor in = view_of(x, "x");
    if (in.dim() == 0 || in.size(-1) != k_ || in.dtype() != dtype_)
      fail("x [..., " + std::to_string(k_) + "] of " + std::string(dtype_name(dtype_)),
           describe(x));
    const Tensor chosen = index_of(index);
    if (!sees(parameters, chosen)) return std::nullopt;
    epilogue::Dims sizes = in.sizes();
    sizes[sizes.rank() - 1] = experts_->columns();
    Torch out = empty_like_rows(x, sizes);
    int64_t rows = 1;
    for (int d = 0; d + 1 < in.dim(); ++d) rows *= in.size(d);
    const Tensor result = view_of(out, "out");
    experts_->run_into(epilogue::reshape(in, {rows, k_}), chosen, view_of(weights, "weights"),
                       epilogue::reshape(result, {rows, experts_->columns()}));
    return out;
  }

  int64_t columns() const { return experts_->columns(); }
  int64_t packed_bytes() const { return experts_->packed_bytes(); }
  void refresh() { weights_.refresh(); }

 private:
  static Tensor index_of(const Torch& index) {
    require_defined(index, "index");
    const ScalarType type = index.scalar_type();
    if (!index.is_cpu() || index.dim() != 2 ||
        (type != ScalarType::Long && type != ScalarType::Int))
      fail("an index [tokens, choices] of Long or Int on the CPU", describe(index));
    const epilogue::Dims sizes{index.size(0), index.size(1)};
    const epilogue::Dims strides{index.stride(0), index.stride(1)};
    if (type == ScalarType::Long)
      return Tensor::from_blob(const_cast<void*>(index.const_data_ptr()), sizes, DType::i64, {},
                               strides);
    const Tensor wide = epilogue::empty(sizes, DType::i64);
    const auto* const from = static_cast<const int32_t*>(index.const_data_ptr());
    int64_t* to = wide.data_as<int64_t>();
    for (int64_t t = 0; t < sizes[0]; ++t)
      for (int64_t j = 0; j < sizes[1]; ++j) *to++ = from[t * strides[0] + j * strides[1]];
    return wide;
  }

  // Tensor i of a list that has one for each of ups, or none.
  Tensor add(const Tensors& list, size_t i, const char* what, size_t count) {
    if (list.empty()) return {};
    if (list.size() != count)
      fail(std::string("one ") + what + " for each up, or none", std::to_string(list.size()));
    return weights_.add(list[i], what, dtype_, count == 1 ? -1 : static_cast<int64_t>(i));
  }

  // Of one tensor for each expert, those of the chosen ones are looked at.
  bool sees(const Tensors& parameters, const Tensor& chosen) {
    if (group_of_.back() == 0) return weights_.see(parameters);
    const auto* const data = chosen.data_as<int64_t>();
    const epilogue::Dims& strides = chosen.strides();
    std::vector<int64_t> groups;
    std::vector<char> is_in(static_cast<size_t>(group_of_.back()) + 1);
    for (int64_t t = 0; t < chosen.size(0); ++t)
      for (int64_t j = 0; j < chosen.size(1); ++j) {
        const auto expert = static_cast<uint64_t>(data[t * strides[0] + j * strides[1]]);
        if (expert >= group_of_.size()) continue;  // none, or an error that the call reports
        const int64_t group = group_of_[expert];
        if (is_in[static_cast<size_t>(group)] == 0) groups.push_back(group);
        is_in[static_cast<size_t>(group)] = 1;
      }
    return weights_.see(parameters, &groups);
  }

  // The experts of tensor i of each list: all, or one.
  void add_experts(const ExpertsRequest& r, size_t i, epilogue::nn::Activation activation,
                   std::vector<Expert>& experts) {
    const size_t count = r.ups.size();
    Tensor up = add(r.ups, i, "up", count);
    Tensor down = add(r.downs, i, "down", count);
    Tensor up_bias = add(r.up_biases, i, "bias of up", count);
    Tensor down_bias = add(r.down_biases, i, "bias of down", count);
    Tensor gate = add(r.gates, i, "gate", count);
    Tensor gate_bias = add(r.gate_biases, i, "bias of gate", count);
    // One expert as a stack of one.
    for (Tensor* const t : {&up, &down, &gate})
      if (t->defined() && t->dim() == 2) *t = epilogue::unsqueeze(*t, 0);
    for (Tensor* const t : {&up_bias, &down_bias, &gate_bias})
      if (t->defined() && t->dim() == 1) *t = epilogue::unsqueeze(*t, 0);
    epilogue::ExpertLayout layout = r.layout;
    layout.gated = epilogue::nn::is_gated(activation) && !gate.defined();
    std::vector<Expert> some = epilogue::split_experts(up, down, layout, up_bias, down_bias);
    if (gate.defined()) {
      const std::vector<Expert> gates =
          epilogue::split_experts(gate, down, layout, gate_bias, down_bias);
      for (size_t e = 0; e < some.size(); ++e) {
        some[e].gate = gates[e].up;
        some[e].gate_bias = gates[e].up_bias;
      }
    }
    experts.insert(experts.end(), some.begin(), some.end());
  }

  Weights weights_;
  DType dtype_ = DType::f32;
  int64_t k_ = 0;
  std::vector<int64_t> group_of_;  // by expert: which of the request's tensors it is in
  std::optional<epilogue::FusedExperts> experts_;
};

// Handles by number, from 1. Never destroyed: Python may release some while the process ends.
struct ExpertsHandles {
  std::shared_mutex mutex;
  std::unordered_map<int64_t, std::shared_ptr<ExpertsHandle>> by_number;
  int64_t next = 1;
};
ExpertsHandles& experts_handles() {
  static auto* const all = new ExpertsHandles;
  return *all;
}

std::shared_ptr<ExpertsHandle> find_experts(int64_t number) {
  ExpertsHandles& all = experts_handles();
  const std::shared_lock lock(all.mutex);
  const auto found = all.by_number.find(number);
  if (found == all.by_number.end()) fail("the number of prepared experts", std::to_string(number));
  return found->second;
}

int64_t prepare_experts(Tensors parameters, Tensors gates, Tensors ups, Tensors downs,
                        Tensors gate_biases, Tensors up_biases, Tensors down_biases,
                        std::string activation, bool interleaved, bool transposed,
                        std::optional<ScalarType> dtype, double alpha, double limit,
                        std::string bits, bool borrows) {
  auto handle = std::make_shared<ExpertsHandle>(
      ExpertsRequest{.parameters = std::move(parameters),
                     .gates = std::move(gates),
                     .ups = std::move(ups),
                     .downs = std::move(downs),
                     .gate_biases = std::move(gate_biases),
                     .up_biases = std::move(up_biases),
                     .down_biases = std::move(down_biases),
                     .activation = std::move(activation),
                     .layout = {.interleaved = interleaved, .transposed = transposed},
                     .dtype = dtype,
                     .clamp = {.alpha = alpha, .limit = limit},
                     .bits = quantisation_of(bits),
                     .borrows = borrows});
  ExpertsHandles& all = experts_handles();
  const std::unique_lock lock(all.mutex);
  all.by_number.emplace(all.next, std::move(handle));
  return all.next++;
}

std::optional<Torch> run_experts(Torch x, Torch index, Torch weights, int64_t handle,
                                 Tensors parameters) {
  return find_experts(handle)->run(x, index, weights, parameters);
}

int64_t experts_columns(int64_t handle) { return find_experts(handle)->columns(); }
int64_t experts_bytes(int64_t handle) { return find_experts(handle)->packed_bytes(); }
void refresh_experts(int64_t handle) { find_experts(handle)->refresh(); }

}  // namespace

// Of C, as epilogue_release().
extern "C" [[gnu::visibility("default")]] void epilogue_release_experts(int64_t number) {
  ExpertsHandles& all = experts_handles();
  std::shared_ptr<ExpertsHandle> dead;  // dies after the lock
  const std::unique_lock lock(all.mutex);
  const auto found = all.by_number.find(number);
  if (found == all.by_number.end()) return;
  dead = std::move(found->second);
  all.by_number.erase(found);
}

STABLE_TORCH_LIBRARY_FRAGMENT(epilogue, m) {
  m.def(
      "prepare_experts(Tensor[] parameters, Tensor[] gates, Tensor[] ups, Tensor[] downs, "
      "Tensor[] gate_biases, Tensor[] up_biases, Tensor[] down_biases, str activation, "
      "bool interleaved, bool transposed, ScalarType? dtype, float alpha, float limit, str bits, "
      "bool borrows=False) -> int");
  m.def(
      "experts(Tensor x, Tensor index, Tensor weights, int handle, Tensor[] parameters) -> "
      "Tensor?");
  m.def("experts_columns(int handle) -> int");
  m.def("experts_bytes(int handle) -> int");
  m.def("refresh_experts(int handle) -> ()");
}

STABLE_TORCH_LIBRARY_IMPL(epilogue, CPU, m) { m.impl("experts", TORCH_BOX(&run_experts)); }

// Lists may be empty, of which no tensor says the device.
STABLE_TORCH_LIBRARY_IMPL(epilogue, CompositeExplicitAutograd, m) {
  m.impl("prepare_experts", TORCH_BOX(&prepare_experts));
  m.impl("experts_columns", TORCH_BOX(&experts_columns));
  m.impl("experts_bytes", TORCH_BOX(&experts_bytes));
  m.impl("refresh_experts", TORCH_BOX(&refresh_experts));
}

}  // namespace epilogue_torch
