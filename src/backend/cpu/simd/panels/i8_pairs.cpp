// SPDX-License-Identifier: Apache-2.0
// Panels of 8-bit integers for the integer dot products of AVX-512 (VNNI): 16-bit rows times 8-bit
// weights, twice the weights per instruction that widening to f32 gets through.
#include "backend/cpu/simd/panels/kernel_list.h"
#include "backend/cpu/simd/panels/pack.h"
#include "backend/cpu/simd/panels/pack_pairs.h"
#include "backend/cpu/simd/panels/row_tiles.h"
#include "backend/cpu/simd/panels/w8a8.h"
#include "backend/cpu/simd/quantise.h"
#include "backend/cpu/simd/scratch.h"
#include "base/assert.h"
#include "base/cpu_features.h"

namespace epilogue::simd {
namespace {

// Rows that the kernel computes at once.
constexpr int64_t kI8PairsRows = 6;

}  // namespace
}  // namespace epilogue::simd

#if defined(__x86_64__)
#include <hwy/base.h>
#include <immintrin.h>

#include <cstring>

// Inlined standard headers end above this line: nothing of them is compiled for the target.
HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")

namespace epilogue::simd {
namespace {

// The unmasked form warns of its own undefined operand in gcc 12.
constexpr __mmask16 kAllLanes = 0xFFFF;
constexpr int64_t kMr = kI8PairsRows;
constexpr int64_t kNv = kPairsWidth / 16;

// Two neighbours of a row, in all lanes.
__m512i pair_of(const int16_t* a) {
  int32_t bits = 0;
  std::memcpy(&bits, a, sizeof bits);
  return _mm512_set1_epi32(bits);
}

constexpr int64_t kStepBytes = 2 * kPairsWidth;

// Vector j of the columns of a step, widened.
__m512i columns_at(const int8_t* step, int64_t j) {
  return _mm512_cvtepi8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(step + j * 32)));
}

[[gnu::always_inline]] inline void fetch_step(const int8_t* step, int64_t ahead) {
#pragma GCC unroll 2
  for (int64_t i = 0; i < kStepBytes; i += 64) fetch_line<kIntoL2>(step + ahead + i);
}

template <int kParts>
[[gnu::always_inline]] inline void put_row(const PanelArgs& args, int64_t row,
                                           const __m512i (&sums)[kNv]) {
  constexpr int64_t part_vectors = kNv / kParts;
  constexpr int64_t part_width = kPairsWidth / kParts;
  const __m512 row_scale = _mm512_set1_ps(args.row_scales[row]);
#pragma GCC unroll 4
  for (int64_t j = 0; j < kNv; ++j) {
    float* const to = args.sums[j / part_vectors] + row * part_width + j % part_vectors * 16;
    const __m512 scale = _mm512_mul_ps(row_scale, _mm512_loadu_ps(args.scales + j * 16));
    const __m512 earlier = args.accumulate ? _mm512_loadu_ps(to) : _mm512_setzero_ps();
    _mm512_storeu_ps(
        to,
        _mm512_add_ps(earlier, _mm512_mul_ps(_mm512_maskz_cvtepi32_ps(kAllLanes, sums[j]), scale)));
  }
}

// sums (+)= (a[k] b[k] + a[k + 1] b[k + 1] + ...) times the row's scale and the column's. Integer
// sums are exact, and fit: kI16RowsDepth products of at most 128 * 32767.
template <int64_t kRows, int kParts, Stream kStream>
void tile(const PanelArgs& args, int64_t row) {
  const auto* a = static_cast<const int16_t*>(args.a) + row * args.a_stride;
  const auto* b = static_cast<const int8_t*>(args.panel);
  __m512i sums[kRows][kNv];
#pragma GCC unroll 8
  for (int64_t i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
    for (int64_t j = 0; j < kNv; ++j) sums[i][j] = _mm512_setzero_si512();
  }
  for (int64_t k = 0; k < args.k; k += 2, b += kStepBytes) {
    if constexpr (kStream == Stream::first) fetch_step(b, ahead_of_stream(1).bytes);
    __m512i columns[kNv];
#pragma GCC unroll 4
    for (int64_t j = 0; j < kNv; ++j) columns[j] = columns_at(b, j);
#pragma GCC unroll 8
    for (int64_t i = 0; i < kRows; ++i) {
      const __m512i factor = pair_of(a + i * args.a_stride + k);
#pragma GCC unroll 4
      for (int64_t j = 0; j < kNv; ++j)
        sums[i][j] = _mm512_dpwssd_epi32(sums[i][j], columns[j], factor);
    }
  }
#pragma GCC unroll 8
  for (int64_t i = 0; i < kRows; ++i) put_row<kParts>(args, row + i, sums[i]);
}

