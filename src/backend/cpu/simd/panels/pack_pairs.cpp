// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/simd/panels/pack_pairs.h"

#include <algorithm>

#include "base/assert.h"

namespace epilogue::simd {
namespace {

// Two rows of B, column by column; a missing second one is zeros.
void interleave(const uint16_t* first, const uint16_t* second, int64_t stride, int64_t n,
                int64_t width, uint16_t* out) {
  if (stride == 1 && second != nullptr) {
    for (int64_t j = 0; j < n; ++j) {
      out[2 * j] = first[j];
      out[2 * j + 1] = second[j];
    }
  } else {
    for (int64_t j = 0; j < n; ++j) {
      out[2 * j] = first[j * stride];
      out[2 * j + 1] = second == nullptr ? uint16_t{0} : second[j * stride];
    }
  }
  std::fill(out + 2 * n, out + 2 * width, uint16_t{0});
}

}  // namespace

bool pairs_are_words(const PackSource& source, int64_t k) {
  return source.type == FloatType::bf16 && source.k_stride == 1 && source.outer_stride % 2 == 0 &&
         k % 2 == 0;
}

void pack_pairs(const PackSource& source, int64_t n, int64_t k, int64_t k_end, int64_t width,
                uint16_t* out) {
  EPI_ASSERT(source.type == FloatType::bf16 && k_end % 2 == 0, "pairs of bf16");
  int64_t done = 0;
  if (pairs_are_words(source, k)) {
    // f32 to f32, packing moves words whatever they mean.
    pack_kernels().panel({source.data, FloatType::f32, source.outer_stride / 2, 1}, n, k / 2,
                         reinterpret_cast<float*>(out));
    done = k;
  } else {
    const auto* const data = static_cast<const uint16_t*>(source.data);
    for (; done < k; done += 2) {
      const uint16_t* const row = data + done * source.k_stride;
      interleave(row, done + 1 < k ? row + source.k_stride : nullptr, source.outer_stride, n, width,
                 out + done * width);
    }
  }
  std::fill(out + done * width, out + k_end * width, uint16_t{0});
}

}  // namespace epilogue::simd
