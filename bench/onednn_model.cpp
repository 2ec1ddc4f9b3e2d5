// SPDX-License-Identifier: Apache-2.0
#include "bench/onednn_model.h"

#include <omp.h>

#include <algorithm>
#include <unordered_map>

#include "bench/onednn_product.h"
#include "epilogue/autograd.h"
#include "epilogue/ops.h"

namespace epilogue::bench {
namespace {

using dnnl::memory;
using Arguments = std::unordered_map<int, memory>;

struct Step {
  dnnl::matmul primitive;
  Arguments arguments;
};

int post_op_argument(int index) { return DNNL_ARG_ATTR_MULTIPLE_POST_OP(index) | DNNL_ARG_SRC_1; }

void append_activation(dnnl::post_ops& post_ops, nn::Activation activation) {
  using dnnl::algorithm;
  const auto append = [&](algorithm a, float alpha) { post_ops.append_eltwise(1, a, alpha, 0); };
  switch (activation) {
    case nn::Activation::geglu:
    case nn::Activation::gelu_tanh: return append(algorithm::eltwise_gelu_tanh, 0);
    case nn::Activation::swiglu:
    case nn::Activation::silu: return append(algorithm::eltwise_swish, 1);
    case nn::Activation::reglu:
    case nn::Activation::relu: return append(algorithm::eltwise_relu, 0);
    case nn::Activation::geglu_erf:
    case nn::Activation::gelu: return append(algorithm::eltwise_gelu_erf, 0);
    case nn::Activation::quick_geglu:
    case nn::Activation::quick_gelu: return append(algorithm::eltwise_swish, 1.702F);
    case nn::Activation::squared_reglu:
    case nn::Activation::squared_relu:
      append(algorithm::eltwise_relu, 0);
      return append(algorithm::eltwise_square, 0);
    case nn::Activation::clamped_swiglu: break;  // of both branches
  }
  throw Error("[onednn] expected an activation of one branch, got " +
              std::string(nn::activation_name(activation)));
}

Tensor norm_of(const Model& model, const Tensor& x) {
  if (model.norm == nn::Norm::rms)
    return rms_norm(x, {x.size(1)}, model.norm_weight, model.norm_eps);
  return layer_norm(x, {x.size(1)}, model.norm_weight, model.norm_bias, model.norm_eps);
}

}  // namespace

struct OnednnModel::State {
  State(const Model& m, const Tensor& input) : model(m), x(input) {}
  void add_stage(const Stage& stage, bool last);
  // Adds y = x weight^T + bias with post_ops; `operands`: of the binary ones, by post-op.
  Tensor add_product(const Tensor& weight, const Tensor& bias, const dnnl::post_ops& post_ops,
                     const std::vector<std::pair<int, Tensor>>& operands);

  Model model;
  Tensor x;
  onednn::Runtime runtime;
  std::vector<Step> steps;
  std::vector<Tensor> tensors;  // between the steps, and the result
  memory first;                 // what the first stage reads: x, or its norm
  memory current;               // what the next stage reads
  int64_t scratch_bytes = 0;
};

Tensor OnednnModel::State::add_product(const Tensor& weight, const Tensor& bias,
                                       const dnnl::post_ops& post_ops,
                                       const std::vector<std::pair<int, Tensor>>& operands) {
  const Tensor y = empty({x.size(0), weight.size(0)}, x.dtype());
  const onednn::Product product =
      onednn::make_product(runtime, x.size(0), weight, bias, post_ops, true);
  Step step{product.primitive,
            {{DNNL_ARG_SRC, current},
             {DNNL_ARG_WEIGHTS, product.weight},
             {DNNL_ARG_DST, onednn::memory_of(y, runtime.engine)}}};
  if (bias.defined()) step.arguments.emplace(DNNL_ARG_BIAS, product.bias);
  for (const auto& [post_op, operand] : operands)
    step.arguments.emplace(post_op_argument(post_op), onednn::memory_of(operand, runtime.engine));
  steps.push_back(std::move(step));
  tensors.push_back(y);
  scratch_bytes = std::max(scratch_bytes, product.scratch_bytes);
  return y;
}

void OnednnModel::State::add_stage(const Stage& stage, bool last) {
  std::vector<std::pair<int, Tensor>> operands;
  dnnl::post_ops post_ops;
  if (stage.activation) append_activation(post_ops, *stage.activation);
  Tensor weight = stage.weight;
  Tensor bias = stage.bias;
  if (stage.up.defined()) {
    const Tensor activated = add_product(weight, bias, post_ops, {});
    weight = stage.up;
    bias = stage.up_bias;
    post_ops = {};
    post_ops.append_binary(dnnl::algorithm::binary_mul, onednn::desc_of(activated));
    operands.emplace_back(0, activated);
  }
  const auto append_sum = [&](const Tensor& addend) {
    post_ops.append_binary(dnnl::algorithm::binary_add, onednn::desc_of(addend));
    operands.emplace_back(post_ops.len() - 1, addend);
  };
  if (stage.addend.defined()) append_sum(stage.addend);
  if (last && model.residual) append_sum(x);
  const Tensor y = add_product(weight, bias, post_ops, operands);
  current = onednn::memory_of(y, runtime.engine);
}

OnednnModel::OnednnModel(const Model& model, const Tensor& x) try
    : state_(std::make_unique<State>(model, x)) {
  State& s = *state_;
  s.first = onednn::memory_of(x, s.runtime.engine);
  s.current = s.first;
  for (size_t i = 0; i < model.stages.size(); ++i)
    s.add_stage(model.stages[i], i + 1 == model.stages.size());
} catch (const dnnl::error& e) {
  throw Error(std::string("[onednn] ") + e.what());
}

OnednnModel::~OnednnModel() = default;

void OnednnModel::run() {
  State& s = *state_;
  Tensor normed;  // lives until the stream is done
  if (s.model.norm != nn::Norm::none) {
    const NoGrad no_grad;
    normed = norm_of(s.model, s.x);
    s.first.set_data_handle(normed.data());
  }
  for (const Step& step : s.steps) step.primitive.execute(s.runtime.stream, step.arguments);
  s.runtime.stream.wait();
}

const Tensor& OnednnModel::result() const { return state_->tensors.back(); }

int64_t OnednnModel::intermediate_bytes() const {
  const State& s = *state_;
  int64_t bytes = s.scratch_bytes;
  for (size_t i = 0; i + 1 < s.tensors.size(); ++i)
    bytes += static_cast<int64_t>(s.tensors[i].bytes());
  return bytes + (s.model.norm == nn::Norm::none ? 0 : static_cast<int64_t>(s.x.bytes()));
}

void OnednnModel::end_threads() { omp_pause_resource_all(omp_pause_soft); }

}  // namespace epilogue::bench
