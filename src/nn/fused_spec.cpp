// SPDX-License-Identifier: Apache-2.0
#include "nn/fused_spec.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "epilogue/ops.h"
#include "nn/activation.h"
#include "ops/norms.h"
#include "ops/ops.h"
#include "ops/pointwise/pointwise.h"

namespace epilogue::nn {
namespace {

constexpr double kLayerNormEps = 1e-5;

double eps_of(Norm kind, const std::optional<double>& eps) {
  if (eps) return *eps;
  return kind == Norm::layer ? kLayerNormEps : double{std::numeric_limits<float>::epsilon()};
}

void require_parameter(const FusedSpec& spec, const Tensor& t, int64_t n, const char* what) {
  if (!t.defined()) return;
  if (t.dim() != 1 || t.size(0) != n || t.dtype() != spec.weights[0].dtype())
    fail(spec, std::string(what) + " [" + std::to_string(n) + "] of x's dtype", to_string(t));
}

void require_one_device(const FusedSpec& spec, const Tensor& x) {
  const auto elsewhere = [&](const Tensor& t) {
    return t.defined() && !(t.device() == x.device());
  };
  const FusedOptions& o = spec.options;
  const Tensor* const norms[] = {&o.norm_weight, &o.norm_bias, &o.post_norm_weight,
                                 &o.post_norm_bias};
  if (std::ranges::any_of(norms, [&](const Tensor* t) { return elsewhere(*t); }) ||
      std::ranges::any_of(spec.weights, elsewhere) || std::ranges::any_of(spec.biases, elsewhere))
    fail(spec, "every tensor on x's device " + to_string(x.device()), "one that is elsewhere");
}

void require_norm(const FusedSpec& spec, const FusedNorm& norm) {
  if (norm.kind == Norm::none && (norm.weight.defined() || norm.bias.defined()))
    fail(spec, "no norm weight or bias without a norm",
         to_string(norm.weight.defined() ? norm.weight : norm.bias));
  if (norm.kind == Norm::rms && norm.bias.defined())
    fail(spec, "no norm bias with an RMS norm", to_string(norm.bias));
  if (!is_norm_eps(norm.eps)) fail(spec, "a finite eps >= 0", std::to_string(norm.eps));
}

void require_clamp(const FusedSpec& spec) {
  const SwiGluClamp& clamp = spec.options.clamp;
  if (!std::isfinite(clamp.alpha) || !(clamp.limit > 0))
    fail(spec, "a finite alpha and a limit above 0",
         std::to_string(clamp.alpha) + " and " + std::to_string(clamp.limit));
}

void require_post_norm(const FusedSpec& spec) {
  const FusedOptions& o = spec.options;
  if (o.post_norm != PostNorm::none && o.post_norm_kind == Norm::none)
    fail(spec, "a kind of post norm", "none");
  if (o.post_norm == PostNorm::of_residual && !o.residual)
    fail(spec, "a residual for PostNorm::of_residual", "none");
}

// Appends a step; returns its value.
int push(PointwiseProgram& program, PointwiseStep step) {
  program.steps.push_back(step);
  return program.values() - 1;
}

// Appends weights [first, first + count) with what follows their products.
void add_products(RowChainSpec& spec, const FusedSpec& call, size_t first, size_t count) {
  const std::span<const Tensor> weights = call.weights.subspan(first, count);
  PointwiseProgram program;
  const bool last = call.side_by_side || first + count == call.weights.size();
  const auto has_bias = [&](size_t i) { return !call.biases.empty() && call.biases[i].defined(); };
  // The chain's own residual; that of a result that is normalised first comes later.
  const bool residual =
      last && call.options.residual && call.options.post_norm != PostNorm::of_result;
  size_t operands = size_t{residual};
  for (size_t i = 0; i < count; ++i) operands += size_t{has_bias(first + i)};
  program.inputs = static_cast<int>(count + operands);
  int operand = static_cast<int>(count);
  const auto biased = [&](size_t i) {
    const int product = static_cast<int>(i);
    return has_bias(first + i) ? push(program, {PointwiseFn::add, product, operand++}) : product;
  };
  int value = biased(0);
  const int second = count == 2 ? biased(1) : 0;
  if (count == 2) {
    value = push_gate(program, call.activation, call.options.clamp, value, second);
  } else if (!last && !call.gated) {
    value = push_activation(program, call.activation, value);
  }
  if (residual) value = push(program, {PointwiseFn::add, operand, value});
  program.outputs = {value};
  add_stage(spec, {weights.begin(), weights.end()}, std::move(program), operands);
}

}  // namespace

void fail(const FusedSpec& spec, const std::string& expected, const std::string& got) {
  throw Error(std::string("[") + spec.name + "] expected " + expected + ", got " + got);
}

namespace {

std::string weight_name(const FusedSpec& spec, size_t i) {
  constexpr const char* kGated[] = {"gate", "up", "down"};
  return spec.gated ? kGated[i] : "a weight";
}

}  // namespace

void require_fit(const FusedSpec& spec, const Tensor* x) {
  const FusedOptions& o = spec.options;
  require_norm(spec, pre_norm(o));
  require_norm(spec, post_norm(o));
  require_post_norm(spec);
  require_clamp(spec);
  if (x != nullptr && (!x->defined() || x->dim() == 0)) fail(spec, "rows [..., k]", to_string(*x));
  if (!spec.biases.empty() && spec.biases.size() != spec.weights.size())
    fail(spec, "one bias per weight", std::to_string(spec.biases.size()));
  if (spec.weights.empty()) fail(spec, "at least one weight", "none");
  const Tensor& first = spec.weights[0];
  if (!first.defined() || first.dim() != 2) fail(spec, "a weight [n, k]", to_string(first));
  const int64_t columns = x != nullptr ? x->size(-1) : first.size(1);
  const DType dtype = x != nullptr ? x->dtype() : first.dtype();
  int64_t k = columns;
  for (size_t i = 0; i < spec.weights.size(); ++i) {
    const Tensor& w = spec.weights[i];
    if (!w.defined() || w.dim() != 2 || w.size(1) != k || w.dtype() != dtype)
      fail(spec, weight_name(spec, i) + " [n, " + std::to_string(k) + "] of x's dtype",
           to_string(w));
    if (!spec.biases.empty()) require_parameter(spec, spec.biases[i], w.size(0), "a bias");
    if (spec.gated && i == 1 && !(w.sizes() == first.sizes()))
      fail(spec, "up of gate's shape " + to_string(first.sizes()), to_string(w));
    if (!spec.side_by_side && (!spec.gated || i > 0)) k = w.size(0);
  }
  require_parameter(spec, o.norm_weight, columns, "a norm weight");
  require_parameter(spec, o.norm_bias, columns, "a norm bias");
  require_parameter(spec, o.post_norm_weight, k, "a post norm weight");
  require_parameter(spec, o.post_norm_bias, k, "a post norm bias");
  if (o.residual && spec.residual_is_x && k != columns)
    fail(spec, "as many columns in the result as in x for a residual", std::to_string(k));
  require_one_device(spec, x != nullptr ? *x : first);
}

FusedNorm pre_norm(const FusedOptions& o) {
  return {o.norm, eps_of(o.norm, o.eps), o.norm_weight, o.norm_bias, o.norm_weight_is};
}

FusedNorm post_norm(const FusedOptions& o) {
  const Norm kind = o.post_norm == PostNorm::none ? Norm::none : o.post_norm_kind;
  return {kind, eps_of(kind, o.post_eps), o.post_norm_weight, o.post_norm_bias, o.norm_weight_is};
}

bool chain_does_norm(const FusedOptions& o, Device device) {
  return o.norm != Norm::rms || o.norm_weight_is == NormWeight::product ||
         device.type == DeviceType::cpu;
}

Tensor norm_by_ops(const FusedNorm& norm, const Tensor& x) {
  const Dims row{x.size(-1)};
  if (norm.kind == Norm::none) return x;
  if (norm.kind == Norm::layer) return layer_norm(x, row, norm.weight, norm.bias, norm.eps);
  if (norm.weight_is == NormWeight::product || !norm.weight.defined())
    return rms_norm(x, row, norm.weight, norm.eps);
  if (norm.weight_is == NormWeight::rounded) return rms_norm(x, row, {}, norm.eps) * norm.weight;
  const Tensor plain = rms_norm(to(x, DType::f32), row, {}, norm.eps);
  return to(plain * (to(norm.weight, DType::f32) + 1.0), x.dtype());
}

Quantisation bits_of(const FusedOptions& o) {
  Quantisation bits = o.bits;
  if (o.int8_weights && bits.weights == WeightBits::same) bits.weights = WeightBits::int8;
  return bits;
}

RowChainSpec row_chain_of(const FusedSpec& spec) {
  RowChainSpec chain = {.dtype = spec.weights[0].dtype(),
                        .bits = bits_of(spec.options),
                        .side_by_side = spec.side_by_side};
  if (!spec.rounded.empty()) {
    const Quantisation rest = {.activations = chain.bits.activations};
    if (!(chain.bits == rest))
      fail(spec, "no bits but of activations for weights that are rounded already", "others");
    chain.bits.weights =
        std::holds_alternative<Int8Weight>(spec.rounded[0]) ? WeightBits::int8 : WeightBits::int4;
    for (const RoundedWeight& any : spec.rounded) {
      const auto* const bytes = std::get_if<Int8Weight>(&any);
      chain.int4.push_back(
          bytes == nullptr
              ? std::get<Int4Weight>(any)
              : Int4Weight{bytes->n, bytes->k, 0, bytes->steps, bytes->scales, {}, {}});
    }
  }
  if (chain_does_norm(spec.options, spec.weights[0].device())) {
    const FusedNorm norm = pre_norm(spec.options);
    chain.norm = {norm.kind, norm.eps, norm.weight, norm.bias, norm.weight_is};
  }
  for (size_t i = 0; i < spec.weights.size();) {
    const size_t count = spec.gated && i == 0 ? 2 : 1;
    add_products(chain, spec, i, count);
    i += count;
  }
  return chain;
}

namespace {

// The activation's ops after product i, in the order of GatedMLP::forward().
std::vector<ActivationOp> ops_after(const FusedSpec& call, size_t i) {
  if (call.side_by_side || i + 1 == call.weights.size() || (call.gated && i > 1)) return {};
  std::vector<ActivationOp> ops = ops_of(call.activation);
  if (!call.gated) return ops;
  // One branch alone goes through all of them but the product of both.
  const bool is_of_gate = call.activation != Activation::clamped_swiglu;
  const auto join = ops.end() - 1;
  if (i == 0) return is_of_gate ? std::vector(ops.begin(), join) : std::vector<ActivationOp>();
  return is_of_gate ? std::vector(join, ops.end()) : ops;
}

}  // namespace

FusedWork work_of(const FusedSpec& call) {
  FusedWork work;
  const auto element = static_cast<double>(dtype_bytes(call.weights[0].dtype()));
  // An op that reads and writes `operands` elements of every row.
  const auto add_op = [&](const OpDef& op, int64_t operands) {
    work.names.push_back(op.name);
    work.unfused_bytes_per_row += element * static_cast<double>(operands);
  };
  const auto add_parameter = [&](const Tensor& t) {
    if (t.defined()) work.parameter_bytes += static_cast<double>(t.bytes());
  };
  const FusedOptions& o = call.options;
  if (o.norm != Norm::none && chain_does_norm(o, call.weights[0].device())) {
    const bool is_rms = o.norm == Norm::rms;
    add_op(is_rms ? kFusedRmsNorm : kNativeLayerNorm, 2 * call.weights[0].size(1));
    // Its other results, one or two per row: 1 / deviation, and the mean.
    work.unfused_bytes_per_row += static_cast<double>(sizeof(float) * (is_rms ? 1 : 2));
  }
  add_parameter(o.norm_weight);
  add_parameter(o.norm_bias);
  for (size_t i = 0; i < call.weights.size(); ++i) {
    const Tensor& w = call.weights[i];
    const int64_t n = w.size(0);
    const bool bias = !call.biases.empty() && call.biases[i].defined();
    add_op(bias ? kAddmm : kMm, w.size(1) + n);
    add_parameter(w);
    if (bias) add_parameter(call.biases[i]);
    work.flops_per_row += 2.0 * static_cast<double>(w.numel());
    for (const auto& [op, operands] : ops_after(call, i)) add_op(*op, operands * n);
    if (i + 1 == call.weights.size() && o.residual && o.post_norm != PostNorm::of_result)
      add_op(kAdd, 3 * n);
  }
  return work;
}

}  // namespace epilogue::nn
