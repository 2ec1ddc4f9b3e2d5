// SPDX-License-Identifier: Apache-2.0
// A program over matrices, a tile at a time: load what it reads, run every step on the tile, store
// what it gives. Between the steps nothing leaves L1.
#include "backend/cpu/program.h"

#include <algorithm>
#include <array>

#include "backend/cpu/float_type.h"
#include "backend/cpu/simd/scratch.h"
#include "backend/cpu/simd/targets.h"
#include "backend/cpu/tile_io.h"
#include "backend/cpu/tile_program.h"
#include "base/thread_pool.h"
#include "epilogue/base/error.h"

namespace epilogue::cpu {
namespace {

// All buffers of a tile together: half of a 48 KiB L1, so that what is loaded and stored fits too.
constexpr int64_t kTileBytes = 24 << 10;
// Elements per thread at least: through an activation they take a few times as long as waking one.
constexpr int64_t kGrain = 8192;
// One cache line of f32.
constexpr int64_t kLineFloats = 16;

thread_local simd::Scratch tile_scratch;

// How a call is cut.
struct Tiling {
  int64_t rows;  // of the call
  int64_t cols;
  int64_t tile_rows;
  int64_t tile_cols;
  int64_t row_tiles;
  int64_t col_tiles;
};

// Whether rows follow each other without a gap (or all elements are one).
bool is_flat(const MatrixView& view, int64_t cols) {
  return (view.col_stride == 1 && view.row_stride == cols) ||
         (view.col_stride == 0 && view.row_stride == 0);
}

class CpuProgram final : public ProgramKernel {
 public:
  explicit CpuProgram(const PointwiseProgram& program) : program_(program) {}

  void run(int64_t rows, int64_t cols, std::span<const MatrixView> inputs,
           std::span<const MatrixView> outputs) const override {
    require(inputs, outputs);
    if (rows == 0 || cols == 0) return;
    const auto flat = [cols](const MatrixView& view) { return is_flat(view, cols); };
    if (std::all_of(inputs.begin(), inputs.end(), flat) &&
        std::all_of(outputs.begin(), outputs.end(), flat)) {
      cols *= rows;
      rows = 1;
    }
    const Tiling t = tiling(rows, cols);
    const int64_t grain = std::max<int64_t>(1, kGrain / (t.tile_rows * t.tile_cols));
    parallel_for(t.row_tiles * t.col_tiles, grain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) run_tile(t, i, inputs, outputs);
    });
  }

  int threads(int64_t rows, int64_t cols) const override {
    if (rows == 0 || cols == 0) return 1;
    return parallel_pieces(rows * cols, kGrain);
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
    for (const std::span<const MatrixView> views : {inputs, outputs})
      for (const MatrixView& view : views)
        if (!has_float_type(view.dtype))
          throw Error("[program] expected f32, bf16 or f16, got " +
                      std::string(dtype_name(view.dtype)));
    for (const MatrixView& view : outputs)
      if (view.col_stride != 1) throw Error("[program] expected outputs with contiguous columns");
  }

  Tiling tiling(int64_t rows, int64_t cols) const {
    const int64_t each = kTileBytes / (program_.buffers() * int64_t{sizeof(float)});
    const int64_t elements = std::max(each / kLineFloats * kLineFloats, kLineFloats);
    Tiling t{rows, cols, 1, std::min(cols, elements), 0, 0};
    t.tile_rows = std::clamp<int64_t>(elements / t.tile_cols, 1, rows);
    t.row_tiles = (rows + t.tile_rows - 1) / t.tile_rows;
    t.col_tiles = (cols + t.tile_cols - 1) / t.tile_cols;
    return t;
  }

  void run_tile(const Tiling& t, int64_t index, std::span<const MatrixView> inputs,
                std::span<const MatrixView> outputs) const {
    const int64_t row = index / t.col_tiles * t.tile_rows;
    const int64_t column = index % t.col_tiles * t.tile_cols;
    const TileBounds block{row, std::min(t.tile_rows, t.rows - row), column,
                           std::min(t.tile_cols, t.cols - column)};
    const int64_t stride =
        (t.tile_rows * t.tile_cols + kLineFloats - 1) / kLineFloats * kLineFloats;
    const TileBuffers tiles = {tile_scratch.get(static_cast<size_t>(program_.buffers() * stride)),
                               stride};
    for (size_t i = 0; i < inputs.size(); ++i)
      load_tile(inputs[i], block, tiles[static_cast<int>(i)], block.columns);
    program_.run(tiles, static_cast<size_t>(block.rows * block.columns), simd::pointwise_kernels());
    for (size_t o = 0; o < outputs.size(); ++o)
      store_tile(outputs[o], block, tiles[program_.output_buffer(o)], block.columns);
  }

  TileProgram program_;
};

}  // namespace

std::unique_ptr<ProgramKernel> make_program(const PointwiseProgram& program) {
  return std::make_unique<CpuProgram>(program);
}

}  // namespace epilogue::cpu
