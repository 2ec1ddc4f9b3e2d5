// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/tile_program.h"

#include <algorithm>

#include "backend/cpu/simd/reduce.h"

namespace epilogue::cpu {
namespace {

bool is_column_sum(PointwiseFn fn) { return pointwise_row(fn).kind == PointwiseKind::column_sum; }

// The last step that reads each value; outputs, and what their column sums are of, live to the end.
std::vector<size_t> last_uses(const PointwiseProgram& program) {
  std::vector<size_t> last(static_cast<size_t>(program.values()), 0);
  for (size_t i = 0; i < program.steps.size(); ++i) {
    const PointwiseStep& step = program.steps[i];
    for (const int v : step.values())
      if (v != kConstantOperand && last[static_cast<size_t>(v)] != SIZE_MAX)
        last[static_cast<size_t>(v)] = is_column_sum(step.fn) ? SIZE_MAX : i;
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
    if (is_column_sum(step.fn)) {  // the caller's
      buffer_of[static_cast<size_t>(value)] = buffer_of[static_cast<size_t>(step.operands[0])];
      continue;
    }
    std::vector<int> operands;
    Step tile{Step::Over::elements, step, 0, 0};
    for (size_t k = 0; k < step.values().size(); ++k) {
      const int v = step.operands[k];
      if (v == kConstantOperand) {
        tile.constants |= 1U << k;
        continue;
      }
      tile.step.operands[k] = buffer_of[static_cast<size_t>(v)];
      if (std::ranges::count(operands, v) == 0) operands.push_back(v);
    }
    if (is_row_reduction(step.fn)) {
      tile.over = Step::Over::reduction;
    } else if (is_row(value)) {
      tile.over = Step::Over::rows;
    } else if (std::any_of(operands.begin(), operands.end(), is_row)) {
      tile.over = Step::Over::each_row;
    }
    // An operand that dies here lends its buffer: kernels may write where they read.
    for (const int v : operands) {
      const int buffer = buffer_of[static_cast<size_t>(v)];
      if (last[static_cast<size_t>(v)] != i) continue;
      (is_row(v) ? rows : elements).free.push_back(is_row(v) ? -1 - buffer : buffer);
    }
    tile.result = is_row(value) ? -1 - rows.take() : elements.take();
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
      Operands in = constants_of(step);
      for (size_t k = 0; k < step.step.values().size(); ++k)
        if (!step.is_constant(k)) in[k].data = buffers[step.step.operands[k]];
      kernels[step.step.fn](in.data(), buffers[step.result], count, step.step.parameters.data());
    };
    switch (step.over) {
      case Step::Over::elements: whole(n); break;
      case Step::Over::rows: whole(static_cast<size_t>(size.rows)); break;
      case Step::Over::each_row: run_each_row(step, buffers, size, kernels); break;
      case Step::Over::reduction: reduce_rows(step, buffers, size); break;
    }
  }
}

TileProgram::Operands TileProgram::constants_of(const Step& step) {
  Operands in;
  in.fill(step.step.constant);
  return in;
}

void TileProgram::run_each_row(const Step& step, const TileBuffers& buffers, const TileSize& size,
                               const simd::PointwiseKernels& kernels) {
  const auto tile = kernels[step.step.fn];
  Operands in = constants_of(step);
  for (int64_t r = 0; r < size.rows; ++r) {
    for (size_t k = 0; k < step.step.values().size(); ++k) {
      if (step.is_constant(k)) continue;
      const int buffer = step.step.operands[k];
      if (buffer < 0) {
        in[k].value = buffers[buffer][r];
      } else {
        in[k].data = buffers[buffer] + r * size.columns;
      }
    }
    tile(in.data(), buffers[step.result] + r * size.columns, static_cast<size_t>(size.columns),
         step.step.parameters.data());
  }
}

void TileProgram::reduce_rows(const Step& step, const TileBuffers& buffers, const TileSize& size) {
  const auto n = static_cast<size_t>(size.columns);
  const simd::RowKernels& kernels = simd::row_kernels();
  const PointwiseFn fn = step.step.fn;
  const float* const x = buffers[step.step.operands[0]];
  float* const out = buffers[step.result];
  for (int64_t r = 0; r < size.rows; ++r) {
    const float* const row = x + r * size.columns;
    out[r] = fn == PointwiseFn::row_max ? kernels.max(row, n) : kernels.sum(row, n);
    if (fn == PointwiseFn::row_mean) out[r] /= static_cast<float>(size.columns);
  }
}

}  // namespace epilogue::cpu
