// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/simd/panels/bf16_pairs.h"

#include <algorithm>

#include "backend/cpu/simd/panels/kernel_list.h"
#include "backend/cpu/simd/panels/pack.h"
#include "backend/cpu/simd/panels/pack_pairs.h"
#include "backend/cpu/simd/panels/pack_tiles.h"
#include "backend/cpu/simd/panels/row_tiles.h"
#include "backend/cpu/simd/scratch.h"
#include "base/assert.h"
#include "base/cpu_features.h"

#if defined(__x86_64__)
#include <hwy/base.h>
#include <immintrin.h>

#include <cstring>

// Inlined standard headers end above this line: nothing of them is compiled for the target.
HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")

namespace epilogue::simd {
namespace {

constexpr int64_t kMr = kBf16PairsRows;
constexpr int64_t kNv = kPairsWidth / 16;

__m512bh as_bf16(__m512i v) { return reinterpret_cast<__m512bh>(v); }

// Two neighbours of a row, in all lanes.
__m512bh pair_of(const uint16_t* a) {
  int32_t bits = 0;
  std::memcpy(&bits, a, sizeof bits);
  return as_bf16(_mm512_set1_epi32(bits));
}

__mmask16 first_lanes(int64_t n) {
  return static_cast<__mmask16>((1U << std::clamp<int64_t>(n, 0, 16)) - 1);
}

// NaN stays: of two operands with one the second is given. (All lanes by mask: gcc 12 warns of
// _mm512_max_ps itself.)
__m512 relu(__m512 v) { return _mm512_maskz_max_ps(__mmask16{0xFFFF}, _mm512_setzero_ps(), v); }

// Columns [j, j + 32) of a row, as many as there are. Inlined at any rate: a call would send all
// sums to memory.
[[gnu::always_inline]] inline void finish(const PanelStore& s, int64_t row, int64_t j, __m512 low,
                                          __m512 high) {
  if (s.bias != nullptr) {
    low = _mm512_add_ps(low, _mm512_loadu_ps(s.bias + j));
    high = _mm512_add_ps(high, _mm512_loadu_ps(s.bias + j + 16));
  }
  if (s.relu) {
    low = relu(low);
    high = relu(high);
  }
  if (s.type == FloatType::f32) {
    float* const to = static_cast<float*>(s.out) + row * s.stride + j;
    _mm512_mask_storeu_ps(to, first_lanes(s.columns - j), low);
    _mm512_mask_storeu_ps(to + 16, first_lanes(s.columns - j - 16), high);
    return;
  }
  uint16_t* const to = static_cast<uint16_t*>(s.out) + row * s.stride + j;
  const auto bits = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low));
  if (j + 32 <= s.columns) {
    _mm512_storeu_si512(to, bits);
  } else {
    const uint32_t lanes =
        first_lanes(s.columns - j) | static_cast<uint32_t>(first_lanes(s.columns - j - 16)) << 16;
    _mm512_mask_storeu_epi16(to, lanes, bits);
  }
}

// The panel's columns, pair after pair of k: [k / 2][width][2].
struct PairRows {
  explicit PairRows(const PanelArgs& args) : at(static_cast<const uint16_t*>(args.panel)) {}
  __m512bh load(int64_t j) const { return as_bf16(_mm512_loadu_si512(at + j * 32)); }
  template <int kInto>
  [[gnu::always_inline]] void fetch(int64_t j, int64_t ahead) const {
    fetch_line<kInto>(reinterpret_cast<const char*>(at) + ahead + j * 64);
  }
  void next() { at += 2 * kPairsWidth; }

  const uint16_t* at;
};

