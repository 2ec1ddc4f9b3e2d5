// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/products/gemm_epilogue.h"

namespace epilogue::cuda {
namespace {

bool is_bias(const MatrixView& view, DType dtype) {
  return view.row_stride == 0 && view.col_stride == 1 && view.dtype == dtype;
}
bool is_residual(const MatrixView& view, DType dtype) {
  return view.row_stride != 0 && view.col_stride == 1 && view.dtype == dtype;
}

// The operand that a step adds to `value`, unscaled; -1 where it does something else.
int added_operand(const PointwiseStep& step, int value) {
  if (step.fn != PointwiseFn::add || !step.has_default_parameters()) return -1;
  const auto [a, b, rest] = step.operands;
  if (a == kConstantOperand || b == kConstantOperand) return -1;
  if (a == value) return b - 1;
  return b == value ? a - 1 : -1;
}

}  // namespace

std::optional<GemmEpilogue> match_gemm_epilogue(const PointwiseProgram& program,
                                                std::span<const MatrixView> operands, DType dtype) {
  GemmEpilogue epilogue;
  int value = 0;  // what the steps so far have made of the product
  for (size_t i = 0; i < program.steps.size(); ++i) {
    const PointwiseStep& step = program.steps[i];
    const int operand = added_operand(step, value);
    const bool exists = operand >= 0 && static_cast<size_t>(operand) < operands.size();
    if (epilogue.residual != -1) return std::nullopt;  // nothing may follow it
    if (step.fn == PointwiseFn::gelu_tanh && step.operands[0] == value && !epilogue.gelu_tanh &&
        dtype == DType::bf16) {  // the library's tanh has too few bits for the others
      epilogue.gelu_tanh = true;
    } else if (exists && !epilogue.gelu_tanh && epilogue.bias == -1 &&
               is_bias(operands[static_cast<size_t>(operand)], dtype)) {
      epilogue.bias = operand;
    } else if (exists && !epilogue.gelu_tanh &&
               is_residual(operands[static_cast<size_t>(operand)], dtype)) {
      epilogue.residual = operand;
    } else {
      return std::nullopt;
    }
    value = program.inputs + static_cast<int>(i);
  }
  if (program.outputs.size() != 1 || program.outputs[0] != value) return std::nullopt;
  return epilogue;
}

std::optional<PointwiseFn> match_gated(const PointwiseProgram& program) {
  if (program.inputs != 2 || program.steps.size() != 2 || program.outputs.size() != 1 ||
      program.outputs[0] != 3)
    return std::nullopt;
  const PointwiseStep& activation = program.steps[0];
  const PointwiseStep& product = program.steps[1];
  if (operand_count(activation.fn) != 1 || activation.operands[0] != 0 ||
      product.fn != PointwiseFn::mul)
    return std::nullopt;
  const auto [a, b, rest] = product.operands;
  const bool of_both = (a == 2 && b == 1) || (a == 1 && b == 2);
  return of_both ? std::optional(activation.fn) : std::nullopt;
}

}  // namespace epilogue::cuda
