// SPDX-License-Identifier: Apache-2.0
// Each call builds a row chain's description; the last chains are kept with their packed weights.
#include "epilogue/fused.h"

#include <algorithm>
#include <limits>
#include <list>

#include "core/backend.h"
#include "core/fused_call.h"
#include "nn/activation.h"
#include "ops/norms.h"
#include "ops/ops.h"
#include "ops/pointwise/pointwise.h"

namespace epilogue {
namespace {

constinit const OpDef kFusedGatedMlp{.name = "epilogue::fused_gated_mlp",
                                     .schema = "(Tensor x, Tensor[] weights)"};
constinit const OpDef kFusedMlp{.name = "epilogue::fused_mlp",
                                .schema = "(Tensor x, Tensor[] weights)"};

// Chains that a thread keeps: the layers of a small model.
constexpr size_t kCachedChains = 64;
constexpr double kLayerNormEps = 1e-5;

// What makes two calls the same kernel.
struct Leaf {
  const void* data = nullptr;
  const detail::Storage* storage = nullptr;
  Dims sizes;
  Dims strides;
  DType dtype = DType::f32;
  bool operator==(const Leaf&) const = default;
};
struct Key {
  std::vector<Leaf> leaves;
  nn::Activation activation = nn::Activation::gelu;
  Norm norm = Norm::none;
  double eps = 0;
  bool residual = false;
  bool gated = false;
  bool int8_weights = false;
  bool operator==(const Key&) const = default;
};

// The ATen ops that a call stands for, and what they and the one kernel do: per row, and whatever
// the number of rows.
struct Work {
  std::vector<std::string_view> names;
  double flops_per_row = 0;  // of the products
  double unfused_bytes_per_row = 0;
  double parameter_bytes = 0;
};

struct Cached {
  Key key;
  RowChainSpec spec;
  std::unique_ptr<RowChain> chain;
  Work work;
  FusedOps ops;
};
thread_local std::list<Cached> cache;  // the last used comes first

Leaf leaf_of(const Tensor& t) {
  if (!t.defined()) return {};
  return {t.data(), t.impl()->storage.get(), t.sizes(), t.strides(), t.dtype()};
}

// One call, before it is a chain.
struct FusedMlp {
  const char* name;
  const OpDef& op;
  const Tensor& x;
  std::span<const Tensor> weights;  // gated: gate, up, down
  std::span<const Tensor> biases;
  nn::Activation activation;
  const FusedOptions& options;
  bool gated;
};

[[noreturn]] void fail(const FusedMlp& call, const std::string& expected, const std::string& got) {
  throw Error(std::string("[") + call.name + "] expected " + expected + ", got " + got);
}

double eps_of(const FusedOptions& o) {
  if (o.eps) return *o.eps;
  return o.norm == nn::Norm::layer ? kLayerNormEps : double{std::numeric_limits<float>::epsilon()};
}

void require_no_gradient(const FusedMlp& call) {
  if (thread_state().capture != nullptr)
    fail(call, "a function that is compiled to call ops, not fused kernels",
         "a call while it is being compiled");
  if (!thread_state().grad_enabled) return;
  const auto wants = [](const Tensor& t) { return t.defined() && t.requires_grad(); };
  if (wants(call.x) || wants(call.options.norm_weight) || wants(call.options.norm_bias) ||
      std::any_of(call.weights.begin(), call.weights.end(), wants) ||
      std::any_of(call.biases.begin(), call.biases.end(), wants))
    fail(call, "no_grad: there is no backward pass", "a tensor that requires a gradient");
}

void require_parameter(const FusedMlp& call, const Tensor& t, int64_t n, const char* what) {
  if (!t.defined()) return;
  if (t.dim() != 1 || t.size(0) != n || t.dtype() != call.x.dtype())
    fail(call, std::string(what) + " [" + std::to_string(n) + "] of x's dtype", to_string(t));
}

void require_one_device(const FusedMlp& call) {
  const auto elsewhere = [&](const Tensor& t) {
    return t.defined() && !(t.device() == call.x.device());
  };
  if (elsewhere(call.options.norm_weight) || elsewhere(call.options.norm_bias) ||
      std::any_of(call.weights.begin(), call.weights.end(), elsewhere) ||
      std::any_of(call.biases.begin(), call.biases.end(), elsewhere))
    fail(call, "every tensor on x's device " + to_string(call.x.device()), "one that is elsewhere");
}

void require_norm_options(const FusedMlp& call) {
  const FusedOptions& o = call.options;
  if (o.norm == nn::Norm::none && (o.norm_weight.defined() || o.norm_bias.defined()))
    fail(call, "no norm weight or bias without a norm",
         to_string(o.norm_weight.defined() ? o.norm_weight : o.norm_bias));
  if (o.norm == nn::Norm::rms && o.norm_bias.defined())
    fail(call, "no norm bias with an RMS norm", to_string(o.norm_bias));
  if (!is_norm_eps(eps_of(o))) fail(call, "a finite eps >= 0", std::to_string(eps_of(o)));
}

void require_fit(const FusedMlp& call) {
  require_norm_options(call);
  if (!call.x.defined() || call.x.dim() == 0) fail(call, "rows [..., k]", to_string(call.x));
  if (!call.biases.empty() && call.biases.size() != call.weights.size())
    fail(call, "one bias per weight", std::to_string(call.biases.size()));
  if (call.weights.empty()) fail(call, "at least one weight", "none");
  int64_t k = call.x.size(-1);
  require_parameter(call, call.options.norm_weight, k, "a norm weight");
  require_parameter(call, call.options.norm_bias, k, "a norm bias");
  for (size_t i = 0; i < call.weights.size(); ++i) {
    const Tensor& w = call.weights[i];
    if (!w.defined() || w.dim() != 2 || w.size(1) != k || w.dtype() != call.x.dtype())
      fail(call, "a weight [n, " + std::to_string(k) + "] of x's dtype", to_string(w));
    if (!call.biases.empty()) require_parameter(call, call.biases[i], w.size(0), "a bias");
    if (call.gated && i == 1 && !(w.sizes() == call.weights[0].sizes()))
      fail(call, "gate and up of one shape", to_string(w));
    if (!call.gated || i > 0) k = w.size(0);
  }
  if (call.options.residual && k != call.x.size(-1))
    fail(call, "as many columns in the result as in x for a residual", std::to_string(k));
}

// Appends a step; returns its value.
int push(PointwiseProgram& program, PointwiseStep step) {
  program.steps.push_back(step);
  return program.values() - 1;
}

// Appends weights [first, first + count) with what follows their products.
void add_products(RowChainSpec& spec, const FusedMlp& call, size_t first, size_t count) {
  const std::span<const Tensor> weights = call.weights.subspan(first, count);
  PointwiseProgram program;
  const bool last = first + count == call.weights.size();
  const bool bias = !call.biases.empty() && call.biases[first].defined();
  const bool residual = last && call.options.residual;
  const size_t operands = size_t{bias} + size_t{residual};
  program.inputs = static_cast<int>(count + operands);
  int value = 0;
  int operand = static_cast<int>(count);
  if (bias) value = push(program, {PointwiseFn::add, value, operand++});
  if (!last) value = push(program, {nn::function_of(call.activation), value});
  if (count == 2) value = push(program, {PointwiseFn::mul, value, 1});
  if (residual) value = push(program, {PointwiseFn::add, operand, value});
  program.outputs = {value};
  add_stage(spec, {weights.begin(), weights.end()}, std::move(program), operands);
}

RowChainSpec spec_of(const FusedMlp& call) {
  RowChainSpec spec;
  spec.dtype = call.x.dtype();
  spec.int8_weights = call.options.int8_weights;
  spec.norm = {call.options.norm, eps_of(call.options), call.options.norm_weight,
               call.options.norm_bias};
  for (size_t i = 0; i < call.weights.size();) {
    const size_t count = call.gated && i == 0 ? 2 : 1;
    add_products(spec, call, i, count);
    i += count;
  }
  return spec;
}

const OpDef& op_of(nn::Activation activation) {
  return *pointwise_op_of(nn::function_of(activation));
}

Work work_of(const FusedMlp& call) {
  Work work;
  const auto element = static_cast<double>(dtype_bytes(call.x.dtype()));
  // An op that reads and writes `operands` elements of every row.
  const auto add_op = [&](const OpDef& op, int64_t operands) {
    work.names.push_back(op.name);
    work.unfused_bytes_per_row += element * static_cast<double>(operands);
  };
  const auto add_parameter = [&](const Tensor& t) {
    if (t.defined()) work.parameter_bytes += static_cast<double>(t.bytes());
  };
  const FusedOptions& o = call.options;
  if (o.norm != nn::Norm::none) {
    const bool is_rms = o.norm == nn::Norm::rms;
    add_op(is_rms ? kFusedRmsNorm : kNativeLayerNorm, 2 * call.x.size(-1));
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
    const bool is_up = call.gated && i == 1;
    if (i + 1 < call.weights.size() && !is_up) add_op(op_of(call.activation), 2 * n);
    if (is_up) add_op(kMul, 3 * n);
    if (i + 1 == call.weights.size() && o.residual) add_op(kAdd, 3 * n);
  }
  return work;
}

Cached& chain_for(const FusedMlp& call) {
  Key key{{},
          call.activation,
          call.options.norm,
          eps_of(call.options),
          call.options.residual,
          call.gated,
          call.options.int8_weights};
  for (const Tensor& w : call.weights) key.leaves.push_back(leaf_of(w));
  for (const Tensor& b : call.biases) key.leaves.push_back(leaf_of(b));
  key.leaves.push_back(leaf_of(call.options.norm_weight));
  key.leaves.push_back(leaf_of(call.options.norm_bias));
  for (auto it = cache.begin(); it != cache.end(); ++it) {
    if (!(it->key == key)) continue;
    cache.splice(cache.begin(), cache, it);
    return cache.front();
  }
  RowChainSpec spec = spec_of(call);
  std::unique_ptr<RowChain> chain = backend_of(call.x.device()).make_row_chain(spec);
  Work work = work_of(call);
  FusedOps ops(work.names);
  cache.push_front(
      {std::move(key), std::move(spec), std::move(chain), std::move(work), std::move(ops)});
  if (cache.size() > kCachedChains) cache.pop_back();
  return cache.front();
}

// The operands in the order in which the stages count them: biases, then the residual.
std::vector<MatrixView> operands_of(const FusedMlp& call, const MatrixView& x) {
  std::vector<MatrixView> views;
  for (const Tensor& b : call.biases)
    if (b.defined()) views.push_back({b.data(), b.dtype(), 0, b.strides()[0]});
  if (call.options.residual) views.push_back(x);
  return views;
}

FusedKernelNotes notes_of(const FusedMlp& call, const Cached& cached, int64_t rows,
                          const Tensor& out) {
  const Work& work = cached.work;
  const auto n = static_cast<double>(rows);
  return {describe_row_chain(*cached.chain, rows, cached.ops.short_names, call.x.dtype()),
          work.flops_per_row * n,
          work.parameter_bytes + static_cast<double>(call.x.bytes() + out.bytes()),
          work.parameter_bytes + work.unfused_bytes_per_row * n, cached.ops.full_names};
}

Tensor run(const FusedMlp& call) {
  require_fit(call);
  require_one_device(call);
  require_no_gradient(call);
  const Cached& cached = chain_for(call);
  const int64_t k = call.x.size(-1);
  const Tensor rows_of_x = reshape(call.x, {k == 0 ? 0 : call.x.numel() / k, k});
  const Tensor x = k > 1 && rows_of_x.strides()[1] != 1 ? contiguous(rows_of_x) : rows_of_x;
  Dims sizes = call.x.sizes();
  sizes[sizes.rank() - 1] = call.weights.back().size(0);
  Tensor out = empty(sizes, call.x.dtype(), call.x.device());
  const int64_t rows = x.size(0);
  const MatrixView x_view{x.data(), x.dtype(), x.strides()[0], 1};
  const MatrixView out_view{out.data(), out.dtype(), sizes[sizes.rank() - 1], 1};
  const std::vector<MatrixView> operands = operands_of(call, x_view);
  const auto inputs = [&] {
    std::vector<Tensor> list = {call.x};
    list.insert(list.end(), call.weights.begin(), call.weights.end());
    return list;
  };
  const auto notes = [&] { return notes_of(call, cached, rows, out); };
  run_fused({call.op, inputs, notes}, {&out, 1}, [&] {
    cached.chain->run(rows, x_view, operands, {&out_view, 1});
  });
  return out;
}

}  // namespace

Tensor fused_gated_mlp(const Tensor& x, const Tensor& gate, const Tensor& up, const Tensor& down,
                       nn::Activation activation, const FusedOptions& options) {
  if (!nn::is_gated(activation))
    throw Error("[fused_gated_mlp] expected a gated activation, got " +
                std::string(nn::activation_name(activation)));
  const Tensor weights[] = {gate, up, down};
  return run({"fused_gated_mlp", kFusedGatedMlp, x, weights, {}, activation, options, true});
}

Tensor fused_mlp(const Tensor& x, std::span<const Tensor> weights, std::span<const Tensor> biases,
                 nn::Activation activation, const FusedOptions& options) {
  if (nn::is_gated(activation))
    throw Error("[fused_mlp] expected a plain activation, got " +
                std::string(nn::activation_name(activation)));
  return run({"fused_mlp", kFusedMlp, x, weights, biases, activation, options, false});
}

namespace {

std::optional<Tensor> forward(const nn::Module& module, const Tensor& x,
                              const FusedOptions& options) {
  if (const auto* gated = dynamic_cast<const nn::GatedMLP*>(&module)) {
    if (gated->gate_proj.bias.defined()) return std::nullopt;
    return fused_gated_mlp(x, gated->gate_proj.weight, gated->up_proj.weight,
                           gated->down_proj.weight, gated->activation(), options);
  }
  const auto* mlp = dynamic_cast<const nn::MLP*>(&module);
  if (mlp == nullptr) return std::nullopt;
  std::vector<Tensor> weights;
  std::vector<Tensor> biases;
  for (size_t i = 0; i < mlp->num_linears(); ++i) {
    weights.push_back(mlp->fc(i).weight);
    biases.push_back(mlp->fc(i).bias);
  }
  return fused_mlp(x, weights, biases, mlp->activation(), options);
}

}  // namespace

std::optional<Tensor> fused_forward(const nn::Module& module, const Tensor& x) {
  const auto* block = dynamic_cast<const nn::Block*>(&module);
  if (block == nullptr) return forward(module, x, {});
  FusedOptions options;
  options.residual = block->has_residual();
  if (const auto* rms = dynamic_cast<const nn::RMSNorm*>(block->norm())) {
    options.norm = nn::Norm::rms;
    options.norm_weight = rms->weight;
    options.eps = rms->eps();
  } else if (const auto* layer = dynamic_cast<const nn::LayerNorm*>(block->norm())) {
    options.norm = nn::Norm::layer;
    options.norm_weight = layer->weight;
    options.norm_bias = layer->bias;
    options.eps = layer->eps();
  }
  return forward(block->mlp(), x, options);
}

void clear_fused_cache() { cache.clear(); }

}  // namespace epilogue
