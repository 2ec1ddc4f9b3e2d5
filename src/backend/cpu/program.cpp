// SPDX-License-Identifier: Apache-2.0
// A program over matrices, a tile at a time: load what it reads, run every step on the tile, store
// what it gives. Between the steps nothing leaves L1.
#include <algorithm>
#include <vector>

#include "backend/cpu/column_sums.h"
#include "backend/cpu/float_type.h"
#include "backend/cpu/simd/scratch.h"
#include "backend/cpu/simd/targets.h"
#include "backend/cpu/tile_io.h"
#include "backend/cpu/tile_program.h"
#include "base/thread_pool.h"
#include "core/program_kernel.h"
#include "epilogue/base/error.h"

namespace epilogue::cpu {

// Throws Error as verify() does. cpu_backend.cpp lists it.
std::unique_ptr<ProgramKernel> make_program(const PointwiseProgram& program);

namespace {

// All buffers of a tile together: so little that loads of the next tile begin while this one is
// computed. With 24 KiB memory waited for arithmetic and arithmetic for memory, a fifth of the
// time.
constexpr int64_t kProgramTileBytes = 6 << 10;
// Elements per thread at least: through an activation they take a few times as long as waking one.
constexpr int64_t kProgramGrain = 8192;
// One cache line of f32.
constexpr int64_t kLineFloats = 16;

thread_local simd::Scratch tile_scratch;
// Of the caller, for all threads:
thread_local simd::Scratch program_scratch;
thread_local std::vector<ColumnSums> program_sums;

// How a call is cut: threads take groups of rows times tiles of columns. Where rows are reduced a
// tile has whole rows; where columns are summed a group has the rows that are summed together.
struct Tiling {
  int64_t rows;  // of the call
  int64_t cols;
  int64_t tile_rows;
  int64_t tile_cols;
  int64_t group_rows;
  int64_t groups;
  int64_t col_tiles;
};

constexpr int64_t whole_lines(int64_t floats) {
  return (floats + kLineFloats - 1) / kLineFloats * kLineFloats;
}

// Whether rows follow each other without a gap (or all elements are one).
bool is_flat(const MatrixView& view, int64_t cols) {
  return !has_levels(view) && ((view.col_stride == 1 && view.row_stride == cols) ||
                               (view.col_stride == 0 && view.row_stride == 0));
}

class CpuProgram final : public ProgramKernel {
 public:
  explicit CpuProgram(const PointwiseProgram& program) : program_(program) {}

  void run(int64_t rows, int64_t cols, std::span<const MatrixView> inputs,
           std::span<const MatrixView> outputs) const override {
    require(inputs, outputs);
    const bool reduces = program_.has_row_reductions() || program_.has_column_sums();
    if (!reduces && (rows == 0 || cols == 0)) return;
    const auto flat = [cols](const MatrixView& view) { return is_flat(view, cols); };
    if (!reduces && std::all_of(inputs.begin(), inputs.end(), flat) &&
        std::all_of(outputs.begin(), outputs.end(), flat)) {
      cols *= rows;
      rows = 1;
    }
    const Tiling t = tiling(rows, cols);
    const std::span<const ColumnSums> sums = column_sums(t);
    const Call call = {inputs, outputs, sums};
    const int64_t group = std::max<int64_t>(1, t.group_rows * t.tile_cols);
    parallel_for(t.groups * t.col_tiles, std::max<int64_t>(1, kProgramGrain / group),
                 [&](int64_t begin, int64_t end) {
                   for (int64_t i = begin; i < end; ++i) run_group(t, i, call);
                 });
    for (size_t o = 0; o < sums.size(); ++o)
      if (program_.output(o).extent == Extent::column) sums[o].finish(outputs[o]);
  }

  int threads(int64_t rows, int64_t cols) const override {
    if (rows == 0 || cols == 0) return 1;
    return parallel_pieces(rows * cols, kProgramGrain);
  }

  std::string kernel_prefix() const override {
    return std::string("epi_") + target_name(simd::active_target());
  }

