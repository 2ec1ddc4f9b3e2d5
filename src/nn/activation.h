// SPDX-License-Identifier: Apache-2.0
// The functions behind an Activation: as ops, and as steps of a pointwise program.
#pragma once

#include <vector>

#include "core/op.h"
#include "core/pointwise_program.h"
#include "epilogue/nn.h"

namespace epilogue::nn {

// The function alone: of a gated activation but clamped_swiglu, what its gate branch goes through.
Tensor activate(const Tensor& x, Activation activation);
// A gated activation of both branches.
Tensor gate(const Tensor& gate, const Tensor& up, Activation activation,
            const SwiGluClamp& clamp = {});

// The same as steps. Both append and return the value that they make.
int push_activation(PointwiseProgram& program, Activation activation, int value);
int push_gate(PointwiseProgram& program, Activation activation, const SwiGluClamp& clamp, int gate,
              int up);

// The steps' ATen ops, in their order; `operands`: how many elements each reads and writes for one
// of its results.
struct ActivationOp {
  const OpDef* op;
  int operands;
};
std::vector<ActivationOp> ops_of(Activation activation);

}  // namespace epilogue::nn