// The same in tiles.
template <int kParts>
struct TilePairs {
  explicit TilePairs(const PanelArgs& args)
      : block(static_cast<const char*>(args.panel)), block_bytes(tile_block_bytes(args, 2)) {}
  [[gnu::always_inline]] const char* vector(int64_t j) const {
    return block + tile_place(j, kParts, block_bytes);
  }
  __m512bh load(int64_t j) const { return as_bf16(_mm512_loadu_si512(vector(j))); }
  // Each block is read at half of the panel's pace.
  template <int kInto>
  [[gnu::always_inline]] void fetch(int64_t j, int64_t ahead) const {
    fetch_line<kInto>(vector(j) + ahead / 2);
  }
  void next() {
    block += 64;
    if (++row < kTileRows) return;
    row = 0;
    block += kTilePairBytes / 2;
  }

  const char* block;
  int64_t block_bytes;
  int64_t row = 0;
};

// sums += a[k] b[k] + a[k + 1] b[k + 1], with f32 sums; the instruction rounds to nearest even and
// takes denormals for zero.
template <int64_t kRows, int kParts, Stream kStream, class Columns>
void tile(const PanelArgs& args, int64_t row) {
  constexpr int64_t part_vectors = kNv / kParts;
  constexpr int64_t part_width = kPairsWidth / kParts;
  const auto* a = static_cast<const uint16_t*>(args.a) + row * args.a_stride;
  Columns b(args);
  const auto place = [&](int64_t i, int64_t j) {
    return args.sums[j / part_vectors] + (row + i) * part_width + j % part_vectors * 16;
  };
  __m512 sums[kRows][kNv];
#pragma GCC unroll 8
  for (int64_t i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
    for (int64_t j = 0; j < kNv; ++j) sums[i][j] = _mm512_setzero_ps();
  }
  constexpr int64_t step_bytes = 2 * kPairsWidth * 2;
  const int64_t pieces = args.m / kMr;
  const NextPanel next(next_of(args, pieces), pieces, row / kMr, args.k / 2, step_bytes, 1);
  const int64_t steps = args.k / 2;
  int64_t step = 0;
  for (int64_t group = 0; step < steps; ++group) {
    next.fetch(group);
    const int64_t end = std::min(steps, (group + 1) * next.group());
    for (; step < end; ++step, b.next()) {
      if constexpr (kStream == Stream::first) {
        constexpr Ahead ahead = ahead_of_stream(2);
#pragma GCC unroll 4
        for (int64_t j = 0; j < kNv; ++j) b.template fetch<ahead.into>(j, ahead.bytes);
      }
      __m512bh columns[kNv];
#pragma GCC unroll 4
      for (int64_t j = 0; j < kNv; ++j) columns[j] = b.load(j);
#pragma GCC unroll 8
      for (int64_t i = 0; i < kRows; ++i) {
        const __m512bh factor = pair_of(a + i * args.a_stride + 2 * step);
#pragma GCC unroll 4
        for (int64_t j = 0; j < kNv; ++j)
          sums[i][j] = _mm512_dpbf16_ps(sums[i][j], columns[j], factor);
      }
    }
  }
  if (args.accumulate) {
#pragma GCC unroll 8
    for (int64_t i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
      for (int64_t j = 0; j < kNv; ++j)
        sums[i][j] = _mm512_add_ps(_mm512_loadu_ps(place(i, j)), sums[i][j]);
    }
  }
  const bool stores = kParts == 1 && args.store != nullptr;
#pragma GCC unroll 8
  for (int64_t i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
    for (int64_t j = 0; j < kNv; j += 2) {
      if (stores) {
        finish(*args.store, row + i, j * 16, sums[i][j], sums[i][j + 1]);
      } else {
        _mm512_storeu_ps(place(i, j), sums[i][j]);
        _mm512_storeu_ps(place(i, j + 1), sums[i][j + 1]);
      }
    }
  }
}

template <int kParts, class Columns>
void panel_product(const PanelArgs& args) {
  all_rows<kMr>(args.m, [&args](auto rows, auto stream, int64_t row) {
    tile<rows(), kParts, stream(), Columns>(args, row);
  });
}

}  // namespace

