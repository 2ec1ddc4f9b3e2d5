// SPDX-License-Identifier: Apache-2.0
// Panels of 4-bit weights times few rows of 16-bit integers by AVX512-VNNI's dot products of four:
// a step of 4 bits is a byte without a sign, and a row's integer is 256 times one byte with a sign
// and another. A step of 8 k of 16 columns costs a shift, two masks and four dot products for each
// row, half of what pairs of 16 bits cost (i4.cpp). A group's sums are the same integers.
//
// Rows lie as the words of a panel ask for them, 16 bytes for 8 of k (group_bit()):
//
//   high bytes of k 0 4 1 5, low bytes of these, high bytes of k 2 6 3 7, low bytes of these
#include <array>
#include <cstring>

#include "backend/cpu/simd/panels/group_panel.h"
#include "backend/cpu/simd/panels/i4_kernels.h"
#include "backend/cpu/simd/panels/pack.h"
#include "backend/cpu/simd/panels/row_tiles.h"
#include "base/assert.h"
#include "base/ceil_div.h"
#include "base/cpu_features.h"

#if defined(__x86_64__)
#include <hwy/base.h>
#include <immintrin.h>

// Inlined standard headers end above this line: nothing of them is compiled for the target.
HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")

namespace epilogue::simd {
namespace {

// gcc 12 warns of the forms without a mask that they read what was never set.
constexpr __mmask16 kAll = 0xFFFF;
constexpr int64_t kLanes = 16;
constexpr int64_t kRowsAtOnce = 4;

[[gnu::always_inline]] inline __m512 scales_of(const GroupView& group, int64_t column,
                                               FloatType type) {
  const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(group.scales + column));
  if (type == FloatType::f16) return _mm512_maskz_cvtph_ps(kAll, bits);
  return _mm512_castsi512_ps(
      _mm512_maskz_slli_epi32(kAll, _mm512_maskz_cvtepu16_epi32(kAll, bits), 16));
}

// As text: of the intrinsic gcc 12 copies sums, and stores them at each step.
[[gnu::always_inline]] inline __m512i dot(__m512i sum, __m512i weights, __m512i rows) {
  asm("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(weights), "v"(rows));
  return sum;
}

[[gnu::always_inline]] inline __m512i four_of(const char* a) {
  int32_t bits = 0;
  std::memcpy(&bits, a, sizeof bits);
  return _mm512_set1_epi32(bits);
}

// Sums of a group's products with the high bytes of a row, and with the low ones.
struct GroupSums {
  __m512i high;
  __m512i low;
};

// kRuns runs of `count` groups each, one after the other from group `first` on, all read at once.
template <int64_t kRuns>
struct Runs {
  int64_t of(int64_t r, int64_t g) const { return first + r * count + g; }
  int64_t first;
  int64_t count;
};

// out (+)= kVectors vectors of columns from `column` on, of rows [row, row + kRows), without the
// rows' scales; a panel's width from row to row. Each run is summed by itself. Each vector of a
// panel's row is a line of the caches: the vectors that another call takes are not read here.
template <int64_t kRows, int64_t kVectors, Stream kStream, int64_t kRuns>
[[gnu::noinline]] void dots_tile(const PanelArgs& args, int64_t row, int64_t column,
                                 Runs<kRuns> runs, float* out) {
  constexpr int64_t ahead = kRuns > 1 ? kAheadOfRun.bytes : ahead_of_stream(1).bytes;
  const GroupFormat& f = *args.groups;
  const __m512i mask = _mm512_set1_epi8(0xF);
  const char* a[kRows];
  const int32_t* row_sums[kRows];
  __m512 totals[kRuns][kRows][kVectors];
#pragma GCC unroll 4
  for (int64_t i = 0; i < kRows; ++i) {
    a[i] = static_cast<const char*>(args.a) + 2 * (row + i) * args.a_stride;
    row_sums[i] = args.row_sums + (row + i) * args.row_sums_stride;
#pragma GCC unroll 2
    for (int64_t r = 0; r < kRuns; ++r)
#pragma GCC unroll 4
      for (int64_t j = 0; j < kVectors; ++j) totals[r][i][j] = _mm512_setzero_ps();
  }
  for (int64_t g = 0; g < runs.count; ++g) {
    const uint32_t* words[kRuns];
    GroupSums sums[kRuns][kRows][kVectors];
#pragma GCC unroll 2
    for (int64_t r = 0; r < kRuns; ++r) {
      const GroupView group = group_at(args.panel, f, kPairsWidth, runs.of(r, g));
      words[r] = group.words + column;
      if constexpr (kStream == Stream::first) {
        const char* const header = reinterpret_cast<const char*>(group.scales);
        for (int64_t b = 0; b < group_header_bytes(f, kPairsWidth); b += 64)
          fetch_line<kIntoL2>(header + b + ahead);
      }
#pragma GCC unroll 4
      for (int64_t i = 0; i < kRows; ++i)
#pragma GCC unroll 4
        for (int64_t j = 0; j < kVectors; ++j)
          sums[r][i][j] = {_mm512_setzero_si512(), _mm512_setzero_si512()};
    }
    for (int64_t k = 0; k < f.size; k += 8) {
#pragma GCC unroll 2
      for (int64_t r = 0; r < kRuns; ++r) {
#pragma GCC unroll 4
        for (int64_t j = 0; j < kVectors; ++j) {
          const uint32_t* const at = words[r] + k * (kPairsWidth / 8) + j * kLanes;
          if constexpr (kStream == Stream::first)
            fetch_line<kIntoL2>(reinterpret_cast<const char*>(at) + ahead);
          const __m512i word = _mm512_loadu_si512(at);
          const __m512i low = _mm512_and_si512(word, mask);
          const __m512i high = _mm512_and_si512(_mm512_maskz_srli_epi32(kAll, word, 4), mask);
#pragma GCC unroll 4
          for (int64_t i = 0; i < kRows; ++i) {
            const char* const x = a[i] + 2 * (runs.of(r, g) * f.size + k);
            GroupSums& s = sums[r][i][j];
            s.high = dot(s.high, low, four_of(x));
            s.low = dot(s.low, low, four_of(x + 4));
            s.high = dot(s.high, high, four_of(x + 8));
            s.low = dot(s.low, high, four_of(x + 12));
          }
        }
      }
    }
#pragma GCC unroll 2
    for (int64_t r = 0; r < kRuns; ++r) {
      const int64_t index = runs.of(r, g);
      const GroupView group = group_at(args.panel, f, kPairsWidth, index);
      __m512i moved[kRows];
#pragma GCC unroll 4
      for (int64_t i = 0; i < kRows; ++i)
        moved[i] =
            _mm512_set1_epi32(static_cast<int32_t>(static_cast<uint32_t>(row_sums[i][index + 1]) -
                                                   static_cast<uint32_t>(row_sums[i][index])));
#pragma GCC unroll 4
      for (int64_t j = 0; j < kVectors; ++j) {
        const int64_t at = column + j * kLanes;
        const __m512 scale = scales_of(group, at, f.scales);
        const __m512i zero =
            group.zeros == nullptr
                ? _mm512_set1_epi32(kMiddleStep)
                : _mm512_maskz_cvtepu8_epi32(
                      kAll, _mm_loadu_si128(reinterpret_cast<const __m128i*>(group.zeros + at)));
#pragma GCC unroll 4
        for (int64_t i = 0; i < kRows; ++i) {
          const GroupSums& s = sums[r][i][j];
          __m512i sum = _mm512_add_epi32(s.low, _mm512_maskz_slli_epi32(kAll, s.high, 8));
          sum = _mm512_sub_epi32(sum, _mm512_mullo_epi32(zero, moved[i]));
          __m512& total = totals[r][i][j];
          total = _mm512_fmadd_ps(_mm512_maskz_cvtepi32_ps(kAll, sum), scale, total);
        }
      }
    }
  }
#pragma GCC unroll 4
  for (int64_t i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
    for (int64_t j = 0; j < kVectors; ++j) {
      float* const to = out + i * kPairsWidth + column + j * kLanes;
      __m512 sum = totals[0][i][j];
      if (runs.first > 0) sum = _mm512_add_ps(_mm512_load_ps(to), sum);
#pragma GCC unroll 2
      for (int64_t r = 1; r < kRuns; ++r) sum = _mm512_add_ps(sum, totals[r][i][j]);
      _mm512_store_ps(to, sum);
    }
  }
}

template <int64_t kRows, Stream kStream>
void dots_rows(const PanelArgs& args, int64_t row, float* out) {
  const int64_t groups = ceil_div(args.k, args.groups->size);
  const auto tile = [&](auto runs) {
    if constexpr (kRows <= 2) return dots_tile<kRows, 4, kStream>(args, row, 0, runs, out);
    // The sums of more rows fill the registers with half of the columns.
    dots_tile<kRows, 2, kStream>(args, row, 0, runs, out);
    dots_tile<kRows, 2, kStream>(args, row, kPairsWidth / 2, runs, out);
  };
  if constexpr (kRows == 1) {
    const int64_t run = groups / kIntegerRuns;
    const int64_t rest = groups % kIntegerRuns;
    tile(Runs<kIntegerRuns>{0, run});  // no groups: zeros
    if (rest > 0) tile(Runs<1>{groups - rest, rest});
  } else {
    tile(Runs<1>{0, groups});
  }
#pragma GCC unroll 4
  for (int64_t i = 0; i < kRows; ++i) {
    const __m512 scale = _mm512_set1_ps(args.row_scales[row + i]);
#pragma GCC unroll 4
    for (int64_t j = 0; j < kPairsWidth; j += kLanes) {
      float* const to = out + i * kPairsWidth + j;
      _mm512_store_ps(to, _mm512_mul_ps(_mm512_load_ps(to), scale));
    }
  }
}

void arrange(void* rows, int64_t count) {
  auto* const bytes = static_cast<char*>(rows);
  const __m128i order = _mm_setr_epi8(1, 9, 3, 11, 0, 8, 2, 10, 5, 13, 7, 15, 4, 12, 6, 14);
  for (int64_t i = 0; i < count; i += 8) {
    auto* const at = reinterpret_cast<__m128i*>(bytes + 2 * i);
    const __m128i x = _mm_loadu_si128(at);
    // The low byte has a sign: where it is below 0 the high one is one more.
    const __m128i high = _mm_and_si128(_mm_add_epi16(x, _mm_set1_epi16(128)),
                                       _mm_set1_epi16(static_cast<int16_t>(0xFF00)));
    const __m128i split = _mm_or_si128(high, _mm_and_si128(x, _mm_set1_epi16(0xFF)));
    _mm_storeu_si128(at, _mm_shuffle_epi8(split, order));
  }
}

void product(const PanelArgs& args, void (*put)(const PanelArgs&, int64_t, int64_t, const float*)) {
  alignas(64) std::array<float, kRowsAtOnce * kPairsWidth> values;
  all_rows<kRowsAtOnce>(args.m, [&](auto rows, auto stream, int64_t row) {
    dots_rows<rows(), stream()>(args, row, values.data());
    put(args, row, rows(), values.data());
  });
}

}  // namespace
}  // namespace epilogue::simd

