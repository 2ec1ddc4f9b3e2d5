// SPDX-License-Identifier: Apache-2.0
// MLPs as one hand-chosen kernel each: what compile() finds by itself, called by name.
//
// Inference only: throws Error where gradients are on and a tensor requires one. Weights are packed
// at the first call and again after they were written.
//
// Each thread keeps its last 64 kernels (one per set of weights and options) until
// clear_fused_cache() or its end: their weights, so that the deleter of a from_blob() tensor waits
// as long, and a packed copy of them, about as large again, which memory_stats() does not count.
// Pass the same tensors call after call: a fresh from_blob() of the same memory is packed anew.
#pragma once

#include <optional>
#include <span>

#include "epilogue/nn.h"

namespace epilogue {

struct FusedOptions {
  nn::Norm norm = nn::Norm::none;  // of x, before the first product
  Tensor norm_weight = {};         // with a norm only
  Tensor norm_bias = {};           // of a layer norm only
  std::optional<double> eps = {};  // default: 1e-5 for layer norm, f32's epsilon for RMS norm
  bool residual = false;           // adds x to the result
  bool int8_weights = false;       // see CompileOptions
};

// x [..., k]; gate and up [h, k], down [n, h], as nn.Linear holds them, without biases:
//   down (act(gate norm(x)) * (up norm(x))) (+ x)
// f32, bf16 or f16, all of one dtype. Throws Error where shapes, dtypes or options do not fit, or
// on a plain activation.
Tensor fused_gated_mlp(const Tensor& x, const Tensor& gate, const Tensor& up, const Tensor& down,
                       nn::Activation activation, const FusedOptions& options = {});

// weights[i] [n, k]; an activation between each two. biases: empty, or one per weight (undefined
// where there is none). Throws Error likewise, or on a gated activation.
Tensor fused_mlp(const Tensor& x, std::span<const Tensor> weights, std::span<const Tensor> biases,
                 nn::Activation activation, const FusedOptions& options = {});

// The module's forward by one of the above; nullopt where it is no MLP, no GatedMLP without biases
// and no Block of one of these.
std::optional<Tensor> fused_forward(const nn::Module& module, const Tensor& x);

// Drops this thread's kernels with the weights and packed copies that they hold.
void clear_fused_cache();

}  // namespace epilogue
