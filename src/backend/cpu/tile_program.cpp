// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/tile_program.h"

#include <algorithm>

#include "backend/cpu/simd/reduce.h"

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
    case PointwiseFn::log: return unary(simd::UnaryOp::log);
    case PointwiseFn::rsqrt: return unary(simd::UnaryOp::rsqrt);
    case PointwiseFn::row_sum:
    case PointwiseFn::row_mean:
    case PointwiseFn::row_max:
    case PointwiseFn::column_sum: return tile;  // no elementwise kernel
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

// The last step that reads each value; outputs, and what their column sums are of, live to the end.
std::vector<size_t> last_uses(const PointwiseProgram& program) {
  std::vector<size_t> last(static_cast<size_t>(program.values()), 0);
  for (size_t i = 0; i < program.steps.size(); ++i) {
    const PointwiseStep& step = program.steps[i];
    for (const int v : {step.a, step.b})
      if (v != kConstantOperand && last[static_cast<size_t>(v)] != SIZE_MAX)
        last[static_cast<size_t>(v)] = step.fn == PointwiseFn::column_sum ? SIZE_MAX : i;
  }
  for (const int v : program.outputs) last[static_cast<size_t>(v)] = SIZE_MAX;
  return last;
}

// Buffers in use, and those that are free again.
struct Pool {
  int count = 0;
  std::vector<int> free = {};

  int take() {
    if (free.empty()) return count++;
    const int buffer = free.back();
    free.pop_back();
    return buffer;
  }
};

}  // namespace

TileProgram::TileProgram(const PointwiseProgram& program)
    : inputs_(program.inputs),
      has_row_reductions_(epilogue::has_row_reductions(program)),
      has_column_sums_(epilogue::has_column_sums(program)) {
  verify(program);
  allocate(program);
}

// Finds a buffer for every value.
void TileProgram::allocate(const PointwiseProgram& program) {
  const std::vector<size_t> last = last_uses(program);
  const std::vector<Extent> extent = extents(program);
  const auto is_row = [&](int v) { return extent[static_cast<size_t>(v)] == Extent::row; };
  std::vector<int> buffer_of(static_cast<size_t>(program.values()));
  for (int v = 0; v < inputs_; ++v) buffer_of[static_cast<size_t>(v)] = v;
  Pool elements{inputs_};
  Pool rows;
  for (size_t i = 0; i < program.steps.size(); ++i) {
    const PointwiseStep& step = program.steps[i];
    const int value = inputs_ + static_cast<int>(i);
    if (step.fn == PointwiseFn::column_sum) {  // the caller's
      buffer_of[static_cast<size_t>(value)] = buffer_of[static_cast<size_t>(step.a)];
      continue;
    }
    std::vector<int> operands;
    if (step.a != kConstantOperand) operands.push_back(step.a);
    if (is_binary(step.fn) && step.b != kConstantOperand && step.b != step.a)
      operands.push_back(step.b);
    Step tile{Step::Over::elements, step.fn, kernel_of(step), 0};
    if (step.a != kConstantOperand) tile.kernel.a = buffer_of[static_cast<size_t>(step.a)];
    if (is_binary(step.fn) && step.b != kConstantOperand)
      tile.kernel.b = buffer_of[static_cast<size_t>(step.b)];
    if (is_row_reduction(step.fn)) {
      tile.over = Step::Over::reduction;
    } else if (is_row(value)) {
      tile.over = Step::Over::rows;
    } else if (std::any_of(operands.begin(), operands.end(), is_row)) {
      tile.over = Step::Over::each_row;
    }
    const auto release = [&] {
      for (const int v : operands) {
        const int buffer = buffer_of[static_cast<size_t>(v)];
        if (last[static_cast<size_t>(v)] != i) continue;
        (is_row(v) ? rows : elements).free.push_back(is_row(v) ? -1 - buffer : buffer);
      }
    };
    // An operand that dies here lends its buffer: kernels may write where they read. But rows'
    // numbers spread over the result before a derivative reads the other operand.
    const bool keeps_operands =
        tile.over == Step::Over::each_row && tile.kernel.form == TileStep::Form::backward;
    if (!keeps_operands) release();
    tile.result = is_row(value) ? -1 - rows.take() : elements.take();
    if (keeps_operands) release();
    buffer_of[static_cast<size_t>(value)] = tile.result;
    steps_.push_back(tile);
  }
  buffers_ = elements.count;
  row_buffers_ = rows.count;
  for (const int v : program.outputs)
    outputs_.push_back({buffer_of[static_cast<size_t>(v)], extent[static_cast<size_t>(v)]});
}

void TileProgram::run(const TileBuffers& buffers, const TileSize& size,
                      const simd::PointwiseKernels& kernels) const {
  const auto n = static_cast<size_t>(size.rows * size.columns);
  for (const Step& step : steps_) {
    const auto whole = [&](size_t count) {
      simd::run_step(step.kernel, buffers[step.kernel.a], buffers[step.kernel.b],
                     buffers[step.result], count, kernels);
    };
    switch (step.over) {
      case Step::Over::elements: whole(n); break;
      case Step::Over::rows: whole(static_cast<size_t>(size.rows)); break;
      case Step::Over::each_row: run_each_row(step, buffers, size, kernels); break;
      case Step::Over::reduction: reduce_rows(step, buffers, size); break;
    }
  }
}

void TileProgram::run_each_row(const Step& step, const TileBuffers& buffers, const TileSize& size,
                               const simd::PointwiseKernels& kernels) {
  const auto n = static_cast<size_t>(size.columns);
  const bool a_is_row = step.kernel.a < 0;
  const float* const numbers = buffers[a_is_row ? step.kernel.a : step.kernel.b];
  const float* const elements = buffers[a_is_row ? step.kernel.b : step.kernel.a];
  TileStep row = step.kernel;
  const bool is_backward = row.form == TileStep::Form::backward;
  if (!is_backward)
    row.form = a_is_row ? TileStep::Form::scalar_left : TileStep::Form::scalar_right;
  for (int64_t r = 0; r < size.rows; ++r) {
    float* const out = buffers[step.result] + r * size.columns;
    const float* const other = elements + r * size.columns;
    row.scalar = numbers[r];
    if (is_backward) kernels.fill(row.scalar, out, n);
    const float* const spread = is_backward ? out : other;
    simd::run_step(row, a_is_row ? spread : other, a_is_row ? other : spread, out, n, kernels);
  }
}

void TileProgram::reduce_rows(const Step& step, const TileBuffers& buffers, const TileSize& size) {
  const auto n = static_cast<size_t>(size.columns);
  const simd::RowKernels& kernels = simd::row_kernels();
  const float* const x = buffers[step.kernel.a];
  float* const out = buffers[step.result];
  for (int64_t r = 0; r < size.rows; ++r) {
    const float* const row = x + r * size.columns;
    out[r] = step.fn == PointwiseFn::row_max ? kernels.max(row, n) : kernels.sum(row, n);
    if (step.fn == PointwiseFn::row_mean) out[r] /= static_cast<float>(size.columns);
  }
}

}  // namespace epilogue::cpu
