// SPDX-License-Identifier: Apache-2.0
// Leaves for gradient tests.
#pragma once

#include <vector>

#include "epilogue/autograd.h"
#include "epilogue/ops.h"

namespace epilogue::test {

using Values = std::vector<double>;

inline Tensor leaf(std::initializer_list<double> values, Dims sizes, DType dtype = DType::f32) {
  return from_values(values, sizes, dtype).set_requires_grad(true);
}
inline Tensor random_leaf(Dims sizes, DType dtype = DType::f64) {
  return randn(sizes, dtype).set_requires_grad(true);
}

}  // namespace epilogue::test
