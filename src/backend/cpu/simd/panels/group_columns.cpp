// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/simd/panels/group_columns.h"

#include <algorithm>
#include <bit>

#include "backend/cpu/simd/panels/group_panel.h"
#include "backend/cpu/simd/panels/prefetch.h"
#include "base/assert.h"

namespace epilogue::simd {
namespace {

// Groups of 32 within kBytesK, at most.
using BytesGroups = std::array<GroupTile, kBytesK / kTileK>;

}  // namespace
}  // namespace epilogue::simd

#if defined(__x86_64__)
#include <hwy/base.h>
#include <immintrin.h>

// Inlined standard headers end above this line: nothing of them is compiled for the target.
HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")

namespace epilogue::simd {
namespace {

// gcc 12 warns of the forms without a mask that they read what was never set.
constexpr __mmask16 kAll = 0xFFFF;

// bf16 of whole numbers of at most 5 bits.
constexpr uint16_t bf16_of(int value) {
  if (value == 0) return 0;
  const auto magnitude = static_cast<unsigned>(value < 0 ? -value : value);
  const auto exponent = static_cast<unsigned>(std::bit_width(magnitude)) - 1;
  const unsigned fraction = (magnitude << (7 - exponent)) & 0x7F;
  return static_cast<uint16_t>((value < 0 ? 0x8000U : 0) | (127 + exponent) << 7 | fraction);
}
constexpr std::array<uint16_t, 32> table_of(int bits, int zero) {
  std::array<uint16_t, 32> table{};
  for (int i = 0; i < 32; ++i) {
    const int value = i % (1 << bits) - zero;
    table[static_cast<size_t>(i)] = bf16_of(bits == 5 && value > 15 ? value - 32 : value);
  }
  return table;
}
// A table of 32 is asked by the lowest five bits of each lane of 16. Steps of 4 bits have the next
// one's lowest bit above them: each stands there twice.
alignas(64) constexpr std::array<uint16_t, 32> kStepsOf4Bits = table_of(4, kMiddleStep);
alignas(64) constexpr std::array<uint16_t, 32> kStepsOf5Bits = table_of(5, 0);

[[gnu::always_inline]] inline __m512 scales_of(const GroupTile& tile) {
  const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(tile.scales));
  if (tile.scale_type == FloatType::f16) return _mm512_maskz_cvtph_ps(kAll, bits);
  return _mm512_castsi512_ps(
      _mm512_maskz_slli_epi32(kAll, _mm512_maskz_cvtepu16_epi32(kAll, bits), 16));
}

[[gnu::always_inline]] inline __m512i zeros_of(const GroupTile& tile) {
  if (tile.zeros == nullptr) return _mm512_set1_epi32(kMiddleStep);
  return _mm512_maskz_cvtepu8_epi32(kAll,
                                    _mm_loadu_si128(reinterpret_cast<const __m128i*>(tile.zeros)));
}

[[gnu::always_inline]] inline __m512i words_at(const GroupTile& tile, int64_t row) {
  if (tile.ahead != nullptr) fetch_line<kIntoL2>(tile.ahead + row * kPairsWidth * 4);
  return _mm512_loadu_si512(tile.words + row * kPairsWidth);
}

// Every fourth bit of a word and the three above it begin a step (group_bit()). A table of 16
// floats is asked by a lane's lowest four bits, whatever lies above them.
template <int kPair>
[[gnu::always_inline]] inline __m512i pair_of(__m512i words, __m512 steps, __m512 scale,
                                              __m512 zero) {
  const __m512i low = _mm512_maskz_srli_epi32(kAll, words, 4 * kPair);
  const __m512i high = _mm512_maskz_srli_epi32(kAll, words, 16 + 4 * kPair);
  const __m512 first = _mm512_fmadd_ps(_mm512_maskz_permutexvar_ps(kAll, low, steps), scale, zero);
  const __m512 second =
      _mm512_fmadd_ps(_mm512_maskz_permutexvar_ps(kAll, high, steps), scale, zero);
  // Rounded by additions, on any vector unit: the instruction for it, and the one that then brings
  // neighbours together, are of one unit, which the tables keep busy.
  const __m512i half = _mm512_set1_epi32(0x8000);
  const __m512i even =
      _mm512_maskz_srli_epi32(kAll, _mm512_add_epi32(_mm512_castps_si512(first), half), 16);
  const __m512i odd = _mm512_add_epi32(_mm512_castps_si512(second), half);
  constexpr __mmask32 kOdd = 0xAAAAAAAA;
  return _mm512_mask_mov_epi16(even, kOdd, odd);
}

// 32 of k. The step times the scale, less the zero times the scale, is exact: one rounding is left.
void unpack_values(const GroupTile& tile, char* out, float*) {
  const __m512 scale = scales_of(tile);
  const __m512 zero =
      _mm512_fnmadd_ps(_mm512_maskz_cvtepi32_ps(kAll, zeros_of(tile)), scale, _mm512_setzero_ps());
  const __m512 steps = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
#pragma GCC unroll 4
  for (int64_t row = 0; row < kTileK / 8; ++row, out += 4 * 64) {
    const __m512i words = words_at(tile, row);
    _mm512_store_si512(out, pair_of<0>(words, steps, scale, zero));
    _mm512_store_si512(out + 64, pair_of<1>(words, steps, scale, zero));
    _mm512_store_si512(out + 128, pair_of<2>(words, steps, scale, zero));
    _mm512_store_si512(out + 192, pair_of<3>(words, steps, scale, zero));
  }
}

// 32 of k as integers: bf16 of 5 bits with a sign, by a table.
void unpack_integers(const GroupTile& tile, char* out, float* scales) {
  if (scales != nullptr) _mm512_store_ps(scales, scales_of(tile));
  const __mmask32 all = ~__mmask32{0};
  const auto put = [&](__m512i steps, __m512i table, char* to) {
    _mm512_store_si512(to, _mm512_maskz_permutexvar_epi16(all, steps, table));
  };
  if (tile.zeros == nullptr) {
    const __m512i table = _mm512_load_si512(kStepsOf4Bits.data());
#pragma GCC unroll 4
    for (int64_t row = 0; row < kTileK / 8; ++row, out += 4 * 64) {
      const __m512i words = words_at(tile, row);
      put(words, table, out);
      put(_mm512_maskz_srli_epi32(kAll, words, 4), table, out + 64);
      put(_mm512_maskz_srli_epi32(kAll, words, 8), table, out + 128);
      put(_mm512_maskz_srli_epi32(kAll, words, 12), table, out + 192);
    }
    return;
  }
  const __m512i table = _mm512_load_si512(kStepsOf5Bits.data());
  const __m512i mask = _mm512_set1_epi32(0x000F000F);
  const __m512i low = zeros_of(tile);
  const __m512i zeros = _mm512_or_si512(low, _mm512_maskz_slli_epi32(kAll, low, 16));
  const auto less = [&](__m512i steps) {
    return _mm512_sub_epi16(_mm512_and_si512(steps, mask), zeros);
  };
#pragma GCC unroll 4
  for (int64_t row = 0; row < kTileK / 8; ++row, out += 4 * 64) {
    const __m512i words = words_at(tile, row);
    put(less(words), table, out);
    put(less(_mm512_maskz_srli_epi32(kAll, words, 4)), table, out + 64);
    put(less(_mm512_maskz_srli_epi32(kAll, words, 8)), table, out + 128);
    put(less(_mm512_maskz_srli_epi32(kAll, words, 12)), table, out + 192);
  }
}

// Scales of 16 columns of bytes, and the ratios of their `count` groups to them.
void find_ratios(const BytesGroups& groups, int64_t count, uint32_t* ratios, float* scales) {
  __m512 most = _mm512_setzero_ps();
  __m512 nothing = _mm512_setzero_ps();  // NaN where a scale is not finite
  for (int64_t i = 0; i < count; ++i) {
    const GroupTile& group = groups[static_cast<size_t>(i)];
    const __m512 scale = scales_of(group);
    const __m512i zeros = zeros_of(group);
    const __m512i above = _mm512_sub_epi32(_mm512_set1_epi32(kMostSteps), zeros);
    const __m512 reach = _mm512_maskz_cvtepi32_ps(kAll, _mm512_maskz_max_epi32(kAll, zeros, above));
    most = _mm512_maskz_max_ps(kAll, most, _mm512_mul_ps(_mm512_abs_ps(scale), reach));
    nothing = _mm512_fmadd_ps(scale, _mm512_setzero_ps(), nothing);
  }
  const __mmask16 is_there = _mm512_cmp_ps_mask(most, _mm512_set1_ps(kLeastReach), _CMP_GE_OQ);
  const __m512 inverse =
      _mm512_maskz_div_ps(is_there, _mm512_set1_ps(float{kMostByte} * kRatioOne), most);
  _mm512_store_ps(
      scales, _mm512_add_ps(_mm512_mul_ps(most, _mm512_set1_ps(1 / float{kMostByte})), nothing));
  for (int64_t i = 0; i < count; ++i) {
    const __m512i ratio = _mm512_maskz_cvtps_epi32(
        kAll, _mm512_mul_ps(scales_of(groups[static_cast<size_t>(i)]), inverse));
    const __m512i low = _mm512_and_si512(ratio, _mm512_set1_epi32(0xFFFF));
    _mm512_store_si512(ratios + i * kTileBlock,
                       _mm512_or_si512(low, _mm512_maskz_slli_epi32(kAll, low, 16)));
  }
}

// 32 of k: half of a tile.
void unpack_bytes(const GroupTile& tile, char* out) {
  const __mmask32 all = ~__mmask32{0};
  const __m512i low =
      _mm512_maskz_slli_epi32(kAll, zeros_of(tile), std::countr_zero(unsigned{kStepOne}));
  const __m512i zeros = _mm512_or_si512(low, _mm512_maskz_slli_epi32(kAll, low, 16));
  const __m512i mask = _mm512_set1_epi32(0x000F000F * kStepOne);
  const __m512i ratio = _mm512_load_si512(tile.ratios);
  const auto rounded = [&](__m512i steps) {
    return _mm512_maskz_mulhrs_epi16(all, _mm512_sub_epi16(_mm512_and_si512(steps, mask), zeros),
                                     ratio);
  };
  // Of packed bytes: those of one column side by side.
  const __m512i order = _mm512_maskz_broadcast_i32x4(
      kAll, _mm_setr_epi8(0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15));
  const auto put = [&](__m512i first, __m512i second, char* to) {
    const __m512i bytes = _mm512_maskz_packs_epi16(~__mmask64{0}, first, second);
    _mm512_store_si512(to, _mm512_maskz_shuffle_epi8(~__mmask64{0}, bytes, order));
  };
#pragma GCC unroll 4
  for (int64_t row = 0; row < kTileK / 8; ++row, out += 2 * 64) {
    const __m512i words = words_at(tile, row);
    put(rounded(_mm512_maskz_slli_epi32(kAll, words, 5)),
        rounded(_mm512_maskz_slli_epi32(kAll, words, 1)), out);
    put(rounded(_mm512_maskz_srli_epi32(kAll, words, 3)),
        rounded(_mm512_maskz_srli_epi32(kAll, words, 7)), out + 64);
  }
}

}  // namespace
}  // namespace epilogue::simd

