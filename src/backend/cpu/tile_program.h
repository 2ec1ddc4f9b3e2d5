// SPDX-License-Identifier: Apache-2.0
// A pointwise program prepared for tiles: its steps as kernels, its values in as few buffers as
// their lifetimes allow. Values that are one number per row have short buffers of their own.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "backend/cpu/simd/pointwise.h"
#include "core/pointwise_program.h"

namespace epilogue::cpu {

// Where a program's buffers lie: b at memory + b * stride, but the first `products` where the
// products of a GEMM left them. Buffers of rows' numbers count down from -1.
struct TileBuffers {
  float* memory = nullptr;
  int64_t stride = 0;
  int products = 0;
  std::array<float*, 2> product{};
  float* rows = nullptr;
  int64_t rows_stride = 0;

  float* operator[](int b) const {
    if (b < 0) return rows + (-1 - b) * rows_stride;
    return b < products ? product[static_cast<size_t>(b)] : memory + b * stride;
  }
};

// A tile: rows that follow each other without a gap. Where rows are reduced, whole rows.
struct TileSize {
  int64_t rows;
  int64_t columns;
};

class TileProgram {
 public:
  // Throws Error as verify() does.
  explicit TileProgram(const PointwiseProgram& program);

  int inputs() const { return inputs_; }
  // Buffers that run() needs, of a tile's elements: the first inputs() are filled by the caller and
  // overwritten. And of one number per row.
  int buffers() const { return buffers_; }
  int row_buffers() const { return row_buffers_; }
  bool has_row_reductions() const { return has_row_reductions_; }
  bool has_column_sums() const { return has_column_sums_; }

  struct Output {
    int buffer;  // after run(); of a column sum: what is to be summed, which the caller does
    Extent extent;
  };
  const Output& output(size_t i) const { return outputs_[i]; }
  size_t outputs() const { return outputs_.size(); }

  void run(const TileBuffers& buffers, const TileSize& size,
           const simd::PointwiseKernels& kernels) const;

 private:
  struct Step {
    // each_row: a row's number meets its elements.
    enum class Over : uint8_t { elements, rows, each_row, reduction };
    Over over = Over::elements;
    PointwiseStep step;  // operands are buffers; bit k of `constants`: k is the constant
    unsigned constants = 0;
    int result = 0;  // buffer

    bool is_constant(size_t k) const { return (constants >> k & 1) != 0; }
  };
  using Operands = std::array<simd::TileOperand, kMostPointwiseOperands>;
  static Operands constants_of(const Step& step);
  void allocate(const PointwiseProgram& program);
  static void run_each_row(const Step& step, const TileBuffers& buffers, const TileSize& size,
                           const simd::PointwiseKernels& kernels);
  static void reduce_rows(const Step& step, const TileBuffers& buffers, const TileSize& size);

  int inputs_;
  int buffers_ = 0;
  int row_buffers_ = 0;
  bool has_row_reductions_;
  bool has_column_sums_;
  std::vector<Step> steps_;
  std::vector<Output> outputs_;
};

}  // namespace epilogue::cpu
