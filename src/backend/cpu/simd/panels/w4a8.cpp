// SPDX-License-Identifier: Apache-2.0
// Panels of 4-bit weights times rows of 8-bit integers, for many rows: what a call reads of a panel
// is unpacked once, into integers of 8 bits, and all rows of the block are multiplied by these.
// Sums of a group are exact integers:
//
//   out[i][j] = sum over groups g of scales[g][j] * row_scales[i] * (sum over k in g of a[i][k]
//   b[k][j])
//
// On AVX2 by pmaddubsw, which multiplies unsigned steps by signed rows and adds two products in 16
// bits: at most 2 * 15 * 127. Eight of these fit 16 bits, so that, other than with 8-bit weights
// (w8a8_pairs.cpp), nothing saturates, and an instruction makes twice the products of pmaddwd.
// Elsewhere by the kernels of 8-bit weights, group after group; in tiles from end to end the
// weights of several groups are bytes of one scale (group_columns.h), because sums of short groups
// take longer to scale than to make.
#include <algorithm>
#include <array>
#include <cstring>
#include <mutex>

#include "backend/cpu/simd/panels/pack.h"
#include "backend/cpu/simd/panels/row_tiles.h"
#include "backend/cpu/simd/panels/w8a8.h"
#include "backend/cpu/simd/quantise.h"
#include "backend/cpu/simd/scratch.h"
#include "backend/cpu/simd/targets.h"
#include "base/assert.h"
#include "base/cpu_features.h"

