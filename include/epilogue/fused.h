// SPDX-License-Identifier: Apache-2.0
// MLPs as one hand-chosen kernel each: what compile() finds by itself, called by name.
//
//   const FusedMlp mlp = FusedMlp::gated(gate, up, down, nn::Activation::swiglu);
//   Tensor y = mlp(x);       // from any number of threads
//   mlp.run_into(x, out);    // into memory of the caller
//
// Inference only: throws Error where gradients are on and a tensor requires one. Weights are packed
// at the first call, and again after they were written. The packed copy is about as large as the
// weights; MemoryStats::packed_bytes counts it. All kernels and compiled functions of a process
// that use a weight in one layout share one copy, which goes with the last of them.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "epilogue/nn.h"
#include "epilogue/rounded_weight.h"

#pragma GCC visibility push(default)

namespace epilogue {

// Of what a norm's result is the input.
enum class PostNorm : uint8_t {
  none,
  of_result,    // x + norm(mlp(x)): Gemma 2's
  of_residual,  // norm(x + mlp(x)): BERT's and the first transformer's
};

struct FusedOptions {
  nn::Norm norm = nn::Norm::none;  // of x, before the first product
  Tensor norm_weight = {};         // with a norm only
  Tensor norm_bias = {};           // of a layer norm only
  std::optional<double> eps = {};  // default: 1e-5 for layer norm, f32's epsilon for RMS norm
  bool residual = false;           // adds x to the result
  Quantisation bits = {};          // of weights, and of rows between products
  bool int8_weights = false;       // the same as bits.weights = WeightBits::int8
  NormWeight norm_weight_is = NormWeight::product;  // of both RMS norms
  // A second norm, after the last product: kernels of its own. of_residual needs `residual`.
  PostNorm post_norm = PostNorm::none;
  nn::Norm post_norm_kind = nn::Norm::rms;
  Tensor post_norm_weight = {};
  Tensor post_norm_bias = {};  // of a layer norm only
  std::optional<double> post_eps = {};
  nn::SwiGluClamp clamp = {};  // of Activation::clamped_swiglu
};

// A fused MLP that its owner holds. A copy is the same one. Calls are safe from several threads;
// weights are written while no call runs.
class FusedMlp {
 public:
  // As fused_gated_mlp() and fused_mlp(), whose arguments beside x they take. Weights may be views
  // (transposed ones, as GPT-2's Conv1D holds them); biases[i] may be undefined. Throw Error where
  // shapes, dtypes or options do not fit.
  static FusedMlp gated(const Tensor& gate, const Tensor& up, const Tensor& down,
                        nn::Activation activation, const FusedOptions& options = {},
                        std::span<const Tensor> biases = {});
  static FusedMlp plain(std::span<const Tensor> weights, std::span<const Tensor> biases,
                        nn::Activation activation, const FusedOptions& options = {});

  // The same of weights that are rounded already (read_gptq(), read_awq(), read_rounded(),
  // round_weight()), for x of `dtype`. Their steps and scales are packed as they are; of
  // options.bits `activations` alone may be set. Throws Error also where some have 4 bits and
  // others 8, where a weight has an order of inputs of its own, or scales of another dtype than the
  // others.
  static FusedMlp gated(const RoundedWeight& gate, const RoundedWeight& up,
                        const RoundedWeight& down, nn::Activation activation, DType dtype,
                        const FusedOptions& options = {}, std::span<const Tensor> biases = {});
  static FusedMlp plain(std::span<const RoundedWeight> weights, std::span<const Tensor> biases,
                        nn::Activation activation, DType dtype, const FusedOptions& options = {});

  // x [..., k] -> [..., n], of the weights' dtype. Throws Error where x does not fit, or where a
  // weight was given other memory since (Module::to()).
  Tensor operator()(const Tensor& x) const;
  // The same into `out`: contiguous, of the result's sizes and dtype, apart from x.
  void run_into(const Tensor& x, const Tensor& out) const;

  class Impl;

