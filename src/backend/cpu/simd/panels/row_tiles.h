// SPDX-License-Identifier: Apache-2.0
// How panel kernels go through the rows of A: tiles of kMr rows, then what is left. Row counts are
// compile-time, so that few rows cost few registers and products. Plain code, to be included above
// target regions.
#pragma once

#include <cstdint>
#include <type_traits>

#include "backend/cpu/simd/panels/prefetch.h"

namespace epilogue::simd {

template <int64_t kRows>
using RowCount = std::integral_constant<int64_t, kRows>;
template <Stream kStream>
using StreamKind = std::integral_constant<Stream, kStream>;

// tile(RowCount<rows>()), for fewer rows than a whole tile has; none for no rows.
template <int64_t kMr, class Tile>
void some_rows(int64_t rows, const Tile& tile) {
  static_assert(kMr <= 6);
  if constexpr (kMr > 5)
    if (rows == 5) return tile(RowCount<5>());
  if constexpr (kMr > 4)
    if (rows == 4) return tile(RowCount<4>());
  if (rows == 3) return tile(RowCount<3>());
  if (rows == 2) return tile(RowCount<2>());
  if (rows == 1) return tile(RowCount<1>());
}

// tile(RowCount<rows>(), StreamKind<stream>(), row) for all of m rows. A panel that few rows read
// comes to them from L3 or memory.
template <int64_t kMr, class Tile>
void all_rows(int64_t m, const Tile& tile) {
  if (m < kMr)
    return some_rows<kMr>(m, [&](auto rows) { tile(rows, StreamKind<Stream::first>(), 0); });
  int64_t row = 0;
  if (m < kLeastPieces * kMr) {
    tile(RowCount<kMr>(), StreamKind<Stream::first>(), row);
    row = kMr;
  }
  for (; row + kMr <= m; row += kMr) tile(RowCount<kMr>(), StreamKind<Stream::no>(), row);
  some_rows<kMr>(m - row, [&](auto rows) { tile(rows, StreamKind<Stream::no>(), row); });
}

}  // namespace epilogue::simd
