// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/simd/panels/packed_weights.h"

#include <algorithm>
#include <array>
#include <functional>
#include <numeric>

#include "backend/cpu/simd/panels/pack.h"
#include "backend/cpu/simd/panels/pack_pairs.h"
#include "backend/cpu/simd/quantise.h"
#include "backend/cpu/simd/scratch.h"
#include "base/assert.h"
#include "base/thread_pool.h"

namespace epilogue::simd {
namespace {

thread_local Scratch f32_panel;
thread_local Scratch part_panel;
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

}  // namespace

const void* PackedWeights::panel(int64_t index, int64_t k) const {
  return data_ + (index * padded_k_ + k) * layout_.width * layout_.weight_bytes;
}

PackedWeights::PackedWeights(std::span<const PackedPart> parts, int64_t n,
                             const PanelLayout& layout, Join join, Precision precision,
                             void* memory)
    : k_(join == Join::depth
             ? std::transform_reduce(parts.begin(), parts.end(), int64_t{0}, std::plus<>(),
                                     [](const PackedPart& part) { return part.k; })
             : parts[0].k),
      n_(n),
      products_(join == Join::depth ? 1 : static_cast<int>(parts.size())),
      layout_(layout),
      precision_(layout.has_scales ? Precision::i8 : precision),
      panels_((n + columns_per_panel() - 1) / columns_per_panel()),
      padded_k_(layout.padded(k_)) {
  EPI_ASSERT(layout_.width == pack_kernels().width, "panels are as wide as the level packs them");
  bytes_ = static_cast<size_t>(panels_ * padded_k_ * layout_.width * layout_.weight_bytes);
  if (memory == nullptr) memory_ = allocate_large(bytes_);
  data_ = static_cast<char*>(memory == nullptr ? memory_.get() : memory);
  if (layout_.has_scales) scales_.resize(static_cast<size_t>(panels_ * layout_.width));
  repack(parts);
}

size_t PackedWeights::bytes_of(const PanelLayout& layout, int64_t k, int64_t n, int products) {
  const int64_t each = layout.width / products;
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

void PackedWeights::pack_panel(std::span<const PackedPart> parts, int64_t index) {
  const int64_t width = layout_.width;
  char* const out = data_ + index * padded_k_ * width * layout_.weight_bytes;
  const bool same = precision_ == Precision::same;
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
