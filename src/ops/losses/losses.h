// SPDX-License-Identifier: Apache-2.0
// What the losses share: PyTorch's reduction codes and class targets.
#pragma once

#include <string>

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
