// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/simd/panels/pack_operands.h"

#include <algorithm>

#include "backend/cpu/simd/panels/operand.h"
#include "backend/cpu/simd/panels/pack_pairs.h"
#include "backend/cpu/simd/scratch.h"
#include "base/assert.h"

namespace epilogue::simd {
namespace {

thread_local Scratch row_scratch;
thread_local Scratch panel_scratch;

void pack_f32_rows(const PackSource& source, int64_t m, int64_t k, int64_t k_end, float* out,
                   int64_t stride) {
  pack_kernels().rows(source, m, k, out, stride);
  if (k < k_end)
    for (int64_t i = 0; i < m; ++i) std::fill(out + i * stride + k, out + i * stride + k_end, 0.0F);
}

}  // namespace

void pack_rows(const PanelLayout& layout, const PackSource& source, int64_t m, int64_t k,
               int64_t k_end, void* out, int64_t stride) {
  EPI_ASSERT(layout.quantise_rows == nullptr, "rows of floats");
  if (layout.rows == FloatType::f32)
    return pack_f32_rows(source, m, k, k_end, static_cast<float*>(out), stride);
  constexpr int64_t kSome = 16;  // rows at a time: what a transposing copy reads together
  float* const f32 = row_scratch.get(static_cast<size_t>(kSome * k_end));
  for (int64_t i = 0; i < m; i += kSome) {
    const int64_t count = std::min(kSome, m - i);
    PackSource some = source;
    some.data = advance(source.data, source.type, i * source.outer_stride);
    pack_f32_rows(some, count, k, k_end, f32, k_end);
    for (int64_t r = 0; r < count; ++r)
      from_f32(layout.rows, f32 + r * k_end, advance(out, layout.rows, (i + r) * stride),
               static_cast<size_t>(k_end));
  }
}

void pack_panel(const PanelLayout& layout, const PackSource& source, int64_t n, int64_t k,
                int64_t k_end, void* out) {
  EPI_ASSERT(!layout.has_scales, "one product would not earn back what scales cost");
  if (layout.has_pairs && source.type == FloatType::bf16)
    return pack_pairs(source, n, k, k_end, layout.width, static_cast<uint16_t*>(out));
  const bool is_f32 = layout.store == nullptr;
  const auto count = static_cast<size_t>(k_end * layout.width);
  float* const values = is_f32 ? static_cast<float*>(out) : panel_scratch.get(count);
  pack_kernels().panel(source, n, k, values);
  std::fill(values + k * layout.width, values + count, 0.0F);
  if (!is_f32) layout.store(values, k_end, nullptr, out);
}

}  // namespace epilogue::simd
