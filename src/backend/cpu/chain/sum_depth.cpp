// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/chain/sum_depth.h"

#include <algorithm>

#include "backend/cpu/simd/convert.h"
#include "base/ceil_div.h"

namespace epilogue::cpu {
namespace {

using simd::FloatType;
using simd::PackedWeights;
using simd::PanelLayout;

// What sums of few rows have at most.
constexpr int64_t kFewRowsSumDepth = 256;
// Pieces of so many are not to be longer at all.
constexpr int64_t kLongSums = 256;
constexpr int64_t kWideLanes = 16;
// On narrower vectors a library splits the sums of one row alone further (measured: MKL limited to
// AVX2; of 2 to 8 rows ours lose 0.85 of what its do). A piece of a panel (few_rows-inl.h) is as
// deep: sums of 32 took 1.2 to 1.3 times as long. Few inputs have four sums, for which eager's own
// products have one.
constexpr int64_t kNarrowFewRowsDepth = 128;
constexpr int64_t kNarrowFewRowsSums = 4;
constexpr int64_t kLeastSumDepth = 8;
// So many rows leave their kernels registers for two sums side by side, each half as long; one row
// for four.
constexpr int64_t kRowsOfTwoSums = 3;

// Few rows: eager's products sum in as many lanes as a vector has, and ours must not lose more. n
// terms of variance 1 in sums of d, each in `sums` parts side by side, which are added up in two
// arrays in turn, have errors of variance n d / (2 sums) + n^2 / (4 d) (units of the last place
// squared); eager's n^2 / (2 lanes). The deepest that stays below half of that, for each end of a
// sum costs time: libraries split the sums of few rows further (measured: a quarter less), and
// short sums, where none does, shall be made up for by the longer sums of an MLP's other product.
// The best is about the square root of sums * n / 2.
int64_t stream_depth(int64_t n, int64_t sums, int64_t lanes) {
  int64_t depth = kLeastSumDepth;
  const auto loses_half = [&](int64_t d) {
    return 2 * lanes * (2 * d * d + sums * n) <= 2 * sums * n * d;
  };
  while (2 * depth <= kFewRowsSumDepth && (3 * depth * depth <= sums * n || loses_half(2 * depth)))
    depth *= 2;
  return depth;
}

}  // namespace

int64_t sum_depth(const PackedWeights& weights, const simd::PanelKernel& kernel, int64_t rows,
                  int64_t length) {
  const PanelLayout& layout = kernel.layout;
  const int64_t lanes = kernel.lanes;
  if (layout.most_k > 0) return layout.most_k;
  if (layout.rows != FloatType::f32) return length;
  if (rows > rows_of_short_sums(lanes)) {
    const int64_t wanted = simd::f32_sum_depth(lanes);
    if (wanted < kLongSums) return even_piece(length, wanted, kLeastSumDepth);
    // None is longer, not even by some: 772 in three pieces lost 13 % beside a library's four.
    return even_piece(length, ceil_div(length, ceil_div(length, wanted)), kLeastSumDepth);
  }
  // Widened 16-bit weights: the same.
  if (layout.weight_bytes == 2) return length;
  const int64_t sums = rows == 1 ? 4 : rows <= kRowsOfTwoSums ? 2 : 1;
  const int64_t depth = stream_depth(weights.k(), sums, lanes);
  if (rows == 1 || lanes >= kWideLanes) return depth;
  constexpr int64_t unit = kNarrowFewRowsSums * kLeastSumDepth;
  return std::max(depth,
                  std::min(kNarrowFewRowsDepth, ceil_div(weights.k(), unit) * kLeastSumDepth));
}

}  // namespace epilogue::cpu
