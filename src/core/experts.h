// SPDX-License-Identifier: Apache-2.0
// The experts of a mixture as one fused kernel: a backend that has it lists a maker of kExperts.
#pragma once

#include <vector>

#include "core/fused_kernel.h"
#include "core/pointwise_program.h"
#include "epilogue/fusion_choices.h"
#include "epilogue/tensor.h"

namespace epilogue {

inline constexpr OpDef kExperts{.name = "epilogue::fused_experts",
                                .schema = "(Tensor x, Tensor index, Tensor weights)",
                                .doc = "sum over k of weights * expert(x), tokens by expert"};

// y[t] = sum over j of weights[t, j] * expert index[t, j] of x[t], in the order of j
//
// Operands of the kernel: x [tokens, k]; then for each j index[:, j] (i64); then for each j
// weights[:, j] (f32, bf16 or f16). Its result is [tokens, n] with contiguous columns. An index
// that is the number of experts stands for no expert. Arithmetic between x, the weights and the
// result is f32, but rows that a kernel of bf16 products reads are bf16. Throws Error on an index
// out of range.
struct ExpertsSpec final : FusedSpec {
  struct Expert {
    std::vector<Tensor> weights;  // gate and up, or up alone; then down: [n, k], any strides
    std::vector<Tensor> biases;   // one for each weight; undefined where there is none
  };
  DType dtype = DType::f32;     // of x, the experts and the result: f32, bf16 or f16
  Quantisation bits = {};       // of the packed copies of weights, and of rows between products
  std::vector<Expert> experts;  // at least one; all of one form and of the same sizes
  // After the products: of the first weights with their biases, of the last one with its.
  PointwiseProgram hidden;
  PointwiseProgram result;
};

// A kernel of experts, which says how much memory its weights take.
class ExpertsKernel : public FusedKernel {
 public:
  // Bytes of the packed weights of all experts, packed or not yet, at the level in use.
  virtual int64_t packed_bytes() const = 0;
};

}  // namespace epilogue
