// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/tile_program.h"

#include <algorithm>

namespace epilogue::cpu {
namespace {

using simd::TileStep;

template <class Op>
uint8_t code(Op op) {
  return static_cast<uint8_t>(op);
}

// The kernel of a step; operands are set later.
TileStep kernel_of(const PointwiseStep& step) {
  TileStep tile;
  tile.scalar = step.constant;
  tile.alpha = step.alpha;
  const auto as = [&](TileStep::Form form, uint8_t op) {
    tile.form = form;
    tile.op = op;
    return tile;
  };
  const auto unary = [&](simd::UnaryOp op) { return as(TileStep::Form::unary, code(op)); };
  const auto arithmetic = [&](simd::ArithmeticOp op) {
    const auto form = step.a == kConstantOperand   ? TileStep::Form::scalar_left
                      : step.b == kConstantOperand ? TileStep::Form::scalar_right
                                                   : TileStep::Form::binary;
    return as(form, code(op));
  };
  const auto backward = [&](simd::BackwardOp op) { return as(TileStep::Form::backward, code(op)); };
  switch (step.fn) {
    case PointwiseFn::neg: return unary(simd::UnaryOp::neg);
    case PointwiseFn::relu: return unary(simd::UnaryOp::relu);
    case PointwiseFn::sigmoid: return unary(simd::UnaryOp::sigmoid);
    case PointwiseFn::tanh: return unary(simd::UnaryOp::tanh);
    case PointwiseFn::exp: return unary(simd::UnaryOp::exp);
    case PointwiseFn::gelu_tanh: return unary(simd::UnaryOp::gelu_tanh);
    case PointwiseFn::gelu_erf: return unary(simd::UnaryOp::gelu_erf);
    case PointwiseFn::silu: return unary(simd::UnaryOp::silu);
    case PointwiseFn::add: return arithmetic(simd::ArithmeticOp::add);
    case PointwiseFn::sub: return arithmetic(simd::ArithmeticOp::sub);
    case PointwiseFn::mul: return arithmetic(simd::ArithmeticOp::mul);
    case PointwiseFn::div: return arithmetic(simd::ArithmeticOp::div);
    case PointwiseFn::relu_backward: return backward(simd::BackwardOp::relu);
    case PointwiseFn::sigmoid_backward: return backward(simd::BackwardOp::sigmoid);
    case PointwiseFn::tanh_backward: return backward(simd::BackwardOp::tanh);
    case PointwiseFn::gelu_tanh_backward: return backward(simd::BackwardOp::gelu_tanh);
    case PointwiseFn::gelu_erf_backward: return backward(simd::BackwardOp::gelu_erf);
    case PointwiseFn::silu_backward: return backward(simd::BackwardOp::silu);
  }
  return tile;
}

// The last step that reads each value; outputs live to the end.
std::vector<size_t> last_uses(const PointwiseProgram& program) {
  std::vector<size_t> last(static_cast<size_t>(program.values()), 0);
  for (size_t i = 0; i < program.steps.size(); ++i)
    for (const int v : {program.steps[i].a, program.steps[i].b})
      if (v != kConstantOperand) last[static_cast<size_t>(v)] = i;
  for (const int v : program.outputs) last[static_cast<size_t>(v)] = SIZE_MAX;
  return last;
}

}  // namespace

TileProgram::TileProgram(const PointwiseProgram& program) : inputs_(program.inputs) {
  verify(program);
  const std::vector<size_t> last = last_uses(program);
  std::vector<int> buffer_of(static_cast<size_t>(program.values()));
  for (int v = 0; v < inputs_; ++v) buffer_of[static_cast<size_t>(v)] = v;
  buffers_ = inputs_;
  std::vector<int> free;
  for (size_t i = 0; i < program.steps.size(); ++i) {
    const PointwiseStep& step = program.steps[i];
    TileStep tile = kernel_of(step);
    std::vector<int> operands;
    if (step.a != kConstantOperand) operands.push_back(step.a);
    if (is_binary(step.fn) && step.b != kConstantOperand && step.b != step.a)
      operands.push_back(step.b);
    if (step.a != kConstantOperand) tile.a = buffer_of[static_cast<size_t>(step.a)];
    if (is_binary(step.fn) && step.b != kConstantOperand)
      tile.b = buffer_of[static_cast<size_t>(step.b)];
    // An operand that dies here lends its buffer: kernels may write where they read.
    for (const int v : operands)
      if (last[static_cast<size_t>(v)] == i) free.push_back(buffer_of[static_cast<size_t>(v)]);
    int result = buffers_;
    if (free.empty()) {
      ++buffers_;
    } else {
      result = free.back();
      free.pop_back();
    }
    buffer_of[static_cast<size_t>(inputs_) + i] = result;
    steps_.push_back(tile);
    results_.push_back(result);
  }
  for (const int v : program.outputs) outputs_.push_back(buffer_of[static_cast<size_t>(v)]);
}

void TileProgram::run(const TileBuffers& buffers, size_t n,
                      const simd::PointwiseKernels& kernels) const {
  for (size_t i = 0; i < steps_.size(); ++i)
    simd::run_step(steps_[i], buffers[steps_[i].a], buffers[steps_[i].b], buffers[results_[i]], n,
                   kernels);
}

}  // namespace epilogue::cpu
