// SPDX-License-Identifier: Apache-2.0
#include "nn/reference.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace epilogue::nn {

Matrix matrix_of(const Tensor& t) {
  const int64_t cols = t.size(-1);
  return {t.numel() / cols, cols, t.to_vector()};
}

Matrix reference_linear(const Matrix& x, const Tensor& weight, const Tensor& bias) {
  const Matrix w = matrix_of(weight);
  const std::vector<double> b = bias.defined() ? bias.to_vector() : std::vector<double>();
  Matrix y{x.rows, w.rows, std::vector<double>(static_cast<size_t>(x.rows * w.rows))};
  for (int64_t r = 0; r < y.rows; ++r)
    for (int64_t c = 0; c < y.cols; ++c) {
      double sum = b.empty() ? 0 : b[static_cast<size_t>(c)];
      for (int64_t k = 0; k < x.cols; ++k) sum += x.at(r, k) * w.at(c, k);
      y.at(r, c) = sum;
    }
  return y;
}

double reference_activation(double x, Activation activation) {
  switch (activation) {
    case Activation::geglu_erf:
    case Activation::gelu: return 0.5 * x * (1 + std::erf(x / std::numbers::sqrt2));
    case Activation::geglu:
    case Activation::gelu_tanh: {
      const double u = std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x);
      return 0.5 * x * (1 + std::tanh(u));
    }
    case Activation::swiglu:
    case Activation::silu: return x / (1 + std::exp(-x));
    case Activation::quick_geglu:
    case Activation::quick_gelu: return x / (1 + std::exp(-1.702 * x));
    case Activation::squared_reglu:
    case Activation::squared_relu: return x > 0 ? x * x : 0;
    case Activation::clamped_swiglu: {  // of the gate; reference_gated() has the other branch
      const double g = std::min(x, 7.0);
      return g / (1 + std::exp(-1.702 * g));
    }
    case Activation::reglu:
    case Activation::relu: break;
  }
  return x > 0 ? x : 0;
}

Matrix reference_activate(Matrix x, Activation activation) {
  for (double& v : x.values) v = reference_activation(v, activation);
  return x;
}

Matrix reference_gated(const Matrix& x, const GatedMLP& mlp) {
  Matrix h = reference_activate(reference_linear(x, mlp.gate_proj.weight, mlp.gate_proj.bias),
                                mlp.activation());
  const Matrix up = reference_linear(x, mlp.up_proj.weight, mlp.up_proj.bias);
  const bool is_clamped = mlp.activation() == Activation::clamped_swiglu;
  for (size_t i = 0; i < h.values.size(); ++i)
    h.values[i] *= is_clamped ? std::clamp(up.values[i], -7.0, 7.0) + 1 : up.values[i];
  return reference_linear(h, mlp.down_proj.weight, mlp.down_proj.bias);
}

Matrix reference_mlp(const Matrix& x, const MLP& mlp) {
  Matrix y = x;
  for (size_t i = 0; i < mlp.num_linears(); ++i) {
    if (i > 0) y = reference_activate(std::move(y), mlp.activation());
    y = reference_linear(y, mlp.fc(i).weight, mlp.fc(i).bias);
  }
  return y;
}

Matrix reference_layer_norm(const Matrix& x, const Tensor& weight, const Tensor& bias, double eps) {
  Matrix y = x;
  for (int64_t r = 0; r < x.rows; ++r) {
    double mean = 0, variance = 0;
    for (int64_t c = 0; c < x.cols; ++c) mean += x.at(r, c) / static_cast<double>(x.cols);
    for (int64_t c = 0; c < x.cols; ++c)
      variance += (x.at(r, c) - mean) * (x.at(r, c) - mean) / static_cast<double>(x.cols);
    for (int64_t c = 0; c < x.cols; ++c) {
      const double w = weight.defined() ? weight.to_vector()[static_cast<size_t>(c)] : 1;
      const double b = bias.defined() ? bias.to_vector()[static_cast<size_t>(c)] : 0;
      y.at(r, c) = (x.at(r, c) - mean) / std::sqrt(variance + eps) * w + b;
    }
  }
  return y;
}

Matrix reference_rms_norm(const Matrix& x, const Tensor& weight, double eps) {
  Matrix y = x;
  for (int64_t r = 0; r < x.rows; ++r) {
    double mean_square = 0;
    for (int64_t c = 0; c < x.cols; ++c)
      mean_square += x.at(r, c) * x.at(r, c) / static_cast<double>(x.cols);
    for (int64_t c = 0; c < x.cols; ++c) {
      const double w = weight.defined() ? weight.to_vector()[static_cast<size_t>(c)] : 1;
      y.at(r, c) = x.at(r, c) / std::sqrt(mean_square + eps) * w;
    }
  }
  return y;
}

Matrix plus(Matrix a, const Matrix& b) {
  for (size_t i = 0; i < a.values.size(); ++i) a.values[i] += b.values[i];
  return a;
}

testing::AssertionResult near(const Tensor& actual, const Matrix& expected, double tolerance) {
  const std::vector<double> values = actual.to_vector();
  if (values.size() != expected.values.size())
    return testing::AssertionFailure()
           << "expected " << expected.values.size() << " elements, got " << to_string(actual);
  size_t worst = 0;
  double worst_error = -1;
  for (size_t i = 0; i < values.size(); ++i) {
    const double error =
        std::abs(values[i] - expected.values[i]) / (1 + std::abs(expected.values[i]));
    if (!(error <= worst_error)) {  // also where it is NaN
      worst = i;
      worst_error = error;
    }
    if (std::isnan(error)) break;
  }
  if (worst_error <= tolerance) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "element " << worst << ": expected "
                                     << expected.values[worst] << ", got " << values[worst];
}

}  // namespace epilogue::nn
