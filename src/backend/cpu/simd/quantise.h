// SPDX-License-Identifier: Apache-2.0
// Weights as 8-bit integers with a scale per column. All matrices are [k][width], dense.
#pragma once

#include <cstdint>

namespace epilogue::simd {

// What each column's values are multiples of: the largest magnitude over 127; 0 for a column of
// zeros, NaN for one that is not finite throughout (its products then are NaN too).
void column_scales(const float* in, int64_t k, int64_t width, float* scales);

// The nearest multiples, as integers; ties go to even.
void to_i8(const float* in, int64_t k, int64_t width, const float* scales, int8_t* out);
// And as values.
void round_to_i8(float* values, int64_t k, int64_t width, const float* scales);

// Rows of f32 as 16-bit integers times a scale per row (the largest magnitude over 32767), zeros
// from k to k_end; a row that is not finite throughout gets the scale NaN. `stride` is of `out`.
void rows_to_i16(const float* in, int64_t in_stride, int64_t m, int64_t k, int64_t k_end,
                 int16_t* out, int64_t stride, float* scales);
// The same as 8-bit integers (the largest magnitude over 127), stored as T: int8_t, or int16_t for
// kernels that multiply these.
template <class T>
void rows_to_i8(const float* in, int64_t in_stride, int64_t m, int64_t k, int64_t k_end, T* out,
                int64_t stride, float* scales);

}  // namespace epilogue::simd