namespace epilogue::simd {

const char* decline_w8a8_amx_tiled(const PanelUse& use);
const PanelKernel& w8a8_amx_kernel();
const char* decline_w8a8_dots(const PanelUse& use);
const PanelKernel& w8a8_dots_kernel();
const char* decline_w8a8_avx_dots(const PanelUse& use);
const PanelKernel& w8a8_avx_dots_kernel();
const PanelKernel& w8a8_pairs_kernel();
// In tiles from end to end (i4_tiles.cpp).
void w4a8_amx_tiles(const TileArgs& args);

namespace {

// Columns of AVX2's panels, and rows at once: their sums of 16 bits are half of the registers.
constexpr int64_t kBytesWidth = 16;
constexpr int64_t kBytesRows = 4;

// An unpacked panel, in memory of this thread until the next call.
struct Unpacked {
  const int8_t* steps;
  const float* scales;
  const int32_t* zeros;
};

thread_local Scratch step_panel;
thread_local Scratch scale_panel;
thread_local Scratch sum_panel;

Unpacked unpack(const PanelArgs& args, int64_t width, StepOrder order, bool keeps_zeros) {
  const int64_t groups = args.k / args.groups->size;
  auto* const steps = reinterpret_cast<int8_t*>(
      step_panel.get(static_cast<size_t>(args.k * width / int64_t{sizeof(float)})));
  float* const scales = scale_panel.get(static_cast<size_t>(2 * groups * width));
  auto* const zeros = keeps_zeros ? reinterpret_cast<int32_t*>(scales + groups * width) : nullptr;
  i4_kernels().unpack(*args.groups, args.panel, args.k, order, {steps, scales, zeros});
  return {steps, scales, zeros};
}

}  // namespace

void w4a8_product(const PanelArgs& args, const PanelLayout& inner, StepOrder order,
                  PanelFunction kernel) {
  const int64_t size = args.groups->size;
  const Unpacked panel = unpack(args, inner.width, order, false);
  PanelArgs group = args;
  group.k = size;
  // Of a group alone: what comes before it, and, at the place where the kernels look, after it.
  auto* const sums = reinterpret_cast<int32_t*>(sum_panel.get(static_cast<size_t>(3 * args.m)));
  group.row_sums = sums;
  group.row_sums_stride = 3;
  group.next = nullptr;
  group.store = nullptr;
  group.work = nullptr;
  for (int64_t g = 0; g * size < args.k; ++g) {
    group.a = static_cast<const char*>(args.a) + g * size * inner.row_bytes;
    group.panel = panel.steps + g * size * inner.width;
    group.scales = panel.scales + g * inner.width;
    for (int64_t i = 0; i < args.m; ++i) {
      const int32_t* const before = args.row_sums + i * args.row_sums_stride + g;
      sums[3 * i] = before[0];
      sums[3 * i + 1] = sums[3 * i + 2] = before[1];
    }
    group.accumulate = args.accumulate || g > 0;
    kernel(group);
  }
}

namespace {

void amx_one(const PanelArgs& args) {
  // A tile takes 64 of k: groups of 32 go to the dot products, whose panels are the same.
  const bool has_tiles = args.groups->size % kQuadsK == 0;
  w4a8_product(args, w8a8_amx_kernel().layout, StepOrder::quads,
               has_tiles ? w8a8_amx_kernel().one : w8a8_dots_one);
}
void amx_two(const PanelArgs& args) {
  const bool has_tiles = args.groups->size % kQuadsK == 0;
  w4a8_product(args, w8a8_amx_kernel().layout, StepOrder::quads,
               has_tiles ? w8a8_amx_kernel().two : w8a8_dots_two);
}

template <const PanelKernel& (*kInner)(), StepOrder kOrder>
void groups_one(const PanelArgs& args) {
  w4a8_product(args, kInner().layout, kOrder, kInner().one);
}
template <const PanelKernel& (*kInner)(), StepOrder kOrder>
void groups_two(const PanelArgs& args) {
  w4a8_product(args, kInner().layout, kOrder, kInner().two);
}

// As `inner`, reading the panels of 4-bit weights.
PanelKernel over(const PanelKernel& inner, PanelFunction one, PanelFunction two) {
  PanelKernel kernel = inner;
  kernel.layout = i4_kernels().kernel.layout;
  kernel.layout.quantise_rows = inner.layout.quantise_rows;
  kernel.layout.row_bytes = inner.layout.row_bytes;
  kernel.layout.most_k = kAnyK;
  kernel.one = one;
  kernel.two = two;
  kernel.block = nullptr;
  kernel.stores = false;
  kernel.overlap_rows = 0;
  return kernel;
}

// The inner kernel of pairs differs by level.
const PanelKernel& pairs_of_level() {
  static std::array<std::once_flag, kTargets> made;
  static std::array<PanelKernel, kTargets> kernels;
  const auto level = static_cast<size_t>(active_target());
  std::call_once(made[level], [level] {
    kernels[level] = over(w8a8_pairs_kernel(), groups_one<w8a8_pairs_kernel, StepOrder::pairs>,
                          groups_two<w8a8_pairs_kernel, StepOrder::pairs>);
  });
  return kernels[level];
}

}  // namespace
}  // namespace epilogue::simd

#if defined(__x86_64__)
#include <hwy/base.h>
#include <immintrin.h>

// Inlined standard headers end above this line: nothing of them is compiled for the target.
HWY_PUSH_ATTRIBUTES("avx2")

