// SPDX-License-Identifier: Apache-2.0
// Initialisation of parameters, in place.
#include <cmath>

#include "core/random.h"
#include "epilogue/autograd.h"
#include "epilogue/nn.h"

namespace epilogue::nn {
namespace {

void require_floating(const char* op, const Tensor& tensor) {
  if (!tensor.defined() || !is_floating(tensor.dtype()))
    throw Error(std::string("[") + op + "] expected a floating tensor, got " + to_string(tensor));
  if (!tensor.is_writable())
    throw Error(std::string("[") + op + "] expected a tensor that may be written, got " +
                to_string(tensor) + " over memory that is lent to be read");
}

void require(bool holds, const char* op, const char* expected, double a, double b) {
  if (!holds)
    throw Error(std::string("[") + op + "] expected " + expected + ", got " + std::to_string(a) +
                " and " + std::to_string(b));
}

// Runs `fill` on a contiguous tensor, which is `tensor` itself where possible.
template <class Fill>
Tensor fill_in_place(const Tensor& tensor, Fill&& fill) {
  const NoGrad no_grad;
  if (tensor.is_contiguous()) {
    fill(tensor);
    tensor.impl()->storage->bump_version();
  } else {
    const Tensor values = empty(tensor.sizes(), tensor.dtype());
    fill(values);
    copy_(tensor, values);
  }
  return tensor;
}

}  // namespace

Tensor uniform_(const Tensor& tensor, double low, double high) {
  require_floating("uniform_", tensor);
  require(low <= high && std::isfinite(low) && std::isfinite(high), "uniform_",
          "finite bounds, low <= high", low, high);
  return fill_in_place(tensor, [&](const Tensor& t) { fill_uniform(t, low, high); });
}

Tensor normal_(const Tensor& tensor, double mean, double stddev) {
  require_floating("normal_", tensor);
  require(std::isfinite(mean) && std::isfinite(stddev) && stddev >= 0, "normal_",
          "a finite mean and a finite stddev >= 0", mean, stddev);
  return fill_in_place(tensor, [&](const Tensor& t) { fill_normal(t, mean, stddev); });
}

Tensor kaiming_uniform_(const Tensor& tensor, double a) {
  require_floating("kaiming_uniform_", tensor);
  if (tensor.dim() < 2)
    throw Error("[kaiming_uniform_] expected at least 2 dimensions, got " + to_string(tensor));
  if (!std::isfinite(a))
    throw Error("[kaiming_uniform_] expected a finite slope, got " + std::to_string(a));
  int64_t fan_in = 1;
  for (int d = 1; d < tensor.dim(); ++d) fan_in *= tensor.size(d);
  if (tensor.numel() == 0) return tensor;
  // gain = sqrt(2 / (1 + a^2)) of leaky_relu; bound = gain * sqrt(3 / fan_in).
  const double bound = std::sqrt(6 / ((1 + a * a) * static_cast<double>(fan_in)));
  return uniform_(tensor, -bound, bound);
}

}  // namespace epilogue::nn