 private:
  void require(std::span<const MatrixView> inputs, std::span<const MatrixView> outputs) const {
    if (static_cast<int>(inputs.size()) != program_.inputs() ||
        outputs.size() != program_.outputs())
      throw Error("[program] expected " + std::to_string(program_.inputs()) + " inputs and " +
                  std::to_string(program_.outputs()) + " outputs, got " +
                  std::to_string(inputs.size()) + " and " + std::to_string(outputs.size()));
    const auto require_dtype = [](const MatrixView& view, bool fits) {
      if (!fits)
        throw Error("[program] expected f32, bf16 or f16, got " +
                    std::string(dtype_name(view.dtype)));
    };
    for (const MatrixView& view : inputs) require_dtype(view, is_tile_source(view.dtype));
    for (const MatrixView& view : outputs) require_dtype(view, is_tile_target(view.dtype));
    for (const MatrixView& view : outputs)
      if (view.col_stride != 1) throw Error("[program] expected outputs with contiguous columns");
  }

  // The arguments of one run(), and the sums of its outputs that are columns'; none: no sums.
  struct Call {
    std::span<const MatrixView> inputs;
    std::span<const MatrixView> outputs;
    std::span<const ColumnSums> sums;
  };

  Tiling tiling(int64_t rows, int64_t cols) const {
    const int64_t each = kProgramTileBytes / (program_.buffers() * int64_t{sizeof(float)});
    const int64_t elements = std::max(each / kLineFloats * kLineFloats, kLineFloats);
    Tiling t{rows, cols, 1, cols, 1, 0, 1};
    if (!program_.has_row_reductions()) t.tile_cols = std::min(cols, elements);
    const auto count = [](int64_t n, int64_t size) { return (n + size - 1) / size; };
    t.tile_rows = std::clamp<int64_t>(elements / std::max<int64_t>(1, t.tile_cols), 1,
                                      std::max<int64_t>(1, rows));
    t.group_rows = program_.has_column_sums() ? kColumnSumRows : t.tile_rows;
    t.groups = count(rows, t.group_rows);
    if (t.tile_cols > 0) t.col_tiles = count(cols, t.tile_cols);
    return t;
  }

  // In memory of this thread.
  std::span<const ColumnSums> column_sums(const Tiling& t) const {
    program_sums.clear();
    if (!program_.has_column_sums()) return {};
    const int64_t each = whole_lines(ColumnSums::floats(t.rows, t.cols));
    float* const memory = program_scratch.get(program_.outputs() * static_cast<size_t>(each));
    for (size_t o = 0; o < program_.outputs(); ++o)
      program_sums.emplace_back(memory + static_cast<int64_t>(o) * each, t.rows, t.cols);
    return program_sums;
  }

  void run_group(const Tiling& t, int64_t index, const Call& call) const {
    const int64_t begin = index / t.col_tiles * t.group_rows;
    const int64_t end = std::min(begin + t.group_rows, t.rows);
    const int64_t column = index % t.col_tiles * t.tile_cols;
    const int64_t columns = std::min(t.tile_cols, t.cols - column);
    for (int64_t row = begin; row < end; row += t.tile_rows)
      run_tile(t, {row, std::min(t.tile_rows, end - row), column, columns}, call);
  }

  void run_tile(const Tiling& t, const TileBounds& block, const Call& call) const {
    const int64_t stride = whole_lines(t.tile_rows * t.tile_cols);
    const int64_t rows_stride = whole_lines(t.tile_rows);
    const int64_t elements = program_.buffers() * stride;
    float* const memory =
        tile_scratch.get(static_cast<size_t>(elements + program_.row_buffers() * rows_stride));
    const TileBuffers tiles = {memory, stride, 0, {}, memory + elements, rows_stride};
    for (size_t i = 0; i < call.inputs.size(); ++i)
      load_tile(call.inputs[i], block, tiles[static_cast<int>(i)], block.columns);
    program_.run(tiles, {block.rows, block.columns}, simd::pointwise_kernels());
    for (size_t o = 0; o < call.outputs.size(); ++o) {
      const TileProgram::Output& output = program_.output(o);
      const float* const tile = tiles[output.buffer];
      if (output.extent == Extent::column) {
        call.sums[o].add(block, tile, block.columns);
      } else if (output.extent == Extent::row) {
        store_tile(call.outputs[o], {block.row, block.rows, 0, 1}, tile, 1);
      } else {
        store_tile(call.outputs[o], block, tile, block.columns);
      }
    }
  }

  TileProgram program_;
};

}  // namespace

std::unique_ptr<ProgramKernel> make_program(const PointwiseProgram& program) {
  return std::make_unique<CpuProgram>(program);
}

}  // namespace epilogue::cpu
