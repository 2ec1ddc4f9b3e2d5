// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/simd/panels/pack_tiles.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "backend/cpu/simd/panels/operand.h"
#include "backend/cpu/simd/panels/pack_pairs.h"
#include "base/assert.h"

namespace epilogue::simd {
namespace {

constexpr int64_t kPairs = kTileK / 2;  // of k, in a step

// [16 of the one][16 pairs of k] of 32 bits each.
using Square = std::array<float, 16 * 16>;

// out[i][j] = in[j][i], words of 32 bits whatever they mean.
void transpose(const void* in, int64_t in_stride, void* out) {
  pack_kernels().rows({in, FloatType::f32, 1, in_stride}, 16, 16, static_cast<float*>(out), 16);
}

// A square of n x k elements, k in pairs, zeros beyond both: element (i, p) at square[i * 16 + p /
// 2].
void gather(const uint16_t* from, const PackSource& s, int64_t n, int64_t k, Square& square) {
  square.fill(0);
  auto* const to = reinterpret_cast<uint16_t*>(square.data());
  for (int64_t i = 0; i < n; ++i)
    for (int64_t p = 0; p < k; ++p) to[i * kTileK + p] = from[i * s.outer_stride + p * s.k_stride];
}

// Two rows of k side by side, 16 of their elements.
void interleave(const uint16_t* first, const uint16_t* second, uint16_t* out) {
  for (int64_t j = 0; j < 16; ++j) {
    out[2 * j] = first[j];
    out[2 * j + 1] = second[j];
  }
}

// 16 of the other dimension lie side by side, as do no two of k: [16 pairs][16][2].
void interleave_step(const uint16_t* from, int64_t k_stride, void* out) {
  auto* to = static_cast<uint16_t*>(out);
  for (int64_t p = 0; p < kPairs; ++p, from += 2 * k_stride, to += 32)
    interleave(from, from + k_stride, to);
}

const uint16_t* address(const PackSource& s, int64_t outer, int64_t k) {
  return static_cast<const uint16_t*>(s.data) + outer * s.outer_stride + k * s.k_stride;
}

}  // namespace

void pack_tile_rows(const PackSource& source, int64_t m, int64_t k, const TiledRows& to,
                    int64_t first) {
  EPI_ASSERT(source.type == FloatType::bf16, "rows of bf16");
  if (source.k_stride == 1) {
    for (int64_t i = 0; i < m; ++i) to.set_row(first + i, address(source, i, 0), k);
    return;
  }
  Square square;
  for (int64_t i = 0; i < m; i += kTileRows) {
    const int64_t rows = std::min(kTileRows, m - i);
    for (int64_t step = 0; step < to.steps; ++step) {
      const int64_t depth = std::clamp<int64_t>(k - step * kTileK, 0, kTileK);
      uint16_t* const tile = to.line(first + i, step);
      if (source.outer_stride == 1 && rows == kTileRows && depth == kTileK) {
        interleave_step(address(source, i, step * kTileK), source.k_stride, square.data());
        transpose(square.data(), 16, tile);
      } else {
        gather(address(source, i, step * kTileK), source, rows, depth, square);
        std::memcpy(tile, square.data(), static_cast<size_t>(rows) * kTileK * sizeof(uint16_t));
      }
    }
  }
}

void pack_tile_columns(const PackSource& source, int64_t n, int64_t k, int64_t steps, void* out) {
  EPI_ASSERT(source.type == FloatType::bf16, "columns of bf16");
  const bool are_words = pairs_are_words(source, kTileK);
  Square square;
  auto* to = static_cast<char*>(out);
  for (int64_t step = 0; step < steps; ++step, to += kTilePairBytes) {
    const int64_t depth = std::clamp<int64_t>(k - step * kTileK, 0, kTileK);
    const uint16_t* const from = address(source, 0, step * kTileK);
    const bool is_whole = n == kTileColumns && depth == kTileK;
    if (is_whole && are_words) {
      transpose(from, source.outer_stride / 2, to);
    } else if (is_whole && source.outer_stride == 1) {
      interleave_step(from, source.k_stride, to);
    } else {
      gather(from, source, n, depth, square);
      transpose(square.data(), 16, to);
    }
  }
}

}  // namespace epilogue::simd
