// SPDX-License-Identifier: Apache-2.0
// Guards of what is written while something else is read: where memory is shared in part, the
// result would depend on the order of writes.
#pragma once

#include "core/op.h"

namespace epilogue {

// Fails when elements of `self` share memory (an expanded tensor), or when `source` shares some of
// it in another arrangement. `source` being the same view as `self` is fine.
void require_writable(const OpDef& op, const Tensor& self, const Tensor& source);

// Between the first and the last element of the one lies some of the other's. For a contiguous
// tensor to be written this is what matters; two views with gaps may interleave all the same.
bool extents_meet(const Tensor& a, const Tensor& b);

}  // namespace epilogue
