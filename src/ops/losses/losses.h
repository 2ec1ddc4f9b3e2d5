// SPDX-License-Identifier: Apache-2.0
// Shared by the losses: PyTorch's reduction codes and class targets.
#pragma once

#include <string>

#include "core/element.h"
#include "epilogue/ops.h"
#include "ops/shape.h"

namespace epilogue {

inline Attr reduction_attr(Reduction reduction) { return static_cast<int64_t>(reduction); }

// An attribute as Reduction; fails on other numbers.
inline Reduction reduction_of(const Call& call, size_t attr) {
  const auto code = call.attr<int64_t>(attr);
  if (code < 0 || code > 2)
    fail(call.op, "reduction 0 (none), 1 (mean) or 2 (sum)", std::to_string(code));
  return static_cast<Reduction>(code);
}

// Fails unless the target has the input's shape. PyTorch broadcasts with a warning: [n, 1] and [n]
// would give [n, n] losses, of which nothing can be learnt.
inline void require_target_shape(const OpDef& op, const Tensor& self, const Tensor& target) {
  if (!(self.sizes() == target.sizes()))
    fail(op, "a target of the input's shape " + to_string(self.sizes()), to_string(target));
}

// The reduction of a loss's terms.
inline Tensor reduced(const Tensor& terms, Reduction reduction) {
  if (reduction == Reduction::none) return terms;
  return reduction == Reduction::mean ? mean(terms) : sum(terms);
}
// The same for references: of n terms in double; attribute 0 is the reduction.
template <class Term>
void reduce_reference(const Call& call, int64_t n, Term&& term) {
  const Reduction reduction = reduction_of(call, 0);
  const Tensor& out = call.out[0];
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) {
    const double loss = term(i);
    if (reduction == Reduction::none) store_element(out.dtype(), out.data(), i, loss);
    sum += loss;
  }
  if (reduction == Reduction::none) return;
  store_element(out.dtype(), out.data(), 0,
                reduction == Reduction::mean ? sum / static_cast<double>(n) : sum);
}

inline constexpr int64_t kIgnored = -1;

// A target as class, or kIgnored; fails outside [0, classes).
inline int64_t class_of(const OpDef& op, int64_t target, int64_t ignore_index, int64_t classes) {
  if (target == ignore_index) return kIgnored;
  if (target < 0 || target >= classes) [[unlikely]]
    fail(op,
         "class targets in [0, " + std::to_string(classes) + ") or the ignore_index " +
             std::to_string(ignore_index),
         std::to_string(target));
  return target;
}

// Fails unless self is [n, classes] or [classes], target i64 [n] or [], and weight, if defined,
// [classes].
void require_class_targets(const OpDef& op, const Tensor& self, const Tensor& target,
                           const Tensor& weight);

}  // namespace epilogue
