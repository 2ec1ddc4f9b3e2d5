// SPDX-License-Identifier: Apache-2.0
// Tensors as the kernels see them.
#pragma once

#include <span>

#include "backend/cuda/kernels/kernels.h"
#include "core/op.h"

namespace epilogue::cuda {

// A walk over out's elements; inputs (at most three) broadcast to it, numbers of the host become
// constants. Dimensions that all operands step through alike are joined, those of size 1 left out;
// at least one remains.
Walk make_walk(const Tensor& out, std::span<const Tensor> in);

// The sum over `dims` (normalised) of tensors of `sizes`; operands broadcast to it.
ReduceShape make_reduce_shape(const Dims& sizes, const Dims& dims);
ReduceOperand make_reduce_operand(const Tensor& t, const Dims& sizes, const Dims& dims);
// Makes one dimension of neighbours that both operands (`a` alone where b.data is null) walk
// through as if they were one: a kernel divides once per dimension and element.
void join_dimensions(ReduceShape& shape, ReduceOperand& a, ReduceOperand& b);

}  // namespace epilogue::cuda