HWY_POP_ATTRIBUTES

#else

namespace epilogue::simd {
namespace {

void unpack_values(const GroupTile&, char*, float*) { EPI_ASSERT(false, "x86-64 only"); }
void unpack_integers(const GroupTile&, char*, float*) { EPI_ASSERT(false, "x86-64 only"); }
void unpack_bytes(const GroupTile&, char*) { EPI_ASSERT(false, "x86-64 only"); }
void find_ratios(const BytesGroups&, int64_t, uint32_t*, float*) {
  EPI_ASSERT(false, "x86-64 only");
}

}  // namespace
}  // namespace epilogue::simd

#endif

namespace epilogue::simd {

TileForm choose_pairs(const GroupFormat& format, int64_t panels) {
  // Cycles, measured: to unpack a step's columns, and to scale the sums of one panel of rows.
  constexpr int64_t kValues = 220;
  constexpr int64_t kIntegers = 50;
  constexpr int64_t kMovedIntegers = 100;
  constexpr int64_t kSums = 130;
  const int64_t unpacked = format.has_zeros ? kMovedIntegers : kIntegers;
  const int64_t sums = panels * kSums / (format.size / kTileK);
  return unpacked + sums < kValues ? TileForm::pairs : TileForm::values;
}

int64_t group_unit(const GroupFormat& format, int64_t row_bytes) {
  return row_bytes == 1 ? kBytesK / (2 * kTileK) : format.size / kTileK;
}

GroupColumns::GroupColumns(const GroupFormat& format, const void* panels, int64_t panel_bytes,
                           int products, TileForm form)
    : format_(format),
      panels_(static_cast<const char*>(panels)),
      panel_bytes_(panel_bytes),
      products_(products),
      form_(form),
      step_k_(form == TileForm::bytes ? 2 * kTileK : kTileK),
      pieces_(form == TileForm::bytes ? 4 : 2),
      end_k_(panel_bytes / group_bytes(format, kPairsWidth) * format.size) {
  EPI_ASSERT(format.size % kTileK == 0, "half of a tile lies in one group");
}

void GroupColumns::set_memory(float* memory, int64_t depth) {
  for (float*& tiles : tiles_) {
    tiles = memory;
    memory += depth * kStepFloats;
  }
  for (float*& scales : scales_) {
    scales = memory;
    memory += depth * kTileBlock;
  }
}

void GroupColumns::begin(const TileUnit& unit, const TileUnit& after) {
  unit_ = unit;
  after_ = after;
  left_ = unit.steps * pieces_;
}

GroupTile GroupColumns::tile_at(const TileUnit& unit, int64_t k) const {
  constexpr int64_t blocks = kPairsWidth / kTileBlock;
  const auto at = static_cast<uint32_t>(k);
  const auto size = static_cast<uint32_t>(format_.size);
  const GroupView group =
      group_at(panels_ + unit.block / blocks * panel_bytes_, format_, kPairsWidth, at / size);
  // Of one product the block's columns are neighbours, of two it has 16 of either.
  const int64_t column = unit.block % blocks * (kTileBlock / products_);
  return {group.scales + column,
          group.zeros == nullptr ? nullptr : group.zeros + column,
          group.words + int64_t{at % size / 8} * kPairsWidth + column,
          nullptr,
          nullptr,
          format_.scales};
}

void GroupColumns::move_beside(GroupTile& tile) const {
  tile.scales += beside();
  if (tile.zeros != nullptr) tile.zeros += beside();
  tile.words += beside();
  if (tile.ratios != nullptr) tile.ratios += kTileColumns;
  if (tile.ahead != nullptr) tile.ahead += beside() * 4;
}

void GroupColumns::do_piece() {
  const int64_t piece = unit_.steps * pieces_ - left_--;
  const int64_t step = piece / pieces_;
  const int64_t part = piece % pieces_;
  char* const out = reinterpret_cast<char*>(tiles_[tile_buffer_]) + step * kTilePairBytes;
  if (form_ == TileForm::bytes) return unpack_bytes_of(step, part, out);
  GroupTile tile = tile_at(unit_, (unit_.step + step) * step_k_);
  if (step < after_.steps) {
    const GroupTile next = tile_at(after_, (after_.step + step) * step_k_);
    tile.ahead = reinterpret_cast<const char*>(next.words);
    if (part == 0) fetch_line<kIntoL2>(next.scales);
  }
  const int64_t group = group_steps();
  float* const scales =
      group > 0 && step % group == 0
          ? scales_[scale_buffer_] + step / group * kTileBlock + part * kTileColumns
          : nullptr;
  if (part == 1) move_beside(tile);
  const auto function = form_ == TileForm::values ? unpack_values : unpack_integers;
  function(tile, out + part * kTilePairBytes / 2, scales);
}

void GroupColumns::find_byte_scales(int64_t step) {
  constexpr int64_t steps = kBytesK / (2 * kTileK);
  const int64_t k = (unit_.step + step) * step_k_;
  const int64_t end = std::min(k + kBytesK, end_k_);
  const int64_t first = k / format_.size;
  const int64_t count = (end + format_.size - 1) / format_.size - first;
  float* const scales = scales_[scale_buffer_] + step / steps * kTileBlock;
  BytesGroups groups;
  for (int64_t i = 0; i < count; ++i)
    groups[static_cast<size_t>(i)] = tile_at(unit_, (first + i) * format_.size);
  find_ratios(groups, count, ratios_.data(), scales);
  for (int64_t i = 0; i < count; ++i) move_beside(groups[static_cast<size_t>(i)]);
  find_ratios(groups, count, ratios_.data() + kTileColumns, scales + kTileColumns);
}

int64_t GroupColumns::ratio_of(int64_t k) const {
  return k / format_.size - k / kBytesK * kBytesK / format_.size;
}

// Parts: the first 32 of k of both tiles, then the others.
void GroupColumns::unpack_bytes_of(int64_t step, int64_t part, char* out) {
  if (part == 0 && step % (kBytesK / (2 * kTileK)) == 0) find_byte_scales(step);
  const int64_t half = part / 2;
  const int64_t k = (unit_.step + step) * step_k_ + half * kTileK;
  // Beyond the last k rows are zeros, and no integer times them is anything else.
  if (k >= end_k_) return;
  GroupTile tile = tile_at(unit_, k);
  tile.ratios = ratios_.data() + ratio_of(k) * kTileBlock;
  const int64_t ahead = (after_.step + step) * step_k_ + half * kTileK;
  if (step < after_.steps && ahead < end_k_) {
    const GroupTile next = tile_at(after_, ahead);
    tile.ahead = reinterpret_cast<const char*>(next.words);
    if (part == 0) fetch_line<kIntoL2>(next.scales);
  }
  if (part % 2 == 1) move_beside(tile);
  unpack_bytes(tile, out + part % 2 * kTilePairBytes / 2 + half * kTilePairBytes / 4);
}

GroupColumns::Unpacked GroupColumns::finish() {
  while (left_ > 0) do_piece();
  const Unpacked unpacked = {reinterpret_cast<const char*>(tiles_[tile_buffer_]),
                             scales_[scale_buffer_]};
  tile_buffer_ = (tile_buffer_ + 1) % tiles_.size();
  scale_buffer_ = (scale_buffer_ + 1) % scales_.size();
  return unpacked;
}

}  // namespace epilogue::simd
