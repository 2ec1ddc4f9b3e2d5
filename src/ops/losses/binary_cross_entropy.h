// SPDX-License-Identifier: Apache-2.0
// The binary cross entropy of one probability, shared by reference and kernels.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>

#include "ops/shape.h"

namespace epilogue {

// PyTorch's bounds: of a logarithm in the loss, and of x (1 - x) in its gradient.
inline constexpr double kLeastLog = -100;
inline constexpr double kLeastVariance = 1e-12;

template <class T>
T require_probability(const OpDef& op, T x) {
  if (!(x >= 0 && x <= 1) && !std::isnan(x)) [[unlikely]]
    fail(op, "probabilities in [0, 1]", std::to_string(x));
  return x;
}

template <class T>
T probability_loss(T x, T t) {
  const auto bounded = [](T y) {
    return std::isnan(y) ? y : std::max(y, static_cast<T>(kLeastLog));
  };
  return (t - 1) * bounded(std::log1p(-x)) - t * bounded(std::log(x));
}

}  // namespace epilogue
