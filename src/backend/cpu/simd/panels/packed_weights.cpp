// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <functional>
#include <numeric>

#include "backend/cpu/simd/panels/pack.h"
#include "backend/cpu/simd/panels/pack_pairs.h"
#include "backend/cpu/simd/panels/packed_weights.h"
#include "backend/cpu/simd/quantise.h"
#include "backend/cpu/simd/scratch.h"
#include "base/assert.h"
#include "base/thread_pool.h"

namespace epilogue::simd {
namespace {

// Rows up to which the weights' bytes, not the arithmetic, are the limit: wide f32 panels would
// double them.
constexpr int64_t kFewRows = 16;
// Up to which 8-bit weights are faster than what they stand for; twice as many where weights come
// from memory, not from L3.
constexpr int64_t kI8Rows = 2;
constexpr int64_t kCachedWeights = int64_t{16} << 20;

size_t element_bytes(PanelType type) {
  switch (type) {
    case PanelType::f32: return 4;
    case PanelType::i8:
    case PanelType::i8_pairs: return 1;
    case PanelType::bf16:
    case PanelType::bf16_pairs: break;
  }
  return 2;
}

thread_local Scratch f32_panel;
thread_local Scratch part_panel;
thread_local Scratch narrow_panel;
thread_local Scratch scale_row;

bool is_words(const PackedPart& part) {
  return pairs_are_words({part.b.data, part.b.type, part.b.col_stride, part.b.row_stride}, part.k);
}
PackedPart as_words(const PackedPart& part) {
  return {{part.b.data, FloatType::f32, 1, part.b.col_stride / 2}, part.k / 2};
}

// Columns [column, column + count) of `part` as f32, in the first `each` of every `width` of `out`.
void copy_columns(const GemmOperand& part, int64_t k, int64_t column, int64_t count, int64_t each,
                  int64_t width, float* out) {
  const PackKernels& kernels = pack_kernels();
  const auto bytes = static_cast<int64_t>(size_of(part.type));
  const PackSource source = {static_cast<const char*>(part.data) + column * part.col_stride * bytes,
                             part.type, part.col_stride, part.row_stride};
  if (each == width) return kernels.panel(source, count, k, out);
  float* const whole = part_panel.get(static_cast<size_t>(k * width));
  kernels.panel(source, count, k, whole);
  for (int64_t row = 0; row < k; ++row) std::copy_n(whole + row * width, each, out + row * width);
}

// Rows 2 i and 2 i + 1 side by side, column by column.
template <class T>
void interleave_rows(const T* in, int64_t rows, int64_t width, T* out) {
  for (int64_t row = 0; row < rows; row += 2, in += 2 * width, out += 2 * width)
    for (int64_t j = 0; j < width; ++j) {
      out[2 * j] = in[j];
      out[2 * j + 1] = in[width + j];
    }
}

// Of each row two vectors' columns side by side, pair by pair: column j and column j + lanes.
void interleave_vectors(const uint16_t* in, int64_t rows, int64_t width, int64_t lanes,
                        uint16_t* out) {
  for (int64_t at = 0; at < rows * width; at += 2 * lanes)
    for (int64_t j = 0; j < lanes; ++j) {
      out[at + 2 * j] = in[at + j];
      out[at + 2 * j + 1] = in[at + lanes + j];
    }
}

}  // namespace

PanelType choose_panel_type(FloatType weights, int64_t count, int64_t rows, Precision precision) {
  if (precision == Precision::i8 && rows <= (count > kCachedWeights ? 2 * kI8Rows : kI8Rows)) {
    constexpr auto pairs = static_cast<size_t>(PanelType::i8_pairs);
    return packed_kernels().one[pairs] != nullptr ? PanelType::i8_pairs : PanelType::i8;
  }
  if (weights != FloatType::bf16) return PanelType::f32;
  constexpr auto pairs = static_cast<size_t>(PanelType::bf16_pairs);
  if (packed_kernels().one[pairs] != nullptr) return PanelType::bf16_pairs;
  return rows <= kFewRows ? PanelType::bf16 : PanelType::f32;
}

int64_t padded_depth(int64_t k, PanelType type, const PackedLayout& layout) {
  if (type == PanelType::i8_pairs) return (k + 1) / 2 * 2;
  if (type != PanelType::bf16_pairs) return k;
  return (k + layout.pairs_k - 1) / layout.pairs_k * layout.pairs_k;
}

const void* PackedWeights::panel(int64_t index, int64_t k) const {
  const auto bytes = static_cast<int64_t>(element_bytes(type_));
  return static_cast<const char*>(memory_.get()) + (index * padded_k_ + k) * width_ * bytes;
}

PackedWeights::PackedWeights(std::span<const PackedPart> parts, int64_t n, PanelType type,
                             const PackedLayout& layout, Join join, Precision precision)
    : k_(join == Join::depth
             ? std::transform_reduce(parts.begin(), parts.end(), int64_t{0}, std::plus<>(),
                                     [](const PackedPart& part) { return part.k; })
             : parts[0].k),
      n_(n),
      products_(join == Join::depth ? 1 : static_cast<int>(parts.size())),
      type_(type),
      precision_(is_i8(type) ? Precision::i8 : precision),
      width_(layout.width),
      panels_((n + columns_per_panel() - 1) / columns_per_panel()),
      padded_k_(padded_depth(k_, type, layout)) {
  EPI_ASSERT(width_ == packed_kernels().layout.width, "panels are as wide as the level packs them");
  bytes_ = static_cast<size_t>(panels_ * padded_k_ * width_) * element_bytes(type_);
  memory_ = allocate_large(bytes_);
  if (is_i8(type_)) scales_.resize(static_cast<size_t>(panels_ * width_));
  repack(parts);
}

void PackedWeights::repack(std::span<const PackedPart> parts) {
  parallel_for(panels_, 1, [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p) pack_panel(parts, p);
  });
}

