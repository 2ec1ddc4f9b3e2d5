// SPDX-License-Identifier: Apache-2.0
// Pointwise ops. Contiguous operands of one dtype go 16 bytes at a time; everything else element by
// element.
#include "backend/cuda/kernels/math.cuh"
#include "backend/cuda/kernels/walk.cuh"

namespace epilogue::cuda {
namespace {

constexpr int kVectorBytes = 16;
// Independent loads in flight per thread and operand.
constexpr int kUnroll = 2;

// An operand of the vector kernel: contiguous memory, or a number.
template <class T>
struct Line {
  const T* data;
  float number;
};

template <class F, class T>
__global__ void __launch_bounds__(kThreads)
    pointwise_vector(T* out, Line<T> a, Line<T> b, float alpha, int64_t n) {
  constexpr int kCount = kVectorBytes / sizeof(T);
  constexpr bool kFast = sizeof(T) == 2;
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
      for (int i = 0; i < kCount; ++i) va[u][i] = F::template run<kFast>(va[u][i], vb[u][i], alpha);
      store_vector<T, kCount>(va[u], out + v * kCount);
    }
  }
  if (blockIdx.x != 0) return;
  for (int64_t i = vectors * kCount + threadIdx.x; i < n; i += blockDim.x) {
    const float x = a.data != nullptr ? to_float(a.data[i]) : a.number;
    const float y = b.data != nullptr ? to_float(b.data[i]) : b.number;
    from_float(F::template run<kFast>(x, y, alpha), out[i]);
  }
}

__device__ float read(const Operand& operand, int64_t at) {
  return operand.data == nullptr ? operand.number : load_float(operand.data, operand.dtype, at);
}

template <class F>
__global__ void __launch_bounds__(kThreads)
    pointwise_strided(const __grid_constant__ Walk walk, float alpha) {
  const Operand& out = walk.operands[0];
  for (int64_t i = first_item(); i < walk.numel; i += item_step()) {
    const Offsets o = offsets_of(walk, i);
    const float a = read(walk.operands[1], o.of[1]);
    const float b = walk.inputs > 1 ? read(walk.operands[2], o.of[2]) : 0.0f;
    if constexpr (F::kInputs == 3) {
      const float c = read(walk.operands[3], o.of[3]);
      store_float(F::run(a, b, c, alpha), out.data, out.dtype, o.of[0]);
    } else {
      store_float(F::Function::template run<false>(a, b, alpha), out.data, out.dtype, o.of[0]);
    }
  }
}

// What pointwise_strided runs.
template <class F>
struct UpToTwo {
  using Function = F;
  static constexpr int kInputs = 2;
};
struct SquaredDifference {
  template <bool kFast>
  __host__ __device__ static float run(float a, float b, float) {
    return (a - b) * (a - b);
  }
};
struct ScaledDifference {
  static constexpr int kInputs = 3;
  __device__ static float run(float a, float b, float c, float alpha) {
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
  for (int k = 0; k <= walk.inputs; ++k)
    if (!is_line(walk, walk.operands[k], dtype)) return false;
  return true;
}

template <class F>
cudaError_t launch_strided(float alpha, const Walk& walk, cudaStream_t stream) {
  pointwise_strided<F><<<blocks_for(walk.numel), kThreads, 0, stream>>>(walk, alpha);
  return cudaGetLastError();
}

template <class F>
cudaError_t launch(float alpha, const Walk& walk, cudaStream_t stream) {
  if (walk.numel == 0) return cudaSuccess;
  if (!is_vector_call(walk)) return launch_strided<UpToTwo<F>>(alpha, walk, stream);
  return for_float_type(walk.operands[0].dtype, [&]<class T>(T) {
    const auto line = [&](int k) {
      return k > walk.inputs
                 ? Line<T>{nullptr, 0}
                 : Line<T>{static_cast<const T*>(walk.operands[k].data), walk.operands[k].number};
    };
    constexpr int64_t kPerThread = kVectorBytes / sizeof(T) * kUnroll;
    const unsigned blocks = blocks_for((walk.numel + kPerThread - 1) / kPerThread);
    pointwise_vector<F, T><<<blocks, kThreads, 0, stream>>>(static_cast<T*>(walk.operands[0].data),
                                                            line(1), line(2), alpha, walk.numel);
    return cudaGetLastError();
  });
}

}  // namespace

cudaError_t launch_pointwise(PointwiseFn fn, float alpha, const Walk& walk, cudaStream_t stream) {
  switch (fn) {
    case PointwiseFn::neg: return launch<Neg>(alpha, walk, stream);
    case PointwiseFn::relu: return launch<Relu>(alpha, walk, stream);
    case PointwiseFn::sigmoid: return launch<Sigmoid>(alpha, walk, stream);
    case PointwiseFn::tanh: return launch<Tanh>(alpha, walk, stream);
    case PointwiseFn::exp: return launch<Exp>(alpha, walk, stream);
    case PointwiseFn::gelu_tanh: return launch<GeluTanh>(alpha, walk, stream);
    case PointwiseFn::gelu_erf: return launch<GeluErf>(alpha, walk, stream);
    case PointwiseFn::silu: return launch<Silu>(alpha, walk, stream);
    case PointwiseFn::log: return launch<Log>(alpha, walk, stream);
    case PointwiseFn::rsqrt: return launch<Rsqrt>(alpha, walk, stream);
    case PointwiseFn::add: return launch<Add>(alpha, walk, stream);
    case PointwiseFn::sub: return launch<Sub>(alpha, walk, stream);
    case PointwiseFn::mul: return launch<Mul>(alpha, walk, stream);
    case PointwiseFn::div: return launch<Div>(alpha, walk, stream);
    case PointwiseFn::relu_backward: return launch<ReluBackward>(alpha, walk, stream);
    case PointwiseFn::sigmoid_backward: return launch<SigmoidBackward>(alpha, walk, stream);
    case PointwiseFn::tanh_backward: return launch<TanhBackward>(alpha, walk, stream);
    case PointwiseFn::gelu_tanh_backward: return launch<GeluTanhBackward>(alpha, walk, stream);
    case PointwiseFn::gelu_erf_backward: return launch<GeluErfBackward>(alpha, walk, stream);
    case PointwiseFn::silu_backward: return launch<SiluBackward>(alpha, walk, stream);
    case PointwiseFn::row_sum:
    case PointwiseFn::row_mean:
    case PointwiseFn::row_max:
    case PointwiseFn::column_sum: break;  // not of one element
  }
  return cudaErrorInvalidValue;
}

cudaError_t launch_squared_difference(const Walk& walk, cudaStream_t stream) {
  return launch<SquaredDifference>(1, walk, stream);
}
cudaError_t launch_scaled_difference(float alpha, const Walk& walk, cudaStream_t stream) {
  if (walk.numel == 0) return cudaSuccess;
  return launch_strided<ScaledDifference>(alpha, walk, stream);
}

}  // namespace epilogue::cuda
