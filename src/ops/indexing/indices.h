// SPDX-License-Identifier: Apache-2.0
// Shared by ops with an index: its shape rules and its range.
#pragma once

#include <string>

#include "ops/shape.h"

namespace epilogue {

// `index`, or Error where it is outside [0, size). Values are known to kernels alone.
inline int64_t checked_index(const OpDef& op, int64_t index, int64_t size) {
  if (index < 0 || index >= size) [[unlikely]]
    fail(op, "indices in [0, " + std::to_string(size) + ")", std::to_string(index));
  return index;
}

inline void require_index(const OpDef& op, const Tensor& index) {
  if (index.dtype() != DType::i64) fail(op, "indices of dtype i64", to_string(index));
}

// Bytes read by an op that copies the elements that input 1 names: those, and the indices.
inline double indexed_bytes(const Call& call) {
  return static_cast<double>(call.in[1].bytes()) + 2 * static_cast<double>(call.out[0].bytes());
}

// The sizes with that of `dim` replaced; of a tensor without dimensions: itself, or [n].
inline Dims with_size(Dims sizes, int dim, int64_t n) {
  if (!sizes.empty()) sizes[dim] = n;
  return sizes;
}

// gather and scatter_add walk an index of as many dimensions as the tensor that it indexes.
// Calls body(line's first offsets) for each line of the index along `dim`, in row-major order.
struct IndexedLines {
  int64_t n;      // indices of a line
  int64_t count;  // lines
  int dim;
  Dims sizes;  // of the index, 1 in `dim`

  // For a call whose attribute 0 is the dimension and whose input 1 is the index.
  explicit IndexedLines(const Call& call) : count(1), dim(named_dim(call, call.in[0].dim())) {
    const Tensor& index = call.in[1];
    n = index.dim() == 0 ? 1 : index.sizes()[dim];
    sizes = with_size(index.sizes(), dim, 1);
    for (const int64_t size : sizes) count *= size;
  }
  // Where a line begins in a tensor of such dimensions; and from one of its elements to the next.
  int64_t offset(const Tensor& t, int64_t line) const {
    int64_t o = 0;
    for (int d = sizes.rank() - 1; d >= 0; --d) {
      o += line % sizes[d] * t.strides()[d];
      line /= sizes[d];
    }
    return o;
  }
  int64_t step(const Tensor& t) const { return t.dim() == 0 ? 0 : t.strides()[dim]; }
  int64_t size(const Tensor& t) const { return t.dim() == 0 ? 1 : t.sizes()[dim]; }
};

}  // namespace epilogue
