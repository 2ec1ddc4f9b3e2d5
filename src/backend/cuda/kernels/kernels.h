// SPDX-License-Identifier: Apache-2.0
// The CUDA kernels of ops, as functions that launch them: plain pointers and sizes, no tensors.
// Pointers are the device's; everything runs in `stream`. Each returns the launch's status.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstdint>

#include "core/pointwise_program.h"
#include "epilogue/dtype.h"

namespace epilogue::cuda {

inline constexpr int kMaxOperands = 4;  // a result and up to three inputs
inline constexpr int kMaxDims = 8;

// An operand of a walk over elements; strides in elements, 0 broadcasts.
struct Operand {
  void* data = nullptr;
  DType dtype = DType::f32;
  std::array<int64_t, kMaxDims> strides = {};
  // A number instead of memory (data is null then).
  float number = 0;
};

// The common shape of all operands, last dimension fastest. operands[0] is the result.
struct Walk {
  int rank = 1;
  int inputs = 0;
  int64_t numel = 0;
  std::array<int64_t, kMaxDims> sizes = {};
  std::array<Operand, kMaxOperands> operands;
};

// result = fn of the inputs, an elementwise function; f32 arithmetic on f32, bf16,
// f16 and booleans.
cudaError_t launch_pointwise(PointwiseFn fn, const PointwiseParameters& parameters,
                             const Walk& walk, cudaStream_t stream);
// (a - b)^2, and alpha (a - b) c.
cudaError_t launch_squared_difference(const Walk& walk, cudaStream_t stream);
cudaError_t launch_scaled_difference(float alpha, const Walk& walk, cudaStream_t stream);

// result = input, converted; any dtypes. Meaning: cast_element (src/ops/element_cast.h).
cudaError_t launch_copy(const Walk& walk, cudaStream_t stream);
// Every element of operands[0] = value, converted.
cudaError_t launch_fill(double value, const Walk& walk, cudaStream_t stream);

// A matrix whose results are sums: `outs` of them, over `count` elements each, element (o, i) at
// offsets that two walks give. Kept dimensions: strides[0], reduced ones: strides[1].
struct ReduceShape {
  int64_t outs = 1;
  int64_t count = 1;
  int kept_rank = 0;
  int reduced_rank = 0;
  std::array<int64_t, kMaxDims> kept_sizes = {};
  std::array<int64_t, kMaxDims> reduced_sizes = {};
};
struct ReduceOperand {
  const void* data = nullptr;
  DType dtype = DType::f32;
  std::array<int64_t, kMaxDims> kept_strides = {};
  std::array<int64_t, kMaxDims> reduced_strides = {};
};
// f32 numbers that launch_sum needs beside its operands; 0: none.
int64_t sum_scratch_floats(const ReduceShape& shape, const ReduceOperand& a);
// out[o] = scale * sum over i of a, or of (a - b)^2 where b.data is set. out is contiguous.
cudaError_t launch_sum(const ReduceShape& shape, const ReduceOperand& a, const ReduceOperand& b,
                       float scale, void* out, DType out_dtype, float* scratch,
                       cudaStream_t stream);

// Lines of n elements, `step` apart; line l begins at l / step * n * step + l % step.
struct Lines {
  int64_t count = 0;
  int64_t n = 0;
  int64_t step = 1;
};
// softmax or log_softmax; the result may have another floating dtype than the input.
cudaError_t launch_softmax(bool is_log, const Lines& lines, const void* in, DType in_dtype,
                           void* out, DType out_dtype, cudaStream_t stream);
cudaError_t launch_softmax_backward(bool is_log, const Lines& lines, const void* grad,
                                    const void* output, DType dtype, void* out, DType out_dtype,
                                    cudaStream_t stream);

// Rows of n elements. weight and bias [n] may be null; they have `parameter_dtype`.
struct NormCall {
  int64_t rows = 0;
  int64_t n = 0;
  float eps = 0;
  bool subtracts_mean = false;  // layer_norm; else rms_norm
  DType dtype = DType::f32;
  const void* x = nullptr;
  int64_t x_stride = 0;  // elements from row to row; of y: n
  const void* weight = nullptr;
  const void* bias = nullptr;
  DType parameter_dtype = DType::f32;
  void* y = nullptr;
  float* mean = nullptr;  // of every row, may be null; rms_norm has none
  float* rstd = nullptr;  // may be null
};
cudaError_t launch_norm(const NormCall& call, cudaStream_t stream);

struct NormBackwardCall {
  int64_t rows = 0;
  int64_t n = 0;
  DType dtype = DType::f32;
  const void* dy = nullptr;
  const void* x = nullptr;
  const void* weight = nullptr;  // may be null
  DType parameter_dtype = DType::f32;
  const float* mean = nullptr;  // null: rms_norm
  const float* rstd = nullptr;
  void* dx = nullptr;       // each result may be null
  void* dweight = nullptr;  // parameter_dtype
  void* dbias = nullptr;
};
cudaError_t launch_norm_backward(const NormBackwardCall& call, cudaStream_t stream);

// Losses over rows of classes. reduction: 0 none, 1 mean, 2 sum. A target outside [0, classes) that
// is not ignore_index makes its loss (and a reduced loss) NaN: a kernel cannot throw.
struct ClassCall {
  int64_t n = 0;
  int64_t classes = 0;
  int64_t row_stride = 0;  // of self
  int64_t class_stride = 0;
  int64_t target_stride = 0;
  int64_t ignore_index = 0;
  int reduction = 1;
  DType dtype = DType::f32;    // of self and results
  const void* self = nullptr;  // log-probabilities, or logits
  const int64_t* target = nullptr;
  const void* weight = nullptr;  // may be null; contiguous
  DType weight_dtype = DType::f32;
  void* out = nullptr;            // forward: [n] or []; backward: [n, classes]
  float* total_weight = nullptr;  // forward: written; backward: read
  const void* grad = nullptr;     // backward
  DType grad_dtype = DType::f32;
  int64_t grad_stride = 0;
};

cudaError_t launch_nll(const ClassCall& call, cudaStream_t stream);
cudaError_t launch_nll_backward(const ClassCall& call, cudaStream_t stream);

// Cross entropy of class targets (ops/cross_entropy_loss.h).
struct CrossEntropyCall : ClassCall {
  float kept = 1;           // 1 - smoothing
  float spread = 0;         // smoothing / classes
  float* stats = nullptr;   // [n, 2], largest and log of the sum; backward: read
  float* losses = nullptr;  // forward: [n], scratch
};
cudaError_t launch_cross_entropy(const CrossEntropyCall& call, cudaStream_t stream);
cudaError_t launch_cross_entropy_backward(const CrossEntropyCall& call, cudaStream_t stream);

}  // namespace epilogue::cuda
