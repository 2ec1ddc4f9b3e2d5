// SPDX-License-Identifier: Apache-2.0
// Pointwise ops. Contiguous operands of one dtype go 16 bytes at a time; everything else element by
// element.
#include <algorithm>
#include <utility>

#include "backend/cuda/kernels/math.cuh"
#include "backend/cuda/kernels/walk.cuh"

namespace epilogue::cuda {
namespace {

constexpr int kVectorBytes = 16;
// Independent loads in flight per thread and operand.
constexpr int kUnroll = 2;

// F of the first operands and parameters.
template <class F, bool kFast, size_t... kOperand, size_t... kParameter>
__device__ float apply(const float* operands, const float* parameters,
                       std::index_sequence<kOperand...>, std::index_sequence<kParameter...>) {
  return F::template run<kFast>(operands[kOperand]..., parameters[kParameter]...);
}
template <class F, bool kFast, int kOperands, int kParameters>
__device__ float apply(const float* operands, const float* parameters) {
  return apply<F, kFast>(operands, parameters, std::make_index_sequence<kOperands>(),
                         std::make_index_sequence<kParameters>());
}
struct Parameters {
  float values[kMostPointwiseParameters];
};

// An operand of the vector kernel: contiguous memory, or a number.
template <class T>
struct Line {
  const T* data;
  float number;
};

template <class F, class T, int kOperands, int kParameters>
__global__ void __launch_bounds__(kThreads)
    pointwise_vector(T* out, Line<T> a, Line<T> b, Parameters parameters, int64_t n) {
  constexpr int kCount = kVectorBytes / sizeof(T);
  constexpr bool kFast = sizeof(T) == 2;
  const auto run = [&](float x, float y) {
    const float operands[] = {x, y};
    return apply<F, kFast, kOperands, kParameters>(operands, parameters.values);
  };
  const int64_t vectors = n / kCount;
  for (int64_t block = static_cast<int64_t>(blockIdx.x) * blockDim.x * kUnroll; block < vectors;
       block += static_cast<int64_t>(gridDim.x) * blockDim.x * kUnroll) {
    float va[kUnroll][kCount];
    float vb[kUnroll][kCount];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const int64_t v = block + u * blockDim.x + threadIdx.x;
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        va[u][i] = a.number;
        vb[u][i] = b.number;
      }
      if (v >= vectors) continue;
      if (a.data != nullptr) load_vector<T, kCount>(a.data + v * kCount, va[u]);
      if (b.data != nullptr) load_vector<T, kCount>(b.data + v * kCount, vb[u]);
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const int64_t v = block + u * blockDim.x + threadIdx.x;
      if (v >= vectors) continue;
#pragma unroll
      for (int i = 0; i < kCount; ++i) va[u][i] = run(va[u][i], vb[u][i]);
      store_vector<T, kCount>(va[u], out + v * kCount);
    }
  }
  if (blockIdx.x != 0) return;
  for (int64_t i = vectors * kCount + threadIdx.x; i < n; i += blockDim.x) {
    const float x = a.data != nullptr ? to_float(a.data[i]) : a.number;
    const float y = b.data != nullptr ? to_float(b.data[i]) : b.number;
    from_float(run(x, y), out[i]);
  }
}

__device__ float read(const Operand& operand, int64_t at) {
  return operand.data == nullptr ? operand.number : load_float(operand.data, operand.dtype, at);
}

template <class F, int kOperands, int kParameters>
__global__ void __launch_bounds__(kThreads)
    pointwise_strided(const __grid_constant__ Walk walk, Parameters parameters) {
  const Operand& out = walk.operands[0];
  for (int64_t i = first_item(); i < walk.numel; i += item_step()) {
    const Offsets o = offsets_of(walk, i);
    float operands[kOperands];
#pragma unroll
    for (int k = 0; k < kOperands; ++k) operands[k] = read(walk.operands[k + 1], o.of[k + 1]);
    store_float(apply<F, false, kOperands, kParameters>(operands, parameters.values), out.data,
                out.dtype, o.of[0]);
  }
}