 private:
  explicit FusedMlp(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<const Impl> impl_;
};

// Linear layers that read the same rows (q, k and v) with packed weights: on CPUs one kernel, which
// reads and packs x once for all of them. Of FusedOptions the norm of x counts, `residual` (of one
// weight alone: another tensor is added to the result) and `int8_weights`. Copies, threads and
// writes of weights are as FusedMlp's.
class FusedLinear {
 public:
  // weights[i] [n_i, k], views too; biases: empty, or one per weight, undefined where there is
  // none. Throws Error where shapes, dtypes or options do not fit.
  explicit FusedLinear(std::span<const Tensor> weights, std::span<const Tensor> biases = {},
                       const FusedOptions& options = {});
  // The same of weights that are rounded already, as FusedMlp takes them.
  FusedLinear(std::span<const RoundedWeight> weights, std::span<const Tensor> biases, DType dtype,
              const FusedOptions& options = {});
  // x [..., k] -> outs[i] [..., n_i], contiguous, of x's dtype, apart from x, the residual and each
  // other. Throws Error as FusedMlp's calls do.
  void run_into(const Tensor& x, std::span<const Tensor> outs, const Tensor& residual = {}) const;

 private:
  void add_parts(std::span<const Tensor> weights, std::span<const RoundedWeight> rounded,
                 std::span<const Tensor> biases, const FusedOptions& options);
  std::vector<std::shared_ptr<const FusedMlp::Impl>> parts_;  // each of one weight, or one of all
};

// x [..., k]; gate and up [h, k], down [n, h], as nn.Linear holds them:
//   down (act(gate norm(x) + b0) * (up norm(x) + b1)) + b2 (+ x)
// f32, bf16 or f16, all of one dtype. biases: empty, or three, undefined where there is none.
// Throws Error where shapes, dtypes or options do not fit, or on a plain activation.
//
// The process keeps the last 1024 FusedMlp that these functions made, with their weights, so that
// the deleter of a from_blob() tensor waits as long. Pass the same tensors call after call: a fresh
// from_blob() of the same memory is packed anew. Who wants to own that holds a FusedMlp.
Tensor fused_gated_mlp(const Tensor& x, const Tensor& gate, const Tensor& up, const Tensor& down,
                       nn::Activation activation, const FusedOptions& options = {},
                       std::span<const Tensor> biases = {});

// weights[i] [n, k]; an activation between each two. biases: empty, or one per weight (undefined
// where there is none). Throws Error likewise, or on a gated activation.
Tensor fused_mlp(const Tensor& x, std::span<const Tensor> weights, std::span<const Tensor> biases,
                 nn::Activation activation, const FusedOptions& options = {});

// The module's forward by one of the above; nullopt where it is no MLP, no GatedMLP and no Block of
// one of these.
std::optional<Tensor> fused_forward(const nn::Module& module, const Tensor& x,
                                    const Quantisation& bits = {});

// Drops what the process keeps for the functions above.
void clear_fused_cache();

struct AttentionOptions {
  std::optional<double> scale = {};  // default: 1 / sqrt(columns of q)
  bool causal = false;               // query i sees keys 0 to i
};

// softmax(q k^T * scale + mask) v as one kernel that holds no scores, as
// torch.nn.functional.scaled_dot_product_attention computes it:
//
//   q [batch, heads, queries, depth], k [batch, heads / g, keys, depth],
//   v [batch, heads / g, keys, values] -> [batch, heads, queries, values]
//
// g heads in a row share keys and values. Strides may be any. All of f32, bf16 or f16 and of one
// dtype; arithmetic is f32 (of bf16 on tiles exponentials are good to 8e-5, a twentieth of what
// rounding them loses). The mask broadcasts to [batch, heads, queries, keys]: booleans, false where
// a query does not see a key, or numbers of f32 or q's dtype that are added; undefined: none. Of
// booleans and causal limits, blocks of keys that nobody sees are not computed. A query that sees
// no key gets 0.
//
// Inference only, CPU only; safe from several threads; no bit depends on the number of threads.
// Throws Error where shapes, dtypes or devices do not fit, or gradients are on and a tensor
// requires one.
Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask = {},
                 const AttentionOptions& options = {});
// The same into `out`, of the result's sizes and q's dtype with contiguous columns, apart from the
// operands.
void attention_into(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask,
                    const AttentionOptions& options, const Tensor& out);

// An expert of a mixture, as nn.Linear holds its weights; views with any strides.
struct Expert {
  Tensor gate;            // [h, k]; undefined: the expert is not gated
  Tensor up;              // [h, k]
  Tensor down;            // [n, h]
  Tensor gate_bias = {};  // undefined: none
  Tensor up_bias = {};
  Tensor down_bias = {};
};

// How weights of all experts lie in one tensor of three dimensions.
struct ExpertLayout {
  bool gated = true;
  // Gate's rows and up's alternate, as GPT-OSS has them; else all of gate's come first.
  bool interleaved = false;
  // [experts, in, out], as GPT-OSS has them; else [experts, out, in].
  bool transposed = false;
};

// Views of one tensor for each product: up [experts, 2 h, k] with gate and up in it ([experts, h,
// k] without a gate), down [experts, n, h], transposed where the layout says so; biases [experts, 2
// h] and [experts, n], or undefined. Throws Error where shapes do not fit.
std::vector<Expert> split_experts(const Tensor& up, const Tensor& down,
                                  const ExpertLayout& layout = {}, const Tensor& up_bias = {},
                                  const Tensor& down_bias = {});

// The experts of a mixture-of-experts layer as one call:
//
//   y[t] = sum over j of weights[t, j] * expert index[t, j] of x[t]
//   expert(x) = down (act(gate x + b0) * (up x + b1)) + b2, or down act(up x + b1) + b2
//
//   const FusedExperts experts(split_experts(gate_up_proj, down_proj), nn::Activation::swiglu);
//   Tensor y = experts(x, top_k_index, top_k_weights);
//
// Pairs of a token and an expert are sorted by expert, so that an expert's weights are read once
// for all of its tokens (about 100 at a time). With few tokens the threads share each expert's
// weights, with many each takes blocks of an expert's tokens. The sum over j is f32, in the order
// of j, and no bit depends on the number of threads. A call keeps the results of its pairs, f32, in
// up to 128 MiB of its thread's memory.
//
// Inference only, CPU only. A copy is the same one. Calls are safe from several threads; weights
// are written while no call runs. An expert's weights are packed when a token chooses it first, and
// again after they were written; packed_bytes() says how much that takes.
class FusedExperts {
 public:
  // f32, bf16 or f16, all of one dtype; all experts alike in shapes, gate and biases. Throws Error
  // where they do not fit each other, or a gate the activation. `bits`: what weights (and rows) are
  // rounded to.
  FusedExperts(std::vector<Expert> experts, nn::Activation activation,
               const nn::SwiGluClamp& clamp = {}, const Quantisation& bits = {});

  // x [tokens, k] of the experts' dtype; index [tokens, j] of i64, from 0 to the number of experts,
  // which stands for none (expert-parallel models send the pairs of other ranks there); weights
  // [tokens, j] of f32 or x's dtype -> [tokens, n]. Throws Error where these do not fit, on an
  // index out of range, or where a weight was given other memory since (Module::to()).
  Tensor operator()(const Tensor& x, const Tensor& index, const Tensor& weights) const;
  // The same into `out`: contiguous, of the result's sizes and x's dtype, apart from x.
  void run_into(const Tensor& x, const Tensor& index, const Tensor& weights,
                const Tensor& out) const;

  // Bytes that the packed weights of all experts take at the level in use.
  int64_t packed_bytes() const;
  int64_t experts() const;
  int64_t columns() const;  // n

  class Impl;

 private:
  std::shared_ptr<const Impl> impl_;
};

}  // namespace epilogue

#pragma GCC visibility pop
