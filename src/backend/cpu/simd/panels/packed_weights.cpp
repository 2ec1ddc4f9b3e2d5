// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/simd/panels/packed_weights.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <numeric>

#include "backend/cpu/simd/panels/group_panel.h"
#include "backend/cpu/simd/panels/pack.h"
#include "backend/cpu/simd/panels/pack_pairs.h"
#include "backend/cpu/simd/panels/pack_tiles.h"
#include "backend/cpu/simd/panels/quantise_groups.h"
#include "backend/cpu/simd/quantise.h"
#include "backend/cpu/simd/scratch.h"
#include "base/assert.h"
#include "base/thread_pool.h"

namespace epilogue::simd {
namespace {

thread_local Scratch f32_panel;
thread_local Scratch part_panel;
thread_local Scratch word_panel;
thread_local Scratch scale_row;
thread_local Scratch group_scratch;

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

// Columns [first, first + count) of the group that begins at `k`.
struct GroupColumns {
  int64_t depth;  // of the part
  int64_t k;
  int64_t first;
  int64_t count;
};
void copy_group(const GroupedPart& part, const GroupFormat& f, const GroupColumns& c, int64_t width,
                const GroupSteps& out) {
  const int64_t groups = (c.depth + part.group - 1) / part.group;
  const int64_t filled = std::min(f.size, c.depth - c.k);
  for (int64_t j = 0; j < c.count; ++j) {
    const int64_t row = c.first + j;
    const int64_t group = row * groups + c.k / part.group;
    out.scales[j] = part.scales[group];
    if (part.zeros != nullptr) out.zeros[j] = part.zeros[group];
    const uint8_t* const bytes = part.steps + row * ((c.depth + 1) / 2) + c.k / 2;
    // Beyond the last k steps are the zero: they are worth nothing.
    if (filled < f.size)
      for (int64_t i = 0; i < f.size; ++i) out.steps[i * width + j] = out.zeros[j];
    for (int64_t i = 0; i < filled; ++i)
      out.steps[i * width + j] = static_cast<uint8_t>(bytes[i / 2] >> (i % 2 * 4) & kMostSteps);
  }
}

}  // namespace

const void* PackedWeights::panel(int64_t index, int64_t k) const {
  if (layout_.has_tiles)
    return data_ + panel_bytes(index * padded_k_) + k * kTileBlock * layout_.weight_bytes;
  return data_ + panel_bytes(index * padded_k_ + k);
}

int64_t PackedWeights::panel_bytes(int64_t k) const {
  if (layout_.has_groups)
    return k / rounding_.groups.size * group_bytes(rounding_.groups, layout_.width);
  return k * layout_.width * layout_.weight_bytes;
}

PackedWeights::PackedWeights(std::span<const PackedPart> parts, int64_t n,
                             const PanelLayout& layout, Join join, const Rounding& rounding,
                             void* memory)
    : k_(join == Join::depth
             ? std::transform_reduce(parts.begin(), parts.end(), int64_t{0}, std::plus<>(),
                                     [](const PackedPart& part) { return part.k; })
             : parts[0].k),
      n_(n),
      products_(join == Join::depth ? 1 : static_cast<int>(parts.size())),
      layout_(layout),
      rounding_(layout.has_scales ? Rounding{Precision::i8} : rounding),
      panels_((n + columns_per_panel() - 1) / columns_per_panel()),
      padded_k_((k_ + k_unit() - 1) / k_unit() * k_unit()) {
  EPI_ASSERT(layout_.width == pack_kernels().width, "panels are as wide as the level packs them");
  bytes_ = static_cast<size_t>(panel_bytes(panels_ * padded_k_));
  if (memory == nullptr) memory_ = allocate_large(bytes_);
  data_ = static_cast<char*>(memory == nullptr ? memory_.get() : memory);
  if (layout_.has_scales) scales_.resize(static_cast<size_t>(panels_ * layout_.width));
  repack(parts);
}

size_t PackedWeights::bytes_of(const PanelLayout& layout, int64_t k, int64_t n, int products,
                               const GroupFormat& groups) {
  const int64_t each = layout.width / products;
  if (layout.has_groups)
    return static_cast<size_t>((n + each - 1) / each * ((k + groups.size - 1) / groups.size) *
                               group_bytes(groups, layout.width));
  return static_cast<size_t>((n + each - 1) / each * layout.padded(k) * layout.width *
                             layout.weight_bytes);
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
    copy_columns(part.b, part.k, column, std::min(each, n_ - column), each, layout_.width, to);
    to += products_ == 1 ? part.k * layout_.width : each;
  }
  const int64_t filled = products_ == 1 ? (to - out) / layout_.width : parts[0].k;
  std::fill_n(out + filled * layout_.width, (rows - filled) * layout_.width, 0.0F);
}

