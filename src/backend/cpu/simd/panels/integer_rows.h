// SPDX-License-Identifier: Apache-2.0
// Rows as integers, beside what quantise.h makes of them.
#pragma once

#include <cstdint>

namespace epilogue::simd {

// sums[i][u] = row i's elements before k = u * unit, u from 0 to k / unit; modulo 2^32, so that the
// difference of two is right if it fits. Kernels whose weights lie around another value than zero
// take that value times the rows' sums away. T: int8_t or int16_t; `stride` in elements.
template <class T>
void running_sums(const T* rows, int64_t stride, int64_t m, int64_t k, int64_t unit, int32_t* sums);

}  // namespace epilogue::simd
