// SPDX-License-Identifier: Apache-2.0
// A call of an op on lists (OpDef::lists), by list and position.
#pragma once

#include "ops/overlap.h"
#include "ops/shape.h"

namespace epilogue {

class ListCall {
 public:
  explicit ListCall(const Call& call)
      : in_(call.in), size_((call.in.size() - call.op.singles) / call.op.lists) {}

  size_t size() const { return size_; }  // of each list
  const Tensor& at(size_t list, size_t i) const { return in_[list * size_ + i]; }
  const Tensor& single(const OpDef& op, size_t i) const { return in_[op.lists * size_ + i]; }

  // Elements of list 0.
  double elements() const {
    double n = 0;
    for (size_t i = 0; i < size_; ++i) n += static_cast<double>(at(0, i).numel());
    return n;
  }

 private:
  std::span<const Tensor> in_;
  size_t size_;
};

// Fails unless the tensor is absent or has the sizes and dtype of list 0 there.
inline void require_like_first_list(const Call& call, const ListCall& lists, size_t list,
                                    size_t i) {
  const Tensor& first = lists.at(0, i);
  const Tensor& t = lists.at(list, i);
  if (!t.defined()) return;
  if (!(t.sizes() == first.sizes()) || t.dtype() != first.dtype())
    fail(call.op, "every list to have " + to_string(first) + " at " + std::to_string(i),
         to_string(t));
}

// Why kernels that compute in f32 cannot run the call, or null: they take contiguous tensors, and
// list 0 of one dtype.
inline const char* decline_lists(const Call& call) {
  const ListCall lists(call);
  const size_t listed = call.in.size() - call.op.singles;
  for (size_t i = 0; i < listed; ++i) {
    const Tensor& t = call.in[i];
    if (!t.defined()) continue;
    if (t.dtype() != DType::f32 && !is_low_precision(t.dtype()))
      return "needs f32, bf16 or f16 tensors";
    if (!t.is_contiguous()) return "needs contiguous tensors";
    if (i < lists.size() && t.dtype() != call.in[0].dtype()) return "needs tensors of one dtype";
  }
  return nullptr;
}

// Bytes of every tensor that is read plus those that are written; `unread` are bits of arguments
// that are written only.
inline double list_bytes(const Call& call, uint32_t unread = 0) {
  double bytes = 0;
  for (size_t i = 0; i < call.in.size(); ++i) {
    if (!call.in[i].defined()) continue;
    const size_t argument = call.op.argument_of(i, call.in.size());
    const auto once = static_cast<double>(call.in[i].bytes());
    if ((unread >> argument & 1U) == 0) bytes += once;
    if (call.op.kind == OpKind::inplace && (call.op.writes >> argument & 1U) != 0) bytes += once;
  }
  return bytes;
}

}  // namespace epilogue