const float* PackedWeights::scales(int64_t index) const {
  return scales_.empty() ? nullptr : scales_.data() + index * layout_.width;
}

// Steps, scales and zeros of a panel's columns come from values or from what `grouped` has; beyond
// the last column and the last k they are zeros.
void PackedWeights::pack_groups(std::span<const PackedPart> parts, int64_t index, char* out) const {
  const GroupFormat& f = rounding_.groups;
  const int64_t width = layout_.width;
  const int64_t each = columns_per_panel();
  const bool has_values = parts[0].grouped == nullptr;
  const float* values = nullptr;
  if (has_values) {
    float* const all = f32_panel.get(static_cast<size_t>(padded_k_ * width));
    copy_parts(parts, index, padded_k_, all);
    values = all;
  }
  // 1 + 2 + 1 bytes of each step, scale and zero, in floats.
  auto* const scales = reinterpret_cast<uint16_t*>(
      group_scratch.get(static_cast<size_t>((f.size * width + 3 * width) / 4 + 1)));
  auto* const zeros = reinterpret_cast<uint8_t*>(scales + width);
  uint8_t* const steps = zeros + width;
  for (int64_t k = 0; k < padded_k_; k += f.size, out += group_bytes(f, width)) {
    if (has_values) {
      round_group(values + k * width, width, f, {steps, scales, zeros});
    } else {
      std::fill_n(scales, width, uint16_t{0});
      std::fill_n(zeros, width, kMiddleStep);
      std::fill_n(steps, f.size * width, kMiddleStep);
      for (size_t p = 0; p < parts.size(); ++p) {
        const int64_t at = static_cast<int64_t>(p) * each;
        copy_group(*parts[p].grouped, f,
                   {parts[p].k, k, index * each, std::min(each, n_ - index * each)}, width,
                   {steps + at, scales + at, zeros + at});
      }
    }
    store_group(f, width, steps, scales, zeros, out);
  }
}

// Steps of 8 bits are stored as they are, or as the values that they stand for.
void PackedWeights::pack_steps(std::span<const PackedPart> parts, int64_t index, char* out) {
  const int64_t width = layout_.width;
  const int64_t each = columns_per_panel();
  const int64_t first = index * each;
  const int64_t count = std::min(each, n_ - first);
  float* const values = layout_.store == nullptr
                            ? reinterpret_cast<float*>(out)
                            : f32_panel.get(static_cast<size_t>(padded_k_ * width));
  std::fill_n(values, padded_k_ * width, 0.0F);
  float* const ones = scale_row.get(static_cast<size_t>(width));
  std::fill_n(ones, width, 1.0F);
  for (size_t p = 0; p < parts.size(); ++p) {
    const SteppedPart& part = *parts[p].stepped;
    const int64_t at = static_cast<int64_t>(p) * each;
    for (int64_t j = 0; j < count; ++j) {
      const int8_t* const steps = part.steps + (first + j) * parts[p].k;
      const float scale = layout_.has_scales ? 1.0F : part.scales[first + j];
      for (int64_t k = 0; k < parts[p].k; ++k)
        values[k * width + at + j] = static_cast<float>(steps[k]) * scale;
      if (layout_.has_scales)
        scales_[static_cast<size_t>(index * width + at + j)] = part.scales[first + j];
    }
  }
  if (layout_.store != nullptr) layout_.store(values, padded_k_, ones, out);
}