namespace epilogue::simd {
namespace {

constexpr int64_t kVectors = kBytesWidth / 8;
// Of k, before sums of 16 bits are widened: eight steps of four.
constexpr int64_t kNarrowDepth = 32;

__m256i load_steps(const int8_t* p) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
}

// Where the sums of vector j of the panel go.
template <int kParts>
float* sums_at(const PanelArgs& args, int64_t row, int64_t j) {
  constexpr int64_t part_vectors = kVectors / kParts;
  return args.sums[j / part_vectors] + row * (kBytesWidth / kParts) + j % part_vectors * 8;
}

// Rows [row, row + kRows) times all groups, whose sums are added one after the other, as the other
// kernels add them: the bits are the same on every level. A lane of 32 bits is a column.
template <int64_t kRows, int kParts>
void bytes_tile(const PanelArgs& args, const Unpacked& panel, int64_t row) {
  const int64_t size = args.groups->size;
  const __m256i ones = _mm256_set1_epi16(1);
  __m256 totals[kRows][kVectors];
#pragma GCC unroll 4
  for (int64_t i = 0; i < kRows; ++i) {
#pragma GCC unroll 2
    for (int64_t j = 0; j < kVectors; ++j)
      totals[i][j] = args.accumulate ? _mm256_loadu_ps(sums_at<kParts>(args, row + i, j))
                                     : _mm256_setzero_ps();
  }
  const int8_t* b = panel.steps;
  for (int64_t g = 0; g * size < args.k; ++g) {
    __m256i sums[kRows][kVectors];
#pragma GCC unroll 4
    for (int64_t i = 0; i < kRows; ++i) {
#pragma GCC unroll 2
      for (int64_t j = 0; j < kVectors; ++j) sums[i][j] = _mm256_setzero_si256();
    }
    for (int64_t k = g * size; k < (g + 1) * size; k += kNarrowDepth) {
      __m256i narrow[kRows][kVectors];
#pragma GCC unroll 4
      for (int64_t i = 0; i < kRows; ++i) {
#pragma GCC unroll 2
        for (int64_t j = 0; j < kVectors; ++j) narrow[i][j] = _mm256_setzero_si256();
      }
      for (int64_t q = k; q < k + kNarrowDepth; q += 4, b += 4 * kBytesWidth) {
        __m256i columns[kVectors];
#pragma GCC unroll 2
        for (int64_t j = 0; j < kVectors; ++j) columns[j] = load_steps(b + 32 * j);
#pragma GCC unroll 4
        for (int64_t i = 0; i < kRows; ++i) {
          int32_t four = 0;
          std::memcpy(&four, static_cast<const int8_t*>(args.a) + (row + i) * args.a_stride + q,
                      sizeof four);
          const __m256i factor = _mm256_set1_epi32(four);
#pragma GCC unroll 2
          for (int64_t j = 0; j < kVectors; ++j)
            narrow[i][j] = _mm256_add_epi16(narrow[i][j], _mm256_maddubs_epi16(columns[j], factor));
        }
      }
#pragma GCC unroll 4
      for (int64_t i = 0; i < kRows; ++i) {
#pragma GCC unroll 2
        for (int64_t j = 0; j < kVectors; ++j)
          sums[i][j] = _mm256_add_epi32(sums[i][j], _mm256_madd_epi16(narrow[i][j], ones));
      }
    }
#pragma GCC unroll 4
    for (int64_t i = 0; i < kRows; ++i) {
      const __m256 row_scale = _mm256_set1_ps(args.row_scales[row + i]);
      const int32_t* const before = args.row_sums + (row + i) * args.row_sums_stride + g;
      const auto moved =
          static_cast<int32_t>(static_cast<uint32_t>(before[1]) - static_cast<uint32_t>(before[0]));
#pragma GCC unroll 2
      for (int64_t j = 0; j < kVectors; ++j) {
        const int64_t at = g * kBytesWidth + 8 * j;
        const __m256i zeros =
            _mm256_loadu_si256(reinterpret_cast<const __m256i*>(panel.zeros + at));
        const __m256i sum =
            _mm256_sub_epi32(sums[i][j], _mm256_mullo_epi32(zeros, _mm256_set1_epi32(moved)));
        const __m256 scale = _mm256_mul_ps(row_scale, _mm256_loadu_ps(panel.scales + at));
        totals[i][j] = _mm256_add_ps(totals[i][j], _mm256_mul_ps(_mm256_cvtepi32_ps(sum), scale));
      }
    }
  }
#pragma GCC unroll 4
  for (int64_t i = 0; i < kRows; ++i) {
#pragma GCC unroll 2
    for (int64_t j = 0; j < kVectors; ++j)
      _mm256_storeu_ps(sums_at<kParts>(args, row + i, j), totals[i][j]);
  }
}

template <int kParts>
void bytes_product(const PanelArgs& args) {
  const Unpacked panel = unpack(args, kBytesWidth, StepOrder::quads, true);
  all_rows<kBytesRows>(
      args.m, [&](auto rows, auto, int64_t row) { bytes_tile<rows(), kParts>(args, panel, row); });
}

void bytes_one(const PanelArgs& args) { bytes_product<1>(args); }
void bytes_two(const PanelArgs& args) { bytes_product<2>(args); }

}  // namespace
}  // namespace epilogue::simd

