// SPDX-License-Identifier: Apache-2.0
// The layers once more, as plain loops over doubles: what the tests compare with.
#pragma once

#include "epilogue/nn.h"
#include "errors/message_of.h"
#include "support/test.h"

namespace epilogue::nn {

using test::error_of;

// A row-major matrix.
struct Matrix {
  int64_t rows = 0;
  int64_t cols = 0;
  std::vector<double> values;
  double& at(int64_t r, int64_t c) { return values[static_cast<size_t>(r * cols + c)]; }
  double at(int64_t r, int64_t c) const { return values[static_cast<size_t>(r * cols + c)]; }
};

// The elements, all leading dimensions as rows.
Matrix matrix_of(const Tensor& t);

// x W^T + b; an undefined bias is none.
Matrix reference_linear(const Matrix& x, const Tensor& weight, const Tensor& bias);
double reference_activation(double x, Activation activation);
Matrix reference_activate(Matrix x, Activation activation);
Matrix reference_gated(const Matrix& x, const GatedMLP& mlp);
Matrix reference_mlp(const Matrix& x, const MLP& mlp);
// Undefined weight: ones; undefined bias: zeros.
Matrix reference_layer_norm(const Matrix& x, const Tensor& weight, const Tensor& bias, double eps);
Matrix reference_rms_norm(const Matrix& x, const Tensor& weight, double eps);
Matrix plus(Matrix a, const Matrix& b);

// Every element within `tolerance` times (1 + |expected|); the worst one is printed.
testing::AssertionResult near(const Tensor& actual, const Matrix& expected, double tolerance);

}  // namespace epilogue::nn
