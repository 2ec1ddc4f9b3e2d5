// SPDX-License-Identifier: Apache-2.0
// Which pointwise programs a product can run while it writes its result.
#pragma once

#include <optional>
#include <span>

#include "core/row_chain.h"

namespace epilogue::cuda {

// c = f(a b + bias) + residual: what cuBLASLt computes in one kernel. Numbers are operands of the
// stage (0: the first after the products); -1: none.
struct GemmEpilogue {
  int bias = -1;
  int residual = -1;
  bool gelu_tanh = false;
  bool operator==(const GemmEpilogue&) const = default;
};

// The program of a stage with one product as such an epilogue, or nullopt. A bias is one row, a
// residual a matrix with unit column stride, both of the product's dtype.
std::optional<GemmEpilogue> match_gemm_epilogue(const PointwiseProgram& program,
                                                std::span<const MatrixView> operands, DType dtype);

// The activation of a program that is act(v0) * v1 and nothing else: a gated MLP's first half.
std::optional<PointwiseFn> match_gated(const PointwiseProgram& program);

}  // namespace epilogue::cuda