// One row. Its sums are exact, so that runs may be read in any order.
template <int kParts>
void row_product(const PanelArgs& args) {
  const auto* a = static_cast<const int16_t*>(args.a);
  const auto* b = static_cast<const int8_t*>(args.panel);
  static_assert(kIntegerRuns == 2);
  const int64_t run = args.k / 2 / kIntegerRuns;  // steps
  __m512i sums[kIntegerRuns][kNv];
#pragma GCC unroll 4
  for (int64_t j = 0; j < kNv; ++j) sums[0][j] = sums[1][j] = _mm512_setzero_si512();
  const auto add_step = [a, b](int64_t step, __m512i(&sum)[kNv]) {
    const __m512i factor = pair_of(a + 2 * step);
#pragma GCC unroll 4
    for (int64_t j = 0; j < kNv; ++j)
      sum[j] = _mm512_dpwssd_epi32(sum[j], columns_at(b + step * kStepBytes, j), factor);
  };
  for (int64_t step = 0; step < run; ++step) {
#pragma GCC unroll 2
    for (int64_t r = 0; r < kIntegerRuns; ++r) {
      fetch_step(b + (r * run + step) * kStepBytes, kAheadOfRun.bytes);
      add_step(r * run + step, sums[r]);
    }
  }
  for (int64_t step = kIntegerRuns * run; step < args.k / 2; ++step) add_step(step, sums[0]);
#pragma GCC unroll 4
  for (int64_t j = 0; j < kNv; ++j) sums[0][j] = _mm512_add_epi32(sums[0][j], sums[1][j]);
  put_row<kParts>(args, 0, sums[0]);
}

template <int kParts>
void panel_product(const PanelArgs& args) {
  all_rows<kMr>(args.m, [&args](auto rows, auto stream, int64_t row) {
    if constexpr (rows() == 1 && stream() == Stream::first) return row_product<kParts>(args);
    tile<rows(), kParts, stream()>(args, row);
  });
}

void i8_pairs_one(const PanelArgs& args) { panel_product<1>(args); }
void i8_pairs_two(const PanelArgs& args) { panel_product<2>(args); }

}  // namespace
}  // namespace epilogue::simd

HWY_POP_ATTRIBUTES

#else

namespace epilogue::simd {
namespace {

void i8_pairs_one(const PanelArgs&) { EPI_ASSERT(false, "x86-64 only"); }
void i8_pairs_two(const PanelArgs&) { EPI_ASSERT(false, "x86-64 only"); }

}  // namespace
}  // namespace epilogue::simd

#endif

namespace epilogue::simd {
namespace {

thread_local Scratch step_rows;

void store_pairs(const float* values, int64_t k, const float* scales, void* panel) {
  const int64_t count = k * kPairsWidth;
  auto* const rows = reinterpret_cast<int8_t*>(step_rows.get(static_cast<size_t>(count / 4)));
  to_i8(values, k, kPairsWidth, scales, rows);
  interleave_rows(rows, k, kPairsWidth, static_cast<int8_t*>(panel));
}

}  // namespace

void rows_as_i16(const float* in, int64_t in_stride, int64_t m, int64_t k, int64_t k_end, void* out,
                 int64_t stride, float* scales) {
  quantise_kernels().f32_to_i16(in, in_stride, m, k, k_end, static_cast<int16_t*>(out), stride,
                                scales);
}

const char* decline_i8_pairs(const PanelUse& use) {
  // One tile of rows waits for its weights; two wait about as long as for weights of 16 bits.
  const int64_t most = use.weights == FloatType::f32 ? 2 * kI8PairsRows : kI8PairsRows;
  if (use.precision != Precision::i8) return "needs weights that may be rounded to 8 bits";
  if (use.rows > most) return "needs fewer rows";
  if (!cpu_has(CpuFeature::avx512_vnni)) return "needs AVX512-VNNI";
  return pack_kernels().width == kPairsWidth ? nullptr : "needs panels of AVX-512";
}

const PanelKernel& i8_pairs_kernel() {
  static constexpr PanelKernel kernel = {
      .layout = {.width = kPairsWidth,
                 .k_unit = 2,
                 .weight_bytes = 1,
                 .has_scales = true,
                 .store = store_pairs,
                 .quantise_rows = rows_as_i16,
                 .row_bytes = 2,
                 .most_k = kI16RowsDepth},
      .mr = kI8PairsRows,
      .lanes = 16,
      .one = i8_pairs_one,
      .two = i8_pairs_two,
  };
  return kernel;
}

}  // namespace epilogue::simd
