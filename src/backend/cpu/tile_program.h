// SPDX-License-Identifier: Apache-2.0
// A pointwise program prepared for tiles: its steps as kernels, its values in as few buffers as
// their lifetimes allow.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "backend/cpu/simd/program_tile.h"
#include "core/pointwise_program.h"

namespace epilogue::cpu {

// Where a program's buffers lie: b at memory + b * stride, but the first `products` where the
// products of a GEMM left them.
struct TileBuffers {
  float* memory = nullptr;
  int64_t stride = 0;
  int products = 0;
  std::array<float*, 2> product{};

  float* operator[](int b) const {
    return b < products ? product[static_cast<size_t>(b)] : memory + b * stride;
  }
};

class TileProgram {
 public:
  // Throws Error as verify() does.
  explicit TileProgram(const PointwiseProgram& program);

  int inputs() const { return inputs_; }
  // Buffers that run() needs: the first inputs() are filled by the caller and overwritten.
  int buffers() const { return buffers_; }
  // Where output i lies after run().
  int output_buffer(size_t i) const { return outputs_[i]; }
  size_t outputs() const { return outputs_.size(); }
  bool is_empty() const { return steps_.empty(); }

  // On the n floats of each buffer.
  void run(const TileBuffers& buffers, size_t n, const simd::PointwiseKernels& kernels) const;

 private:
  int inputs_;
  int buffers_ = 0;
  std::vector<simd::TileStep> steps_;  // operands are buffers
  std::vector<int> results_;           // buffer of each step's result
  std::vector<int> outputs_;
};

}  // namespace epilogue::cpu
