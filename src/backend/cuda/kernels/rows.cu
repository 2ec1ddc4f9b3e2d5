// SPDX-License-Identifier: Apache-2.0
// Kernels that give a block to each row: softmax, log_softmax and the norms, with their gradients.
// Sums are f32; a row is read from memory once and from the caches after that.
#include <algorithm>

#include "backend/cuda/kernels/reduce.cuh"

namespace epilogue::cuda {
namespace {

// Blocks in x, which may exceed what a grid allows in y.
unsigned row_blocks(int64_t rows) {
  return static_cast<unsigned>(std::min<int64_t>(rows, int64_t{1} << 30));
}

// softmax: exp(x - max) / sum(exp(x - max)); log_softmax: x - max - log(sum(exp(x - max))).
template <bool kLog>
__global__ void __launch_bounds__(kRowThreads)
    softmax_kernel(Lines lines, const void* in, DType in_dtype, void* out, DType out_dtype) {
  __shared__ float shared[kRowThreads / kWarp];
  for (int64_t line = blockIdx.x; line < lines.count; line += gridDim.x) {
    const int64_t first = line / lines.step * lines.n * lines.step + line % lines.step;
    float largest = LargestOf::kNothing;
    for (int64_t j = threadIdx.x; j < lines.n; j += kRowThreads)
      largest = LargestOf::join(largest, load_float(in, in_dtype, first + j * lines.step));
    largest = over_block<LargestOf>(largest, shared);
    float sum = 0;
    for (int64_t j = threadIdx.x; j < lines.n; j += kRowThreads)
      sum += expf(load_float(in, in_dtype, first + j * lines.step) - largest);
    sum = over_block<SumOf>(sum, shared);
    const float log_sum = kLog ? logf(sum) : 0.0f;
    for (int64_t j = threadIdx.x; j < lines.n; j += kRowThreads) {
      const int64_t i = first + j * lines.step;
      const float shifted = load_float(in, in_dtype, i) - largest;
      store_float(kLog ? shifted - log_sum : expf(shifted) / sum, out, out_dtype, i);
    }
  }
}

// softmax: y (g - sum(g y)); log_softmax: g - exp(y) sum(g).
template <bool kLog>
__global__ void __launch_bounds__(kRowThreads)
    softmax_backward_kernel(Lines lines, const void* grad, const void* output, DType dtype,
                            void* out, DType out_dtype) {
  __shared__ float shared[kRowThreads / kWarp];
  for (int64_t line = blockIdx.x; line < lines.count; line += gridDim.x) {
    const int64_t first = line / lines.step * lines.n * lines.step + line % lines.step;
    float sum = 0;
    for (int64_t j = threadIdx.x; j < lines.n; j += kRowThreads) {
      const int64_t i = first + j * lines.step;
      const float g = load_float(grad, dtype, i);
      sum += kLog ? g : g * load_float(output, dtype, i);
    }
    sum = over_block<SumOf>(sum, shared);
    for (int64_t j = threadIdx.x; j < lines.n; j += kRowThreads) {
      const int64_t i = first + j * lines.step;
      const float g = load_float(grad, dtype, i);
      const float y = load_float(output, dtype, i);
      store_float(kLog ? g - expf(y) * sum : y * (g - sum), out, out_dtype, i);
    }
  }
}

// y = (x - mean) rstd weight + bias; the variance is that of x - mean, in a second pass.
__global__ void __launch_bounds__(kRowThreads) norm_kernel(const __grid_constant__ NormCall c) {
  __shared__ float shared[kRowThreads / kWarp];
  const float per_element = 1.0f / static_cast<float>(c.n);
  for (int64_t row = blockIdx.x; row < c.rows; row += gridDim.x) {
    const int64_t first = row * c.n;
    const int64_t from = row * c.x_stride;
    float mean = 0;
    if (c.subtracts_mean) {
      for (int64_t j = threadIdx.x; j < c.n; j += kRowThreads)
        mean += load_float(c.x, c.dtype, from + j);
      mean = over_block<SumOf>(mean, shared) * per_element;
    }
    float squares = 0;
    for (int64_t j = threadIdx.x; j < c.n; j += kRowThreads) {
      const float d = load_float(c.x, c.dtype, from + j) - mean;
      squares += d * d;
    }
    squares = over_block<SumOf>(squares, shared);
    const float rstd = 1.0f / sqrtf(squares * per_element + c.eps);
    for (int64_t j = threadIdx.x; j < c.n; j += kRowThreads) {
      float y = (load_float(c.x, c.dtype, from + j) - mean) * rstd;
      if (c.weight != nullptr) y *= load_float(c.weight, c.parameter_dtype, j);
      if (c.bias != nullptr) y += load_float(c.bias, c.parameter_dtype, j);
      store_float(y, c.y, c.dtype, first + j);
    }
    if (threadIdx.x != 0) continue;
    if (c.mean != nullptr) c.mean[row] = mean;
    if (c.rstd != nullptr) c.rstd[row] = rstd;
  }
}

// g = dy weight, h = (x - mean) rstd:  dx = rstd (g - mean(g) - h mean(g h)); rms_norm has no mean.
__global__ void __launch_bounds__(kRowThreads)
    norm_backward_kernel(const __grid_constant__ NormBackwardCall c) {
  __shared__ float shared[kRowThreads / kWarp];
  const float per_element = 1.0f / static_cast<float>(c.n);
  const auto g_at = [&](int64_t first, int64_t j) {
    const float dy = load_float(c.dy, c.dtype, first + j);
    return c.weight == nullptr ? dy : dy * load_float(c.weight, c.parameter_dtype, j);
  };
  for (int64_t row = blockIdx.x; row < c.rows; row += gridDim.x) {
    const int64_t first = row * c.n;
    const float mean = c.mean != nullptr ? c.mean[row] : 0.0f;
    const float rstd = c.rstd[row];
    float sum_g = 0;
    float sum_gh = 0;
    for (int64_t j = threadIdx.x; j < c.n; j += kRowThreads) {
      const float g = g_at(first, j);
      sum_g += g;
      sum_gh += g * (load_float(c.x, c.dtype, first + j) - mean) * rstd;
    }
    sum_gh = over_block<SumOf>(sum_gh, shared) * per_element;
    sum_g = c.mean != nullptr ? over_block<SumOf>(sum_g, shared) * per_element : 0.0f;
    for (int64_t j = threadIdx.x; j < c.n; j += kRowThreads) {
      const float h = (load_float(c.x, c.dtype, first + j) - mean) * rstd;
      store_float(rstd * (g_at(first, j) - sum_g - h * sum_gh), c.dx, c.dtype, first + j);
    }
  }
}

constexpr int kColumns = kWarp;
constexpr int kColumnRows = kRowThreads / kColumns;

// dweight = sum over rows of dy h, dbias = sum over rows of dy.
__global__ void __launch_bounds__(kRowThreads)
    norm_parameters_kernel(const __grid_constant__ NormBackwardCall c) {
  __shared__ float weights[kColumnRows][kColumns];
  __shared__ float biases[kColumnRows][kColumns];
  const int column = threadIdx.x % kColumns;
  const int thread_row = threadIdx.x / kColumns;
  const int64_t j = static_cast<int64_t>(blockIdx.x) * kColumns + column;
  float weight = 0;
  float bias = 0;
  for (int64_t row = thread_row; j < c.n && row < c.rows; row += kColumnRows) {
    const float dy = load_float(c.dy, c.dtype, row * c.n + j);
    const float mean = c.mean != nullptr ? c.mean[row] : 0.0f;
    weight += dy * (load_float(c.x, c.dtype, row * c.n + j) - mean) * c.rstd[row];
    bias += dy;
  }
  weights[thread_row][column] = weight;
  biases[thread_row][column] = bias;
  __syncthreads();
  if (thread_row != 0 || j >= c.n) return;
  for (int r = 1; r < kColumnRows; ++r) {
    weight += weights[r][column];
    bias += biases[r][column];
  }
  if (c.dweight != nullptr) store_float(weight, c.dweight, c.parameter_dtype, j);
  if (c.dbias != nullptr) store_float(bias, c.dbias, c.parameter_dtype, j);
}

}  // namespace

cudaError_t launch_softmax(bool is_log, const Lines& lines, const void* in, DType in_dtype,
                           void* out, DType out_dtype, cudaStream_t stream) {
  if (lines.count == 0 || lines.n == 0) return cudaSuccess;
  auto* const kernel = is_log ? softmax_kernel<true> : softmax_kernel<false>;
  kernel<<<row_blocks(lines.count), kRowThreads, 0, stream>>>(lines, in, in_dtype, out, out_dtype);
  return cudaGetLastError();
}

cudaError_t launch_softmax_backward(bool is_log, const Lines& lines, const void* grad,
                                    const void* output, DType dtype, void* out, DType out_dtype,
                                    cudaStream_t stream) {
  if (lines.count == 0 || lines.n == 0) return cudaSuccess;
  auto* const kernel = is_log ? softmax_backward_kernel<true> : softmax_backward_kernel<false>;
  kernel<<<row_blocks(lines.count), kRowThreads, 0, stream>>>(lines, grad, output, dtype, out,
                                                              out_dtype);
  return cudaGetLastError();
}

cudaError_t launch_norm(const NormCall& call, cudaStream_t stream) {
  if (call.rows == 0) return cudaSuccess;
  norm_kernel<<<row_blocks(call.rows), kRowThreads, 0, stream>>>(call);
  return cudaGetLastError();
}

cudaError_t launch_norm_backward(const NormBackwardCall& call, cudaStream_t stream) {
  if (call.dx != nullptr && call.rows != 0)
    norm_backward_kernel<<<row_blocks(call.rows), kRowThreads, 0, stream>>>(call);
  if ((call.dweight != nullptr || call.dbias != nullptr) && call.n != 0) {
    const auto blocks = static_cast<unsigned>((call.n + kColumns - 1) / kColumns);
    norm_parameters_kernel<<<blocks, kRowThreads, 0, stream>>>(call);
  }
  return cudaGetLastError();
}

}  // namespace epilogue::cuda
