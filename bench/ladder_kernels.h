// SPDX-License-Identifier: Apache-2.0
// The lower rungs of `epilogue bench ladder`: matrix products as one writes them first, each
// without one fault of the one before. For teaching and comparison; plain C++ without intrinsics.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "epilogue/tensor.h"

namespace epilogue::bench::ladder {

// All compute y [m, n] = x [m, k] w^T with w [n, k], as nn.Linear has it: row-major, f32 or bf16,
// all of one dtype. Sums are f32; each result is rounded once. Rows are split over parallel_for's
// threads. Throw Error on other dtypes or sizes that do not fit.

// Three loops, one sum at a time.
void naive_product(const Tensor& x, const Tensor& w, const Tensor& y);

// 4 x 4 sums at a time; the rows of w in blocks that stay in cache while all rows of x pass.
void blocked_product(const Tensor& x, const Tensor& w, const Tensor& y);

// As above, with the weights laid out once as panels [k][8] of f32, along which the inner loop
// runs.
class PackedProduct {
 public:
  explicit PackedProduct(const Tensor& w);
  void run(const Tensor& x, const Tensor& y) const;

 private:
  int64_t n_;
  int64_t k_;
  DType dtype_;
  std::vector<float> panels_;  // the last one is filled up with zeros
};

// The sizes of a product y = x w^T. Throws Error where x [m, k] and y [m, n] are not row-major, of
// these sizes and of this dtype.
struct Sizes {
  int64_t m, n, k;
};
Sizes product_sizes(const Tensor& x, int64_t n, int64_t k, DType dtype, const Tensor& y);

// y = gelu_tanh(gate) and y = a * b, element by element, by the C library's tanh; contiguous, of
// one dtype and size; y may be an input.
void scalar_gelu(const Tensor& gate, const Tensor& y);
void scalar_mul(const Tensor& a, const Tensor& b, const Tensor& y);

}  // namespace epilogue::bench::ladder
