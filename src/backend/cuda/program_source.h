// SPDX-License-Identifier: Apache-2.0
// Pointwise programs as CUDA source. Text in, text out: no device and no compiler take part.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/pointwise_program.h"
#include "core/row_chain.h"

namespace epilogue::cuda {

inline constexpr int kProgramThreads = 256;  // of a block

// How an input is read. vector: neighbours in a row are neighbours in memory. per_row: one element
// for a whole row (or for all). strided: anything else, element by element.
enum class Access : uint8_t { vector, per_row, strided };

// What a kernel is specialised for beside the program itself.
struct ProgramVariant {
  struct Input {
    DType dtype = DType::f32;
    Access access = Access::vector;
    bool operator==(const Input&) const = default;
  };
  std::vector<Input> inputs;
  std::vector<DType> outputs;
  int width = 1;            // elements per thread: 8, or 1 where memory or sizes do not fit that
  bool wide_index = false;  // 2^32 threads or more
  bool operator==(const ProgramVariant&) const = default;
};

// The variant for these views: f32, bf16 or f16, outputs with unit column strides.
ProgramVariant make_variant(int64_t rows, int64_t cols, std::span<const MatrixView> inputs,
                            std::span<const MatrixView> outputs);

// "epi_cuda_fused_gelu_mul_bf16", by ATen's names of the ops: at most 120 characters.
std::string program_kernel_name(const PointwiseProgram& program, const ProgramVariant& variant);

// A translation unit with one kernel of that name:
//   (Index vectors, Index vectors_per_row, then for each input: data, row stride[, column stride],
//    then for each output: data, row stride)
// Index is unsigned, or unsigned long long where wide_index is set; strides are long long elements.
std::string program_source(const PointwiseProgram& program, const ProgramVariant& variant);

// What every source begins with: the names of the functions, then device_header_text().
std::string_view device_text();
// The texts of kernels/elements.cuh and kernels/math.cuh. (Generated at build time.)
std::string_view device_header_text();

}  // namespace epilogue::cuda
