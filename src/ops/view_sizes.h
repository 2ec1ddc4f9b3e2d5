// SPDX-License-Identifier: Apache-2.0
// Arithmetic on sizes and strides that view ops share with reshape and with kernels.
#pragma once

#include <optional>

#include "core/op.h"

namespace epilogue {

// `sizes` with its one -1 replaced so that the elements number `numel`; fails where they cannot.
Dims resolve_sizes(const OpDef& op, const Dims& sizes, int64_t numel);

// Strides of a view of `self` with `sizes` (as many elements), or nothing where it needs a copy.
std::optional<Dims> view_strides(const Tensor& self, const Dims& sizes);

// The part of call.out[0] that aten::slice_backward writes its gradient to.
Tensor slice_backward_target(const Call& call);

}  // namespace epilogue