struct SquaredDifference {
  template <bool kFast>
  __host__ __device__ static float run(float a, float b) {
    return (a - b) * (a - b);
  }
};
struct ScaledDifference {
  template <bool kFast>
  __host__ __device__ static float run(float a, float b, float c, float alpha) {
    return alpha * (a - b) * c;
  }
};

bool is_aligned(const void* data) { return reinterpret_cast<uintptr_t>(data) % kVectorBytes == 0; }

// Whether an operand is a number, or contiguous memory of T that vectors may touch.
bool is_line(const Walk& walk, const Operand& operand, DType dtype) {
  if (operand.data == nullptr) return true;
  return operand.dtype == dtype && is_aligned(operand.data) &&
         (walk.numel == 1 || (walk.rank == 1 && operand.strides[0] == 1));
}

bool is_vector_call(const Walk& walk) {
  const DType dtype = walk.operands[0].dtype;
  if (dtype == DType::boolean) return false;
  for (int k = 0; k <= walk.inputs; ++k)
    if (!is_line(walk, walk.operands[k], dtype)) return false;
  return true;
}

template <class F, int kOperands, int kParameters>
cudaError_t launch(const Parameters& parameters, const Walk& walk, cudaStream_t stream) {
  if (walk.numel == 0) return cudaSuccess;
  if (kOperands > 2 || !is_vector_call(walk)) {
    pointwise_strided<F, kOperands, kParameters>
        <<<blocks_for(walk.numel), kThreads, 0, stream>>>(walk, parameters);
    return cudaGetLastError();
  }
  return for_float_type(walk.operands[0].dtype, [&]<class T>(T) {
    const auto line = [&](int k) {
      return k > walk.inputs
                 ? Line<T>{nullptr, 0}
                 : Line<T>{static_cast<const T*>(walk.operands[k].data), walk.operands[k].number};
    };
    constexpr int64_t kPerThread = kVectorBytes / sizeof(T) * kUnroll;
    const unsigned blocks = blocks_for((walk.numel + kPerThread - 1) / kPerThread);
    if constexpr (kOperands <= 2)
      pointwise_vector<F, T, kOperands, kParameters><<<blocks, kThreads, 0, stream>>>(
          static_cast<T*>(walk.operands[0].data), line(1), line(2), parameters, walk.numel);
    return cudaGetLastError();
  });
}

using Launch = cudaError_t (*)(const Parameters&, const Walk&, cudaStream_t);

template <size_t kIndex>
constexpr Launch launch_of() {
  constexpr PointwiseFn kFn = kPointwiseTable[kIndex].fn;
  if constexpr (is_elementwise(kFn)) {
    using F = decltype(formula(Function<kFn>()));
    return launch<F, operand_count(kFn), parameter_count(pointwise_row(kFn))>;
  } else {
    return nullptr;  // not of one element
  }
}
template <size_t... kIndex>
constexpr std::array<Launch, kPointwiseFns> launches(std::index_sequence<kIndex...>) {
  return {launch_of<kIndex>()...};
}

}  // namespace

cudaError_t launch_pointwise(PointwiseFn fn, const PointwiseParameters& parameters,
                             const Walk& walk, cudaStream_t stream) {
  static constexpr std::array<Launch, kPointwiseFns> kLaunches = launches(PointwiseFnSequence());
  const Launch launch_fn = kLaunches[static_cast<size_t>(fn)];
  if (launch_fn == nullptr) return cudaErrorInvalidValue;
  Parameters values;
  std::copy(parameters.begin(), parameters.end(), values.values);
  return launch_fn(values, walk, stream);
}

cudaError_t launch_squared_difference(const Walk& walk, cudaStream_t stream) {
  return launch<SquaredDifference, 2, 0>({}, walk, stream);
}
cudaError_t launch_scaled_difference(float alpha, const Walk& walk, cudaStream_t stream) {
  return launch<ScaledDifference, 3, 1>({{alpha}}, walk, stream);
}

}  // namespace epilogue::cuda
