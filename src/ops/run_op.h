// SPDX-License-Identifier: Apache-2.0
// run_op: the one place where ops run.
#pragma once

#include <cstring>
#include <initializer_list>
#include <new>
#include <span>
#include <string>
#include <utility>

#include "core/observer.h"
#include "core/op.h"

namespace epilogue {

// Infers the results, allocates them, runs the first kernel that does not decline (the op's
// reference is the last resort) and tells the observers. Ops with no elements to write launch
// nothing. Thread-safe. Throws Error on misuse.
Outputs run_op(const OpDef& op, std::span<const Tensor> in, std::span<const Attr> attrs = {});

// The same for a compute op whose results the caller made, with the sizes and dtypes that its rule
// gives: plans run ops into memory of their own. Neither tape nor capture hears of it.
void run_op_into(const OpDef& op, std::span<const Tensor> in, std::span<const Attr> attrs,
                 std::span<Tensor> out);

namespace detail {

// Handles of tensors that outlive a call, without touching their reference counts.
template <size_t kCount>
class Borrowed {
 public:
  template <class... Tensors>
  explicit Borrowed(const Tensors&... tensors) {
    size_t i = 0;
    (std::memcpy(bytes_ + sizeof(Tensor) * i++, static_cast<const void*>(&tensors), sizeof(Tensor)),
     ...);
  }
  std::span<const Tensor> span() const {
    return {std::launder(reinterpret_cast<const Tensor*>(bytes_)), kCount};
  }

 private:
  static_assert(sizeof(Tensor) == sizeof(void*), "a handle is one pointer");
  alignas(Tensor) std::byte bytes_[sizeof(Tensor) * kCount];
};

}  // namespace detail

// Arguments of one call, borrowed from the caller: run_op(kAdd, args(self, other), {alpha}).
template <class... Tensors>
detail::Borrowed<sizeof...(Tensors)> args(const Tensors&... tensors) {
  return detail::Borrowed<sizeof...(Tensors)>(tensors...);
}

// The first result.
Tensor run_op(const OpDef& op, std::initializer_list<Tensor> in,
              std::initializer_list<Attr> attrs = {});
template <size_t kCount>
Tensor run_op(const OpDef& op, const detail::Borrowed<kCount>& in,
              std::initializer_list<Attr> attrs = {}) {
  Outputs out = run_op(op, in.span(), std::span<const Attr>(attrs.begin(), attrs.size()));
  return std::move(out[0]);
}

// Which kernel would run, and why the better ones would not: one line per kernel.
std::string explain_kernels(const OpDef& op, std::span<const Tensor> in,
                            std::span<const Attr> attrs = {});

}  // namespace epilogue