// The columns of every part, [rows][width] of f32 (or words), zeros beyond the last part's rows.
void PackedWeights::copy_parts(std::span<const PackedPart> parts, int64_t index, int64_t rows,
                               float* out) const {
  const int64_t each = columns_per_panel();
  const int64_t column = index * each;
  float* to = out;
  for (const PackedPart& part : parts) {
    copy_columns(part.b, part.k, column, std::min(each, n_ - column), each, width_, to);
    to += products_ == 1 ? part.k * width_ : each;
  }
  const int64_t filled = products_ == 1 ? (to - out) / width_ : parts[0].k;
  std::fill_n(out + filled * width_, (rows - filled) * width_, 0.0F);
}

const float* PackedWeights::scales(int64_t index) const {
  return scales_.empty() ? nullptr : scales_.data() + index * width_;
}

void PackedWeights::pack_panel(std::span<const PackedPart> parts, int64_t index) {
  const auto count = static_cast<size_t>(padded_k_ * width_);
  char* const out =
      static_cast<char*>(memory_.get()) + static_cast<size_t>(index) * count * element_bytes(type_);
  const bool same = precision_ == Precision::same;
  if (type_ == PanelType::f32 && same)
    return copy_parts(parts, index, padded_k_, reinterpret_cast<float*>(out));
  if (type_ == PanelType::bf16_pairs && same && std::all_of(parts.begin(), parts.end(), is_words)) {
    std::array<PackedPart, 2> words;
    std::transform(parts.begin(), parts.end(), words.begin(), as_words);
    return copy_parts({words.data(), parts.size()}, index, padded_k_ / 2,
                      reinterpret_cast<float*>(out));
  }
  float* const f32 = f32_panel.get(count);
  copy_parts(parts, index, padded_k_, f32);
  if (!same) {
    float* const scales = scale_row.get(static_cast<size_t>(width_));
    column_scales(f32, padded_k_, width_, scales);
    if (is_i8(type_)) {
      std::copy_n(scales, width_, scales_.begin() + index * width_);
      auto* const steps = reinterpret_cast<int8_t*>(out);
      if (type_ == PanelType::i8) return to_i8(f32, padded_k_, width_, scales, steps);
      auto* const rows = reinterpret_cast<int8_t*>(narrow_panel.get(count / 4 + 1));
      to_i8(f32, padded_k_, width_, scales, rows);
      return interleave_rows(rows, padded_k_, width_, steps);
    }
    round_to_i8(f32, padded_k_, width_, scales);
  }
  if (type_ == PanelType::f32) return from_f32(FloatType::f32, f32, out, count);
  auto* const bf16 = reinterpret_cast<uint16_t*>(narrow_panel.get(count / 2));
  from_f32(FloatType::bf16, f32, bf16, count);
  if (type_ == PanelType::bf16)
    return interleave_vectors(bf16, padded_k_, width_, packed_kernels().lanes,
                              reinterpret_cast<uint16_t*>(out));
  interleave_rows(bf16, padded_k_, width_, reinterpret_cast<uint16_t*>(out));
}

}  // namespace epilogue::simd