// Right from the weights.
void PackedWeights::pack_tiles(std::span<const PackedPart> parts, int64_t index, char* out) const {
  const int64_t each = columns_per_panel();
  const int64_t steps = padded_k_ / kTileK;
  for (int64_t t = 0; t < layout_.width / kTileColumns; ++t) {
    const PackedPart& part = parts[static_cast<size_t>(t * kTileColumns / each)];
    const int64_t column = index * each + t * kTileColumns % each;
    const int64_t n = std::clamp<int64_t>(n_ - column, 0, kTileColumns);
    pack_tile_columns(
        {at(part.b, 0, n > 0 ? column : 0), part.b.type, part.b.col_stride, part.b.row_stride}, n,
        part.k, steps, out + tile_place(t, products_, steps * kTilePairBytes));
  }
}

// Columns of words, pairs of 16 bits or quads of 8, as tiles.
void PackedWeights::tile_words(const float* words, char* out) const {
  const int64_t width = layout_.width;
  const int64_t block_bytes = padded_k_ * kTileBlock * layout_.weight_bytes;
  const int64_t rows = padded_k_ * layout_.weight_bytes / int64_t{sizeof(float)};
  constexpr int64_t line = kTileColumns * int64_t{sizeof(float)};
  for (int64_t t = 0; t < width / kTileColumns; ++t) {
    char* const to = out + tile_place(t, products_, block_bytes);
    for (int64_t row = 0; row < rows; ++row)
      std::memcpy(to + row / kTileRows * kTilePairBytes + row % kTileRows * line,
                  words + row * width + t * kTileColumns, line);
  }
}

void PackedWeights::pack_panel(std::span<const PackedPart> parts, int64_t index) {
  char* const out = data_ + panel_bytes(index * padded_k_);
  if (!layout_.has_tiles) return pack_values(parts, index, out);
  const bool is_direct =
      layout_.weight_bytes == 2 && rounding_.to == Precision::same && parts[0].stepped == nullptr &&
      static_cast<int>(parts.size()) == products_ &&
      std::all_of(parts.begin(), parts.end(),
                  [](const PackedPart& part) { return part.b.type == FloatType::bf16; });
  if (is_direct) return pack_tiles(parts, index, out);
  const int64_t bytes = padded_k_ * layout_.width * layout_.weight_bytes;
  float* const words = word_panel.get(static_cast<size_t>(bytes) / sizeof(float));
  pack_values(parts, index, reinterpret_cast<char*>(words));
  tile_words(words, out);
}

void PackedWeights::pack_values(std::span<const PackedPart> parts, int64_t index, char* out) {
  const int64_t width = layout_.width;
  if (layout_.has_groups) return pack_groups(parts, index, out);
  if (parts[0].stepped != nullptr) return pack_steps(parts, index, out);
  const bool same = rounding_.to == Precision::same;
  if (layout_.store == nullptr && same)
    return copy_parts(parts, index, padded_k_, reinterpret_cast<float*>(out));
  if (layout_.has_pairs && same && std::all_of(parts.begin(), parts.end(), is_words)) {
    std::array<PackedPart, 2> words;
    std::transform(parts.begin(), parts.end(), words.begin(), as_words);
    return copy_parts({words.data(), parts.size()}, index, padded_k_ / 2,
                      reinterpret_cast<float*>(out));
  }
  const auto count = static_cast<size_t>(padded_k_ * width);
  float* const values =
      layout_.store == nullptr ? reinterpret_cast<float*>(out) : f32_panel.get(count);
  copy_parts(parts, index, padded_k_, values);
  float* scales = nullptr;
  if (!same) {
    scales = scale_row.get(static_cast<size_t>(width));
    column_scales(values, padded_k_, width, scales);
    if (layout_.has_scales) {
      std::copy_n(scales, width, scales_.begin() + index * width);
    } else {
      round_to_i8(values, padded_k_, width, scales);
    }
  }
  if (layout_.store != nullptr) layout_.store(values, padded_k_, scales, out);
}

}  // namespace epilogue::simd