HWY_POP_ATTRIBUTES

#else

namespace epilogue::simd {
namespace {

void bytes_one(const PanelArgs&) { EPI_ASSERT(false, "x86-64 only"); }
void bytes_two(const PanelArgs&) { EPI_ASSERT(false, "x86-64 only"); }

}  // namespace
}  // namespace epilogue::simd

#endif

namespace epilogue::simd {
namespace {

const char* decline_others_than_w4a8(const PanelUse& use) {
  const bool serves = use.precision == Precision::i4 && use.integer_rows;
  if (!serves) return "needs weights that may be rounded to 4 bits, and rows to 8";
  return use.rows > kFewI4Rows ? nullptr : "few rows keep their bits";
}

// The same of weights of 8 bits.
PanelUse unpacked_use(const PanelUse& use) {
  PanelUse wide = use;
  wide.precision = Precision::i8;
  return wide;
}

void byte_rows_of_4_bits(const float* in, int64_t in_stride, int64_t m, int64_t k, int64_t k_end,
                         void* out, int64_t stride, float* scales) {
  quantise_kernels().f32_to_i8(in, in_stride, m, k, k_end, static_cast<int8_t*>(out), stride,
                               scales);
}

}  // namespace

const char* decline_w4a8_amx(const PanelUse& use) {
  if (const char* reason = decline_others_than_w4a8(use)) return reason;
  return decline_w8a8_amx_tiled(unpacked_use(use));
}
const PanelKernel& w4a8_amx_kernel() {
  static const PanelKernel kernel = [] {
    PanelKernel made = over(w8a8_amx_kernel(), amx_one, amx_two);
    made.tiles = w4a8_amx_tiles;
    return made;
  }();
  return kernel;
}

const char* decline_w4a8_dots(const PanelUse& use) {
  if (const char* reason = decline_others_than_w4a8(use)) return reason;
  return decline_w8a8_dots(unpacked_use(use));
}
const PanelKernel& w4a8_dots_kernel() {
  static const PanelKernel kernel =
      over(w8a8_dots_kernel(), groups_one<w8a8_dots_kernel, StepOrder::quads>,
           groups_two<w8a8_dots_kernel, StepOrder::quads>);
  return kernel;
}

const char* decline_w4a8_avx_dots(const PanelUse& use) {
  if (const char* reason = decline_others_than_w4a8(use)) return reason;
  return decline_w8a8_avx_dots(unpacked_use(use));
}
const PanelKernel& w4a8_avx_dots_kernel() {
  static const PanelKernel kernel =
      over(w8a8_avx_dots_kernel(), groups_one<w8a8_avx_dots_kernel, StepOrder::quads>,
           groups_two<w8a8_avx_dots_kernel, StepOrder::quads>);
  return kernel;
}

const char* decline_w4a8_bytes(const PanelUse& use) {
  if (const char* reason = decline_others_than_w4a8(use)) return reason;
  if (!cpu_has(CpuFeature::avx2)) return "needs AVX2";
  return pack_kernels().width == kBytesWidth ? nullptr : "needs panels of AVX2";
}
const PanelKernel& w4a8_bytes_kernel() {
  static const PanelKernel kernel = [] {
    PanelKernel made = over(w8a8_pairs_kernel(), bytes_one, bytes_two);
    made.layout.quantise_rows = byte_rows_of_4_bits;
    made.layout.row_bytes = 1;
    made.mr = kBytesRows;
    return made;
  }();
  return kernel;
}

const char* decline_w4a8_pairs(const PanelUse& use) { return decline_others_than_w4a8(use); }
const PanelKernel& w4a8_pairs_kernel() { return pairs_of_level(); }

}  // namespace epilogue::simd
