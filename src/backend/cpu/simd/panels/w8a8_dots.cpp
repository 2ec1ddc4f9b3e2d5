// SPDX-License-Identifier: Apache-2.0
// Panels of 8-bit weights times rows of 8-bit integers by VNNI's dot products of four, four times
// the products of an instruction of f32: AVX512-VNNI on panels of AVX-512, AVX-VNNI on those of
// AVX2. Raw intrinsics in target regions: Highway 1.0.3 has neither.
#include <algorithm>
#include <cstring>

#include "backend/cpu/simd/panels/pack.h"
#include "backend/cpu/simd/panels/pack_tiles.h"
#include "backend/cpu/simd/panels/row_tiles.h"
#include "backend/cpu/simd/panels/w8a8.h"
#include "backend/cpu/simd/quantise.h"
#include "backend/cpu/simd/scratch.h"
#include "base/assert.h"
#include "base/cpu_features.h"

namespace epilogue::simd {
namespace {

// Rows that the kernels compute at once.
constexpr int64_t kDotRows = 6;
// Columns of AVX2's panels.
constexpr int64_t kNarrowWidth = 16;

}  // namespace
}  // namespace epilogue::simd

#if defined(__x86_64__)
#include <hwy/base.h>
#include <immintrin.h>

// Inlined standard headers end above this line: nothing of them is compiled for the targets.
HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")

namespace epilogue::simd {
namespace wide_dots {
namespace {

struct Unit {
  using V = __m512i;
  using F = __m512;
  static constexpr int64_t kLanes = 16;
  static V set(int32_t x) { return _mm512_set1_epi32(x); }
  static V load_weights(const int8_t* p) {
    return _mm512_xor_si512(_mm512_loadu_si512(p), _mm512_set1_epi8(-128));
  }
  // As text: of the intrinsic gcc 12 copies each sum, and stores most of them at each step.
  static V dot(V sum, V weights, V rows) {
    asm("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(weights), "v"(rows));
    return sum;
  }
  // The unmasked form warns of its own undefined operand in gcc 12.
  static F to_float(V v) { return _mm512_maskz_cvtepi32_ps(0xFFFF, v); }
  static F scale_of(float x) { return _mm512_set1_ps(x); }
  static F mul(F a, F b) { return _mm512_mul_ps(a, b); }
  static F add(F a, F b) { return _mm512_add_ps(a, b); }
  static F load(const float* p) { return _mm512_loadu_ps(p); }
  static void store(float* p, F v) { _mm512_storeu_ps(p, v); }
};

#include "backend/cpu/simd/panels/w8a8_dots-inl.h"

// The same in tiles of 16 columns.
template <int kParts>
struct QuadTiles {
  explicit QuadTiles(const PanelArgs& args)
      : block(static_cast<const int8_t*>(args.panel)), block_bytes(tile_block_bytes(args, 1)) {}
  const int8_t* vector(int64_t j) const { return block + tile_place(j, kParts, block_bytes); }
  // Each block is read at half of the panel's pace.
  const int8_t* ahead(int64_t j, int64_t bytes) const { return vector(j) + bytes / 2; }
  void next() {
    block += 64;
    if (++row < kTileRows) return;
    row = 0;
    block += kTilePairBytes / 2;
  }

  const int8_t* block;
  int64_t block_bytes;
  int64_t row = 0;
};

}  // namespace
}  // namespace wide_dots

void w8a8_dots_one(const PanelArgs& args) { wide_dots::dots_product<wide_dots::Unit, 4, 1>(args); }
void w8a8_dots_two(const PanelArgs& args) { wide_dots::dots_product<wide_dots::Unit, 4, 2>(args); }
void w8a8_tile_dots_one(const PanelArgs& args) {
  wide_dots::dots_product<wide_dots::Unit, 4, 1, wide_dots::QuadTiles<1>>(args);
}
void w8a8_tile_dots_two(const PanelArgs& args) {
  wide_dots::dots_product<wide_dots::Unit, 4, 2, wide_dots::QuadTiles<2>>(args);
}

}  // namespace epilogue::simd

HWY_POP_ATTRIBUTES

HWY_PUSH_ATTRIBUTES("avx2,fma,avxvnni")

namespace epilogue::simd {
namespace narrow_dots {
namespace {

struct Unit {
  using V = __m256i;
  using F = __m256;
  static constexpr int64_t kLanes = 8;
  static V set(int32_t x) { return _mm256_set1_epi32(x); }
  static V load_weights(const int8_t* p) {
    return _mm256_xor_si256(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)),
                            _mm256_set1_epi8(-128));
  }
  static V dot(V sum, V weights, V rows) { return _mm256_dpbusd_avx_epi32(sum, weights, rows); }
  static F to_float(V v) { return _mm256_cvtepi32_ps(v); }
  static F scale_of(float x) { return _mm256_set1_ps(x); }
  static F mul(F a, F b) { return _mm256_mul_ps(a, b); }
  static F add(F a, F b) { return _mm256_add_ps(a, b); }
  static F load(const float* p) { return _mm256_loadu_ps(p); }
  static void store(float* p, F v) { _mm256_storeu_ps(p, v); }
};

#include "backend/cpu/simd/panels/w8a8_dots-inl.h"

void one(const PanelArgs& args) { dots_product<Unit, 2, 1>(args); }
void two(const PanelArgs& args) { dots_product<Unit, 2, 2>(args); }

}  // namespace
}  // namespace narrow_dots
}  // namespace epilogue::simd

