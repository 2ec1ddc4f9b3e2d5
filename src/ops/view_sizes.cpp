// SPDX-License-Identifier: Apache-2.0
#include "ops/view_sizes.h"

#include "core/tensor_impl.h"
#include "ops/shape.h"

namespace epilogue {

Dims resolve_sizes(const OpDef& op, const Dims& sizes, int64_t numel) {
  Dims resolved = sizes;
  int unknown = -1;
  int64_t known = 1;
  bool valid = true;
  for (int d = 0; d < sizes.rank(); ++d) {
    if (sizes[d] == -1 && unknown < 0) {
      unknown = d;
    } else {
      valid = valid && sizes[d] >= 0 && !__builtin_mul_overflow(known, sizes[d], &known);
    }
  }
  if (valid && unknown >= 0) {
    valid = known > 0 && numel % known == 0;
    if (valid) resolved[unknown] = numel / known;
  } else {
    valid = valid && known == numel;
  }
  if (!valid)
    fail(op, "sizes with " + std::to_string(numel) + " elements, at most one of them -1",
         to_string(sizes));
  return resolved;
}

// The old dimensions fall into chunks that are contiguous in themselves; new sizes must fill each
// chunk exactly (PyTorch's computeStride).
std::optional<Dims> view_strides(const Tensor& self, const Dims& sizes) {
  if (self.is_contiguous()) return detail::contiguous_strides(sizes);
  const Dims& old_sizes = self.sizes();
  const Dims& old_strides = self.strides();
  Dims strides = sizes;
  int d_new = sizes.rank() - 1;
  int64_t base = old_strides[old_sizes.rank() - 1];
  int64_t old_chunk = 1;
  int64_t new_chunk = 1;
  for (int d = old_sizes.rank() - 1; d >= 0; --d) {
    old_chunk *= old_sizes[d];
    const bool chunk_goes_on =
        d > 0 && (old_sizes[d - 1] == 1 || old_strides[d - 1] == old_chunk * base);
    if (chunk_goes_on) continue;
    while (d_new >= 0 && (new_chunk < old_chunk || sizes[d_new] == 1)) {
      strides[d_new] = new_chunk * base;
      new_chunk *= sizes[d_new--];
    }
    if (new_chunk != old_chunk) return std::nullopt;
    if (d > 0) base = old_strides[d - 1];
    old_chunk = new_chunk = 1;
  }
  return d_new < 0 ? std::optional<Dims>(strides) : std::nullopt;
}

}  // namespace epilogue
