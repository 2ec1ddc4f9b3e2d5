// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/tensor_walk.h"

#include <algorithm>

#include "base/assert.h"
#include "ops/shape.h"

namespace epilogue::cuda {
namespace {

size_t index(int d) { return static_cast<size_t>(d); }

// Dimensions of `sizes` that every one of `strides` walks through as if they were one become one.
// Returns how many are left; what lies behind them is 0.
int join(std::array<int64_t, kMaxDims>& sizes, int rank,
         std::span<std::array<int64_t, kMaxDims>* const> strides) {
  int left = 0;
  for (int d = 0; d < rank; ++d) {
    const size_t from = index(d);
    if (sizes[from] == 1) continue;
    const bool joins =
        left > 0 && std::ranges::all_of(strides, [&](const std::array<int64_t, kMaxDims>* s) {
          return (*s)[index(left - 1)] == (*s)[from] * sizes[from];
        });
    const size_t to = index(joins ? left - 1 : left++);
    sizes[to] = joins ? sizes[to] * sizes[from] : sizes[from];
    for (std::array<int64_t, kMaxDims>* const s : strides) (*s)[to] = (*s)[from];
  }
  for (size_t d = index(left); d < index(rank); ++d) {
    sizes[d] = 0;
    for (std::array<int64_t, kMaxDims>* const s : strides) (*s)[d] = 0;
  }
  return left;
}

}  // namespace

Walk make_walk(const Tensor& out, std::span<const Tensor> in) {
  EPI_ASSERT(in.size() < kMaxOperands, "a walk has three inputs at most");
  Walk walk;
  walk.inputs = static_cast<int>(in.size());
  walk.numel = out.numel();
  std::array<Dims, kMaxOperands> strides;
  strides[0] = out.strides();
  walk.operands[0] = {out.data(), out.dtype()};
  for (size_t i = 0; i < in.size(); ++i) {
    Operand& operand = walk.operands[i + 1];
    operand.dtype = in[i].dtype();
    if (in[i].device().type == DeviceType::cpu) {
      operand.number = static_cast<float>(in[i].item());
      strides[i + 1] = Dims::filled(out.dim(), 0);
    } else {
      operand.data = in[i].data();
      strides[i + 1] = broadcast_strides(in[i], out.sizes());
    }
  }
  std::array<std::array<int64_t, kMaxDims>*, kMaxOperands> steps{};
  for (size_t k = 0; k <= in.size(); ++k) {
    steps[k] = &walk.operands[k].strides;
    for (int d = 0; d < out.dim(); ++d) (*steps[k])[index(d)] = strides[k][d];
  }
  for (int d = 0; d < out.dim(); ++d) walk.sizes[index(d)] = out.sizes()[d];
  walk.rank = join(walk.sizes, out.dim(), std::span(steps).first(in.size() + 1));
  if (walk.rank == 0) {  // one element
    walk.rank = 1;
    walk.sizes[0] = 1;
  }
  return walk;
}

ReduceShape make_reduce_shape(const Dims& sizes, const Dims& dims) {
  ReduceShape shape;
  for (int d = 0; d < sizes.rank(); ++d) {
    const bool reduced = std::find(dims.begin(), dims.end(), d) != dims.end();
    if (reduced) {
      shape.reduced_sizes[index(shape.reduced_rank++)] = sizes[d];
      shape.count *= sizes[d];
    } else {
      shape.kept_sizes[index(shape.kept_rank++)] = sizes[d];
      shape.outs *= sizes[d];
    }
  }
  return shape;
}

ReduceOperand make_reduce_operand(const Tensor& t, const Dims& sizes, const Dims& dims) {
  const Dims strides = broadcast_strides(t, sizes);
  ReduceOperand operand;
  operand.data = t.data();
  operand.dtype = t.dtype();
  size_t kept = 0;
  size_t reduced = 0;
  for (int d = 0; d < sizes.rank(); ++d) {
    const bool is_reduced = std::find(dims.begin(), dims.end(), d) != dims.end();
    (is_reduced ? operand.reduced_strides[reduced++] : operand.kept_strides[kept++]) = strides[d];
  }
  return operand;
}

void join_dimensions(ReduceShape& shape, ReduceOperand& a, ReduceOperand& b) {
  std::array kept = {&a.kept_strides, &b.kept_strides};
  std::array reduced = {&a.reduced_strides, &b.reduced_strides};
  const size_t operands = b.data != nullptr ? 2 : 1;
  shape.kept_rank = join(shape.kept_sizes, shape.kept_rank, std::span(kept).first(operands));
  shape.reduced_rank =
      join(shape.reduced_sizes, shape.reduced_rank, std::span(reduced).first(operands));
}

}  // namespace epilogue::cuda
