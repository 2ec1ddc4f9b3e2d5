// SPDX-License-Identifier: Apache-2.0
// Guards of in-place ops: where memory is shared in part, the result would depend on the order of
// writes.
#pragma once

#include "core/op.h"

namespace epilogue {

// Fails when elements of `self` share memory (an expanded tensor), or when `source` shares some of
// it in another arrangement. `source` being the same view as `self` is fine.
void require_writable(const OpDef& op, const Tensor& self, const Tensor& source);

}  // namespace epilogue
