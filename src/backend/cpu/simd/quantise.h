// SPDX-License-Identifier: Apache-2.0
// Weights as 8-bit integers with a scale per column (matrices [k][width], dense), and rows as
// integers with a scale per row.
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

// m rows of k elements as integers times a scale per row, zeros from k to k_end; a row that is not
// finite throughout gets the scale NaN. Strides in elements.
template <class In, class Out>
using RowsToIntegers = void (*)(const In* in, int64_t in_stride, int64_t m, int64_t k,
                                int64_t k_end, Out* out, int64_t stride, float* scales);
struct QuantiseKernels {
  // The largest magnitude is 127; `wide`: for kernels that multiply 16 bits.
  RowsToIntegers<float, int8_t> f32_to_i8;
  RowsToIntegers<uint16_t, int8_t> bf16_to_i8;
  RowsToIntegers<float, int16_t> f32_to_wide_i8;
  // The largest magnitude is 32767.
  RowsToIntegers<float, int16_t> f32_to_i16;
  // The largest magnitude is 32639: 256 times a byte with a sign, and another one.
  RowsToIntegers<float, int16_t> f32_to_split_i16;
};
// At the level in use.
const QuantiseKernels& quantise_kernels();

}  // namespace epilogue::simd
