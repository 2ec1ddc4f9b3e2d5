// SPDX-License-Identifier: Apache-2.0
// The contenders' computation, in a form that every peer understands: products of rows with
// weights, and what follows each.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "epilogue/nn.h"

namespace epilogue::bench {

// v = x weight^T + bias; v = activation(v); v = v * (x up^T + up_bias); v = v + addend.
struct Stage {
  Tensor weight;  // [n, k], any strides
  Tensor bias;    // [n]; undefined: none
  std::optional<nn::Activation> activation;
  Tensor up;  // [n, k] of a gated stage, else undefined
  Tensor up_bias;
  Tensor addend;  // [rows, n]; undefined: none
};

struct Model {
  nn::Norm norm = nn::Norm::none;  // of x, before the first stage
  Tensor norm_weight;
  Tensor norm_bias;
  double norm_eps = 0;
  std::vector<Stage> stages;
  bool residual = false;  // adds x to the result
};

// FLOPs of the products, over `rows` rows.
double product_flops(const Model& model, int64_t rows);

// The model's result for some rows of x [rows, k], in double: [row_numbers.size(), n].
Tensor exact_rows(const Model& model, const Tensor& x, std::span<const int64_t> row_numbers);

}  // namespace epilogue::bench
