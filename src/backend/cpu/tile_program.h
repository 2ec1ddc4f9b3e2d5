// SPDX-License-Identifier: Apache-2.0
// A pointwise program prepared for tiles: its steps as kernels, its values in as few buffers as
// their lifetimes allow.
#pragma once

#include <cstdint>
#include <vector>

#include "backend/cpu/simd/program_tile.h"
#include "core/pointwise_program.h"

namespace epilogue::cpu {

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

  // Buffer b is the n floats at memory + b * stride.
  void run(float* memory, int64_t stride, size_t n, const simd::PointwiseKernels& kernels) const;

 private:
  int inputs_;
  int buffers_ = 0;
  std::vector<simd::TileStep> steps_;  // operands are buffers
  std::vector<int> results_;           // buffer of each step's result
  std::vector<int> outputs_;
};

}  // namespace epilogue::cpu
