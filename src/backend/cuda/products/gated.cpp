// SPDX-License-Identifier: Apache-2.0
// Which calls the Hopper kernel takes (kernels/gated_sm90.h).
#include <limits>

#include "backend/cuda/kernels/gated_sm90.h"

namespace epilogue::cuda {
namespace {

constexpr int64_t kAlignment = 16;  // bytes, of what the copy engine reads
constexpr int64_t kElement = 2;

bool is_aligned(const void* data, int64_t stride) {
  return reinterpret_cast<uintptr_t>(data) % kAlignment == 0 && stride * kElement % kAlignment == 0;
}

}  // namespace

const char* decline_gated_sm90(const GatedCall& c) {
  if (!is_low_precision(c.dtype)) return "needs bf16 or f16";
  if (c.activation != PointwiseFn::gelu_tanh && c.activation != PointwiseFn::silu &&
      c.activation != PointwiseFn::relu)
    return "needs gelu_tanh, silu or relu";
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max() / 2;
  if (c.rows > kMost || c.hidden > kMost || c.k > kMost) return "needs sizes below 2^30";
  if (c.k == 0 || c.hidden % (kAlignment / kElement) != 0 || !is_aligned(c.x, c.x_stride) ||
      !is_aligned(c.gate, c.gate_stride) || !is_aligned(c.up, c.up_stride) ||
      !is_aligned(c.out, c.out_stride))
    return "needs rows of multiples of 16 bytes";
  return nullptr;
}

}  // namespace epilogue::cuda
