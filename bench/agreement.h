// SPDX-License-Identifier: Apache-2.0
// Do results agree? Asked before anything is timed.
#pragma once

#include <cstdint>
#include <vector>

#include "bench/model.h"
#include "epilogue/tensor.h"

namespace epilogue::bench {

// || got - expected || / || expected ||, over all elements; || got - expected || where the latter
// is 0. NaN where either holds a NaN. Throws Error where the numbers of elements differ.
double relative_l2(const Tensor& got, const Tensor& expected);

// Errors that rounding explains. Relative L2 errors of gated MLPs do not depend on their sizes:
// each rounding of a tensor adds its share.
struct Tolerance {
  double against_exact = 0;  // of a result of this dtype against double
  double between = 0;        // of two results of this dtype against each other
};
// For one hidden layer; errors of more layers add up as the root of their number. f32 sums lose
// with the root of their length.
Tolerance tolerance_for(DType dtype, const Model& model);

// Some rows, the first and the last among them: what the product in double is computed for.
std::vector<int64_t> checked_rows(int64_t rows);
// Those rows of y [rows, n].
Tensor rows_of(const Tensor& y, const std::vector<int64_t>& row_numbers);

}  // namespace epilogue::bench
