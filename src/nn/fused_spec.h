// SPDX-License-Identifier: Apache-2.0
// What a fused MLP computes: checks, the row chain that does it, and what that stands for.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "core/row_chain.h"
#include "epilogue/fused.h"

namespace epilogue::nn {

struct FusedSpec {
  const char* name;                 // that messages begin with
  std::span<const Tensor> weights;  // gated: gate, up, down
  std::span<const Tensor> biases;   // empty, or one per weight
  Activation activation;
  const FusedOptions& options;
  bool gated;
  bool residual_is_x = true;                    // else a tensor of the result's sizes
  std::span<const RoundedWeight> rounded = {};  // instead of the weights' values, or empty
  bool side_by_side = false;                    // each weight reads x, and has a result of its own
};

// Throws Error where its tensors or options do not fit each other or, where it is not null, x.
void require_fit(const FusedSpec& spec, const Tensor* x);
[[noreturn]] void fail(const FusedSpec& spec, const std::string& expected, const std::string& got);

// With `int8_weights` among them.
Quantisation bits_of(const FusedOptions& options);

// All but the norms that norm_by_ops() does.
RowChainSpec row_chain_of(const FusedSpec& spec);

// A norm of the last dimension as public ops, of any form.
struct FusedNorm {
  Norm kind;
  double eps;
  Tensor weight;
  Tensor bias;
  NormWeight weight_is;
};
Tensor norm_by_ops(const FusedNorm& norm, const Tensor& x);
FusedNorm pre_norm(const FusedOptions& options);
FusedNorm post_norm(const FusedOptions& options);
// Whether a row chain on this device does the norm before the first product.
bool chain_does_norm(const FusedOptions& options, Device device);

// The ATen ops that the chain stands for, and what they and the one kernel do: per row, and
// whatever the number of rows.
struct FusedWork {
  std::vector<std::string_view> names;
  double flops_per_row = 0;  // of the products
  double unfused_bytes_per_row = 0;
  double parameter_bytes = 0;
};

FusedWork work_of(const FusedSpec& spec);

}  // namespace epilogue::nn
