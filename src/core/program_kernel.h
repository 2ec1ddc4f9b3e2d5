// SPDX-License-Identifier: Apache-2.0
// A pointwise program that runs alone: one kernel for a chain of pointwise ops.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "core/matrix_view.h"

namespace epilogue {

// Prepared once. Thread-safe.
class ProgramKernel {
 public:
  virtual ~ProgramKernel() = default;
  // One view per input and output of the program, f32, bf16 or f16; inputs may be masks (u8, bool)
  // too. They broadcast by strides of 0. An output that is one number per row is a matrix of one
  // column, one that is one number per column a matrix of one row. An output of elements may be an
  // input (the same elements at the same places); otherwise outputs overlap nothing. Results depend
  // on no number of threads.
  virtual void run(int64_t rows, int64_t cols, std::span<const MatrixView> inputs,
                   std::span<const MatrixView> outputs) const = 0;
  // How many threads share a call.
  virtual int threads(int64_t rows, int64_t cols) const = 0;
  // "epi_avx512": what the names of its kernel executions begin with.
  virtual std::string kernel_prefix() const = 0;
};

}  // namespace epilogue
