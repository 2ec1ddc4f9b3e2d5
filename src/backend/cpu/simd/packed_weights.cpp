// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <functional>
#include <numeric>

#include "backend/cpu/simd/gemm_kernels.h"
#include "backend/cpu/simd/pack_pairs.h"
#include "backend/cpu/simd/packed_gemm.h"
#include "backend/cpu/simd/scratch.h"
#include "base/thread_pool.h"

namespace epilogue::simd {
namespace {

// Rows up to which the weights' bytes, not the arithmetic, are the limit: wide f32 panels would
// double them.
constexpr int64_t kFewRows = 16;

size_t element_bytes(PanelType type) { return type == PanelType::f32 ? 4 : 2; }

thread_local Scratch f32_panel;
thread_local Scratch part_panel;
thread_local Scratch bf16_panel;

bool is_words(const PackedPart& part) {
  return pairs_are_words({part.b.data, part.b.type, part.b.col_stride, part.b.row_stride}, part.k);
}
PackedPart as_words(const PackedPart& part) {
  return {{part.b.data, FloatType::f32, 1, part.b.col_stride / 2}, part.k / 2};
}

// Columns [column, column + count) of `part` as f32, in the first `each` of every `width` of `out`.
void copy_columns(const GemmOperand& part, int64_t k, int64_t column, int64_t count, int64_t each,
                  int64_t width, float* out) {
  const GemmKernels& kernels = gemm_kernels();
  const auto bytes = static_cast<int64_t>(size_of(part.type));
  const PackSource source = {static_cast<const char*>(part.data) + column * part.col_stride * bytes,
                             part.type, part.col_stride, part.row_stride};
  if (each == width) return kernels.pack_b(source, count, k, out);
  float* const whole = part_panel.get(static_cast<size_t>(k * width));
  kernels.pack_b(source, count, k, whole);
  for (int64_t row = 0; row < k; ++row) std::copy_n(whole + row * width, each, out + row * width);
}

// Rows 2 i and 2 i + 1 side by side, column by column.
void interleave_rows(const uint16_t* in, int64_t rows, int64_t width, uint16_t* out) {
  for (int64_t row = 0; row < rows; row += 2, in += 2 * width, out += 2 * width)
    for (int64_t j = 0; j < width; ++j) {
      out[2 * j] = in[j];
      out[2 * j + 1] = in[width + j];
    }
}

}  // namespace

PanelType choose_panel_type(FloatType weights, int64_t rows) {
  if (weights != FloatType::bf16) return PanelType::f32;
  constexpr auto pairs = static_cast<size_t>(PanelType::bf16_pairs);
  if (packed_kernels().one[pairs] != nullptr) return PanelType::bf16_pairs;
  return rows <= kFewRows ? PanelType::bf16 : PanelType::f32;
}

int64_t padded_depth(int64_t k, PanelType type, const PackedLayout& layout) {
  if (type != PanelType::bf16_pairs) return k;
  return (k + layout.pairs_k - 1) / layout.pairs_k * layout.pairs_k;
}

const void* PackedWeights::panel(int64_t index, int64_t k) const {
  const auto bytes = static_cast<int64_t>(element_bytes(type_));
  return static_cast<const char*>(memory_.get()) + (index * padded_k_ + k) * width_ * bytes;
}

PackedWeights::PackedWeights(std::span<const PackedPart> parts, int64_t n, PanelType type,
                             const PackedLayout& layout, Join join)
    : k_(join == Join::depth
             ? std::transform_reduce(parts.begin(), parts.end(), int64_t{0}, std::plus<>(),
                                     [](const PackedPart& part) { return part.k; })
             : parts[0].k),
      n_(n),
      products_(join == Join::depth ? 1 : static_cast<int>(parts.size())),
      type_(type),
      width_(layout.width),
      panels_((n + columns_per_panel() - 1) / columns_per_panel()),
      padded_k_(padded_depth(k_, type, layout)) {
  bytes_ = static_cast<size_t>(panels_ * padded_k_ * width_) * element_bytes(type_);
  memory_ = allocate_large(bytes_);
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

void PackedWeights::pack_panel(std::span<const PackedPart> parts, int64_t index) {
  const auto count = static_cast<size_t>(padded_k_ * width_);
  char* const out =
      static_cast<char*>(memory_.get()) + static_cast<size_t>(index) * count * element_bytes(type_);
  if (type_ == PanelType::f32)
    return copy_parts(parts, index, padded_k_, reinterpret_cast<float*>(out));
  if (type_ == PanelType::bf16_pairs && std::all_of(parts.begin(), parts.end(), is_words)) {
    std::array<PackedPart, 2> words;
    std::transform(parts.begin(), parts.end(), words.begin(), as_words);
    return copy_parts({words.data(), parts.size()}, index, padded_k_ / 2,
                      reinterpret_cast<float*>(out));
  }
  float* const f32 = f32_panel.get(count);
  copy_parts(parts, index, padded_k_, f32);
  if (type_ == PanelType::bf16) return from_f32(FloatType::bf16, f32, out, count);
  auto* const bf16 = reinterpret_cast<uint16_t*>(bf16_panel.get(count / 2));
  from_f32(FloatType::bf16, f32, bf16, count);
  interleave_rows(bf16, padded_k_, width_, reinterpret_cast<uint16_t*>(out));
}

}  // namespace epilogue::simd
