// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/tensor_walk.h"

#include <algorithm>

#include "base/assert.h"
#include "ops/shape.h"

namespace epilogue::cuda {
namespace {

size_t index(int d) { return static_cast<size_t>(d); }

// Whether dimension d and the walk's last one are one: every operand steps from the end of a run of
// the inner one to the next element of the outer one.
bool joins(const Walk& walk, int64_t inner_size, const std::array<int64_t, kMaxOperands>& inner) {
  for (int k = 0; k <= walk.inputs; ++k)
    if (walk.operands[index(k)].strides[index(walk.rank - 1)] != inner[index(k)] * inner_size)
      return false;
  return true;
}

void add_dimension(Walk& walk, int64_t size, const std::array<int64_t, kMaxOperands>& strides) {
  const bool join = walk.rank > 0 && joins(walk, size, strides);
  const size_t at = index(join ? walk.rank - 1 : walk.rank++);
  walk.sizes[at] = join ? walk.sizes[at] * size : size;
  for (int k = 0; k <= walk.inputs; ++k) walk.operands[index(k)].strides[at] = strides[index(k)];
}

}  // namespace

Walk make_walk(const Tensor& out, std::span<const Tensor> in) {
  EPI_ASSERT(in.size() < kMaxOperands, "a walk has three inputs at most");
  Walk walk;
  walk.rank = 0;
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
  for (int d = 0; d < out.dim(); ++d) {
    if (out.sizes()[d] == 1) continue;
    std::array<int64_t, kMaxOperands> step{};
    for (int k = 0; k <= walk.inputs; ++k) step[index(k)] = strides[index(k)][d];
    add_dimension(walk, out.sizes()[d], step);
  }
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

namespace {

// Dimensions of `sizes` that every one of `strides` walks through as if they were one become one.
// Returns how many are left.
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
  return left;
}

}  // namespace

void join_dimensions(ReduceShape& shape, ReduceOperand& a, ReduceOperand& b) {
  std::array kept = {&a.kept_strides, &b.kept_strides};
  std::array reduced = {&a.reduced_strides, &b.reduced_strides};
  const size_t operands = b.data != nullptr ? 2 : 1;
  shape.kept_rank = join(shape.kept_sizes, shape.kept_rank, std::span(kept).first(operands));
  shape.reduced_rank =
      join(shape.reduced_sizes, shape.reduced_rank, std::span(reduced).first(operands));
}

}  // namespace epilogue::cuda