HWY_POP_ATTRIBUTES

#else

namespace epilogue::simd {
namespace {

constexpr int64_t kLanes = 16;
constexpr int64_t kRowsAtOnce = 4;
void arrange(void*, int64_t) { EPI_ASSERT(false, "x86-64 only"); }
void product(const PanelArgs&, void (*)(const PanelArgs&, int64_t, int64_t, const float*)) {
  EPI_ASSERT(false, "x86-64 only");
}

}  // namespace
}  // namespace epilogue::simd

#endif

namespace epilogue::simd {

const char* decline_i4_amx(const PanelUse& use);

namespace {

void dots(const PanelArgs& args) { product(args, i4_kernels().put); }

}  // namespace

const char* decline_i4_dots(const PanelUse& use) {
  // Cycles of one step of 32 columns in tiles and beside it what unpacks them; here each four rows
  // mask them again.
  constexpr TileCosts kCosts = {.tiles = 220, .widen = 15, .row = 32};
  if (use.precision != Precision::i4) return "needs weights that may be rounded to 4 bits";
  if (use.rows > kFewI4Rows) return "needs few rows";
  if (!cpu_has(CpuFeature::avx512_vnni)) return "needs AVX512-VNNI";
  if (pack_kernels().width != kPairsWidth) return "needs panels of AVX-512";
  return decline_i4_amx(use) == nullptr && tiles_are_faster(kCosts, use.rows) ? "tiles are faster"
                                                                              : nullptr;
}

const PanelKernel& i4_dots_kernel() {
  static const PanelKernel kernel = [] {
    PanelKernel made = i4_kernels().kernel;
    made.layout.arrange_rows = arrange;
    made.mr = kRowsAtOnce;
    made.lanes = kLanes;
    made.one = dots;
    made.two = dots;
    return made;
  }();
  return kernel;
}

}  // namespace epilogue::simd
