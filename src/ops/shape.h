// SPDX-License-Identifier: Apache-2.0
// Shape and dtype rules that several ops share.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "core/op.h"

namespace epilogue {

// Throws Error "[op] expected <expected>, got <got>".
[[noreturn]] void fail(const OpDef& op, const std::string& expected, const std::string& got);

// NumPy broadcasting of two shapes; fails with both shapes named.
Dims broadcast_sizes(const OpDef& op, const Dims& a, const Dims& b);

// PyTorch's result_type: tensors with dimensions decide; 0-dim tensors, then wrapped numbers only
// raise the category (bool < integer < floating). A wrapped f64 counts as f32.
DType result_dtype(std::span<const Tensor> in);
// The same, then integers become f32: for ops such as exp that have floating results only.
DType floating_result_dtype(std::span<const Tensor> in);

// A dimension in [0, rank); negative ones count from the end. Rank 0 allows -1 and 0.
int normalize_dim(const OpDef& op, int64_t dim, int rank);
// The dimension that attribute 0 of a call names, of a tensor of `rank` dimensions.
inline int named_dim(const Call& call, int rank) {
  return normalize_dim(call.op, call.attr<int64_t>(0), rank);
}
// Sorted, unique; empty means all.
Dims normalize_dims(const OpDef& op, const Dims& dims, int rank);

// Sizes after reducing `dims` (normalised).
Dims reduced_sizes(const Dims& sizes, const Dims& dims, bool keepdim);

// Strides that read a tensor as if it had `sizes` (broadcast: stride 0). No checks.
Dims broadcast_strides(const Tensor& t, const Dims& sizes);

// Fails unless both have the dtype / every defined tensor is floating.
void require_same_dtype(const OpDef& op, const Tensor& a, const Tensor& b);
void require_floating(const OpDef& op, const Tensor& t);

// Shape rules of pointwise ops: broadcast sizes, promoted dtype.
OutMetas infer_unary(const Call& call);
OutMetas infer_unary_floating(const Call& call);
OutMetas infer_binary(const Call& call);
// Results like input 0.
OutMetas infer_like_first(const Call& call);
// In-place: input 1 must broadcast to input 0 and its dtype must be castable.
OutMetas infer_inplace(const Call& call);

// FLOPs of pointwise ops: operations per element of the result.
template <int kPerElement>
double flops_per_element(const Call& call) {
  return kPerElement * static_cast<double>(call.out[0].numel());
}

}  // namespace epilogue
