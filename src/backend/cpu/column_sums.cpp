// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/column_sums.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "backend/cpu/simd/reduce.h"
#include "base/thread_pool.h"

namespace epilogue::cpu {
namespace {

// Columns that one thread sums up at a time.
constexpr int64_t kPieceColumns = 1024;
// Sums per thread at least: they are read once, from L2 or L3.
constexpr int64_t kColumnGrain = 32768;

}  // namespace

void ColumnSums::add(const TileBounds& block, const float* tile, int64_t stride) const {
  const auto n = static_cast<size_t>(block.columns);
  const auto accumulate = simd::row_kernels().accumulate;
  for (int64_t i = 0; i < block.rows; ++i) {
    const int64_t row = block.row + i;
    float* const sums = memory_ + row / kColumnSumRows * columns_ + block.column;
    if (row % kColumnSumRows == 0) {
      std::memcpy(sums, tile + i * stride, n * sizeof(float));
    } else {
      accumulate(tile + i * stride, sums, n);
    }
  }
}

void ColumnSums::finish_columns(const MatrixView& out, int64_t begin, int64_t end) const {
  const auto n = static_cast<size_t>(end - begin);
  for (int64_t step = 1; step < groups_; step *= 2)
    for (int64_t g = 0; g + step < groups_; g += 2 * step)
      simd::row_kernels().accumulate(memory_ + (g + step) * columns_ + begin,
                                     memory_ + g * columns_ + begin, n);
  store_tile(out, {0, 1, begin, end - begin}, memory_ + begin, end - begin);
}

void ColumnSums::finish(const MatrixView& out) const {
  if (groups_ == 0) {
    const std::vector<float> zeros(static_cast<size_t>(columns_));
    return store_tile(out, {0, 1, 0, columns_}, zeros.data(), columns_);
  }
  const int64_t pieces = (columns_ + kPieceColumns - 1) / kPieceColumns;
  const int64_t grain = std::max<int64_t>(1, kColumnGrain / (groups_ * kPieceColumns));
  parallel_for(pieces, grain, [&](int64_t first, int64_t last) {
    for (int64_t p = first; p < last; ++p)
      finish_columns(out, p * kPieceColumns, std::min(columns_, (p + 1) * kPieceColumns));
  });
}

}  // namespace epilogue::cpu
