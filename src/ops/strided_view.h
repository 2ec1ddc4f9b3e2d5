// SPDX-License-Identifier: Apache-2.0
// Shared by the definitions of view ops: views by strides, and their references as copies.
#pragma once

#include "core/op.h"

namespace epilogue {

// Offset of the first element from the start of the storage, in elements.
int64_t storage_offset_of(const Tensor& t);

// aten::as_strided of self; `offset` counts from self's first element.
Tensor strided_view(const Tensor& self, const Dims& sizes, const Dims& strides, int64_t offset = 0);

// Views move nothing.
inline double no_bytes(const Call&) { return 0; }

// Reference helpers. The elements in row-major order:
void copy_in_order(const Tensor& source, const Tensor& result);
// The elements that strides and an offset (from the first element) pick, over the result's sizes.
void gather_reference(const Call& call, const Dims& strides, int64_t offset);

}  // namespace epilogue