void round_to_bf16_rows(const float* in, int64_t in_stride, uint16_t* out, int64_t out_stride,
                        int64_t rows, int64_t n) {
  for (int64_t i = 0; i < rows; ++i, in += in_stride, out += out_stride) {
    int64_t j = 0;
    for (; j + 32 <= n; j += 32)
      _mm512_storeu_si512(out + j, reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(
                                       _mm512_loadu_ps(in + j + 16), _mm512_loadu_ps(in + j))));
    for (; j < n; j += 16) {
      const auto lanes = static_cast<__mmask16>((1U << std::min<int64_t>(n - j, 16)) - 1);
      const __m256bh bits = _mm512_cvtneps_pbh(_mm512_maskz_loadu_ps(lanes, in + j));
      _mm256_mask_storeu_epi16(out + j, lanes, reinterpret_cast<__m256i>(bits));
    }
  }
}

void store_rows(const PanelStore& to, const float* sums, int64_t width, int64_t row, int64_t rows) {
  for (int64_t i = row; i < row + rows; ++i, sums += width)
    for (int64_t j = 0; j < width; j += 32)
      finish(to, i, j, _mm512_loadu_ps(sums + j), _mm512_loadu_ps(sums + j + 16));
}

void bf16_pairs_one(const PanelArgs& args) { panel_product<1, PairRows>(args); }
void bf16_pairs_two(const PanelArgs& args) { panel_product<2, PairRows>(args); }
void bf16_tile_pairs_one(const PanelArgs& args) { panel_product<1, TilePairs<1>>(args); }
void bf16_tile_pairs_two(const PanelArgs& args) { panel_product<2, TilePairs<2>>(args); }

}  // namespace epilogue::simd

HWY_POP_ATTRIBUTES

#else

namespace epilogue::simd {

void round_to_bf16_rows(const float*, int64_t, uint16_t*, int64_t, int64_t, int64_t) {
  EPI_ASSERT(false, "x86-64 only");
}
void store_rows(const PanelStore&, const float*, int64_t, int64_t, int64_t) {
  EPI_ASSERT(false, "x86-64 only");
}
void bf16_pairs_one(const PanelArgs&) { EPI_ASSERT(false, "x86-64 only"); }
void bf16_pairs_two(const PanelArgs&) { EPI_ASSERT(false, "x86-64 only"); }
void bf16_tile_pairs_one(const PanelArgs&) { EPI_ASSERT(false, "x86-64 only"); }
void bf16_tile_pairs_two(const PanelArgs&) { EPI_ASSERT(false, "x86-64 only"); }

}  // namespace epilogue::simd

#endif

namespace epilogue::simd {
namespace {

thread_local Scratch bf16_rows;

void store_pairs(const float* values, int64_t k, const float*, void* panel) {
  const auto count = static_cast<size_t>(k * kPairsWidth);
  auto* const rows = reinterpret_cast<uint16_t*>(bf16_rows.get(count / 2));
  from_f32(FloatType::bf16, values, rows, count);
  interleave_rows(rows, k, kPairsWidth, static_cast<uint16_t*>(panel));
}

}  // namespace

PanelLayout bf16_pairs_layout(int64_t k_unit) {
  return {.width = kPairsWidth,
          .k_unit = k_unit,
          .weight_bytes = 2,
          .has_pairs = true,
          .store = store_pairs,
          .rows = FloatType::bf16,
          .row_bytes = 2};
}

const char* decline_bf16_pairs(const PanelUse& use) {
  if (use.weights != FloatType::bf16 || use.widens) return "needs bf16 rows and weights";
  if (!cpu_has(CpuFeature::avx512_bf16)) return "needs AVX512-BF16";
  return pack_kernels().width == kPairsWidth ? nullptr : "needs panels of AVX-512";
}

const PanelKernel& bf16_pairs_kernel() {
  static const PanelKernel kernel = {
      .level = "avx512bf16",
      .layout = bf16_pairs_layout(2),
      .mr = kBf16PairsRows,
      .lanes = 16,
      .one = bf16_pairs_one,
      .two = bf16_pairs_two,
      .stores = true,
  };
  return kernel;
}

}  // namespace epilogue::simd