HWY_POP_ATTRIBUTES

#else

namespace epilogue::simd {

void w8a8_dots_one(const PanelArgs&) { EPI_ASSERT(false, "x86-64 only"); }
void w8a8_dots_two(const PanelArgs&) { EPI_ASSERT(false, "x86-64 only"); }
void w8a8_tile_dots_one(const PanelArgs&) { EPI_ASSERT(false, "x86-64 only"); }
void w8a8_tile_dots_two(const PanelArgs&) { EPI_ASSERT(false, "x86-64 only"); }

namespace narrow_dots {
namespace {

void one(const PanelArgs&) { EPI_ASSERT(false, "x86-64 only"); }
void two(const PanelArgs&) { EPI_ASSERT(false, "x86-64 only"); }

}  // namespace
}  // namespace narrow_dots
}  // namespace epilogue::simd

#endif

namespace epilogue::simd {
namespace {

thread_local Scratch quad_rows;

// Four neighbours along k side by side, column by column.
template <int64_t kWide>
void store_quads(const float* values, int64_t k, const float* scales, void* panel) {
  auto* const rows = reinterpret_cast<int8_t*>(quad_rows.get(static_cast<size_t>(k * kWide / 4)));
  to_i8(values, k, kWide, scales, rows);
  auto* out = static_cast<int8_t*>(panel);
  for (int64_t q = 0; q < k; q += 4)
    for (int64_t j = 0; j < kWide; ++j)
      for (int64_t i = 0; i < 4; ++i) *out++ = rows[(q + i) * kWide + j];
}

void byte_rows(const float* in, int64_t in_stride, int64_t m, int64_t k, int64_t k_end, void* out,
               int64_t stride, float* scales) {
  quantise_kernels().f32_to_i8(in, in_stride, m, k, k_end, static_cast<int8_t*>(out), stride,
                               scales);
}

}  // namespace

PanelLayout w8a8_quads_layout(int64_t width) {
  return {.width = width,
          .k_unit = kQuadsK,
          .weight_bytes = 1,
          .has_scales = true,
          .store = width == kNarrowWidth ? store_quads<kNarrowWidth> : store_quads<kPairsWidth>,
          .quantise_rows = byte_rows,
          .row_bytes = 1,
          .most_k = kW8a8Depth,
          .sum_unit = kQuadsK};
}

const char* decline_w8a8_dots(const PanelUse& use) {
  if (const char* reason = decline_others_than_w8a8(use)) return reason;
  if (!cpu_has(CpuFeature::avx512_vnni)) return "needs AVX512-VNNI";
  return pack_kernels().width == kPairsWidth ? nullptr : "needs panels of AVX-512";
}
const PanelKernel& w8a8_dots_kernel() {
  static const PanelKernel kernel = {.layout = w8a8_quads_layout(kPairsWidth),
                                     .mr = kDotRows,
                                     .lanes = 16,
                                     .one = w8a8_dots_one,
                                     .two = w8a8_dots_two};
  return kernel;
}

const char* decline_w8a8_avx_dots(const PanelUse& use) {
  if (const char* reason = decline_others_than_w8a8(use)) return reason;
  if (!cpu_has(CpuFeature::avx_vnni)) return "needs AVX-VNNI";
  return pack_kernels().width == kNarrowWidth ? nullptr : "needs panels of AVX2";
}
const PanelKernel& w8a8_avx_dots_kernel() {
  static const PanelKernel kernel = {.layout = w8a8_quads_layout(kNarrowWidth),
                                     .mr = kDotRows,
                                     .lanes = 8,
                                     .one = narrow_dots::one,
                                     .two = narrow_dots::two};
  return kernel;
}

}  // namespace epilogue::simd
