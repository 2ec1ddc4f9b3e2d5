// SPDX-License-Identifier: Apache-2.0
// One block computes tiles of 128 rows x 128 hidden columns, again and again (persistent):
//
//   producer warp     x, gate and up tiles [128, 64] -> ring of 4 stages in shared memory (TMA)
//   2 consumer        64 rows each: sums of gate and of up in the same thread's registers (wgmma),
//   warpgroups        then act(gate) * up, from registers to memory
//
// Gate and up lie one behind the other in a stage: one product of 64 x 256 sums reads both, so that
// a thread has the sums of gate and of up for the same column. Neither of them is ever written: the
// result alone reaches memory. While the consumers finish a tile the producer fills the ring for
// the next one. In a cluster of two each block fetches half of the weights' tiles and sends it to
// both.
#include "backend/cuda/kernels/gated_sm90.h"

#include <algorithm>
#include <array>
#include <mutex>

#include "backend/cuda/kernels/math.cuh"
#include "backend/cuda/kernels/sm90.cuh"
#include "backend/cuda/kernels/sm90_product.cuh"

namespace epilogue::cuda {
namespace {

constexpr int kTileRows = 128;
constexpr int kTileHidden = 128;
constexpr int kTileK = 64;  // 128 bytes: one swizzled row
constexpr int kStepK = 16;  // of one product
constexpr int kStages = 4;
constexpr int kWarpgroup = 128;
constexpr int kConsumers = 2;  // warpgroups
constexpr int kBlockThreads = (1 + kConsumers) * kWarpgroup;
constexpr int kConsumerWarps = kConsumers * 4;
// 65536 registers: 128 threads of the producer, 256 of the consumers.
constexpr int kProducerRegisters = 40;
constexpr int kConsumerRegisters = 232;

constexpr int kTileElements = kTileRows * kTileK;
constexpr uint32_t kStageBytes = 3 * kTileElements * 2;

// Tiles begin at multiples of 1024 bytes: the swizzle counts rows from there.
struct Shared {
  unsigned short x[kStages][kTileElements];
  unsigned short weights[kStages][2 * kTileElements];  // gate, then up
  uint64_t full[kStages];
  uint64_t empty[kStages];
};
constexpr int kSharedAlignment = 1024;
constexpr int kSharedBytes = sizeof(Shared) + kSharedAlignment;

struct Sizes {
  int rows;
  int hidden;
  int k;
  int row_tiles;  // of a cluster: each has kCluster * kTileRows rows
  int column_tiles;
};

// Which stage of the ring comes next, and the parity of its phase.
struct RingPosition {
  int stage = 0;
  uint32_t parity = 0;
  __device__ void advance() {
    if (++stage < kStages) return;
    stage = 0;
    parity ^= 1;
  }
};

template <int kCluster>
__device__ void produce(Shared& shared, const CUtensorMap& x_map, const CUtensorMap& gate_map,
                        const CUtensorMap& up_map, const Sizes& sizes, int64_t first_tile,
                        int64_t tile_step) {
  constexpr int kPart = kTileHidden / kCluster;  // rows of weights that this block fetches
  constexpr auto kAll = static_cast<uint16_t>((1 << kCluster) - 1);
  const auto block = static_cast<int>(kCluster == 1 ? 0 : sm90::block_in_cluster());
  RingPosition at;
  const int64_t tiles = static_cast<int64_t>(sizes.row_tiles) * sizes.column_tiles;
  for (int64_t index = first_tile; index < tiles; index += tile_step) {
    const GatedTile tile = gated_tile(index, sizes.row_tiles, sizes.column_tiles);
    const auto row = static_cast<int>(tile.row * kCluster + block) * kTileRows;
    const auto column = static_cast<int>(tile.column) * kTileHidden + block * kPart;
    for (int k = 0; k < sizes.k; k += kTileK, at.advance()) {
      sm90::wait(&shared.empty[at.stage], at.parity ^ 1);
      uint64_t* const full = &shared.full[at.stage];
      sm90::arrive_expecting(full, kStageBytes);
      sm90::copy_box(&x_map, shared.x[at.stage], k, row, full);
      unsigned short* const gate = shared.weights[at.stage] + block * kPart * kTileK;
      unsigned short* const up = gate + kTileElements;
      if constexpr (kCluster == 1) {
        sm90::copy_box(&gate_map, gate, k, column, full);
        sm90::copy_box(&up_map, up, k, column, full);
      } else {
        sm90::copy_box_to_cluster(&gate_map, gate, k, column, full, kAll);
        sm90::copy_box_to_cluster(&up_map, up, k, column, full, kAll);
      }
    }
  }
}

// Tells every block of the cluster that this warp has read a stage.
template <int kCluster>
__device__ void release(Shared& shared, int stage) {
  const unsigned lane = threadIdx.x % 32;
  if (lane < kCluster) sm90::arrive_at(&shared.empty[stage], lane);
}

// The sums over k for 64 rows: of gate in the first half, of up in the second.
template <class T, int kCluster>
__device__ void multiply(Shared& shared, int consumer, int k_tiles, RingPosition& at,
                         float (&sums)[sm90::kSums]) {
  int before = 0;
  for (int k = 0; k < k_tiles; ++k) {
    sm90::wait(&shared.full[at.stage], at.parity);
    const uint64_t x = sm90::descriptor(shared.x[at.stage] + consumer * 64 * kTileK);
    const uint64_t w = sm90::descriptor(shared.weights[at.stage]);
    sm90::products_begin();
#pragma unroll
    for (int step = 0; step < kTileK / kStepK; ++step) {
      constexpr int kStepUnits = kStepK * 2 / 16;  // descriptors count 16 bytes
      const int adds = k > 0 || step > 0;
      sm90::Product<T>::run(sums, x + step * kStepUnits, w + step * kStepUnits, adds);
    }
    sm90::products_commit();
    // The products before these are done: their stage may be filled again.
    sm90::products_wait<1>();
    if (k > 0) release<kCluster>(shared, before);
    before = at.stage;
    at.advance();
  }
  sm90::products_wait<0>();
  release<kCluster>(shared, before);
}

__device__ float tanh_by_unit(float x) {
  float y;
  asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// The special-function unit's tanh has 11 bits: less than half a step of bf16, too few for f16.
template <PointwiseFn kFn, class T>
__device__ float activate(float x) {
  constexpr bool kIsBf16 = sizeof(T) == 2 && __is_same(T, Bf16);
  if constexpr (kFn == PointwiseFn::relu) return Relu::run<true>(x);
  if constexpr (kFn == PointwiseFn::silu) {
    if constexpr (!kIsBf16) return Silu::run<true>(x);
    const float half = 0.5f * x;  // x sigmoid(x) = x (1 + tanh(x / 2)) / 2
    return half * tanh_by_unit(half) + half;
  }
  if constexpr (!kIsBf16) return GeluTanh::run<true>(x);
  const float half = 0.5f * x;
  return half * tanh_by_unit(kBeta * x * (1.0f + kKappa * (x * x))) + half;
}

template <class T>
__device__ uint32_t pack(float low, float high) {
  T a;
  T b;
  from_float(low, a);
  from_float(high, b);
  return static_cast<uint32_t>(a.bits) | static_cast<uint32_t>(b.bits) << 16;
}

// Four lanes hold a 4 x 4 matrix by columns (p[j] of lane i is element (j, i)); afterwards by rows.
__device__ void transpose_quad(uint32_t (&p)[4]) {
  const unsigned lane = threadIdx.x % 4;
  constexpr unsigned kAll = 0xffffffff;
  const bool odd = lane & 1;
  const uint32_t a = __shfl_xor_sync(kAll, odd ? p[0] : p[1], 1);
  const uint32_t b = __shfl_xor_sync(kAll, odd ? p[2] : p[3], 1);
  (odd ? p[0] : p[1]) = a;
  (odd ? p[2] : p[3]) = b;
  const bool upper = lane & 2;
  const uint32_t c = __shfl_xor_sync(kAll, upper ? p[0] : p[2], 2);
  const uint32_t d = __shfl_xor_sync(kAll, upper ? p[1] : p[3], 2);
  (upper ? p[0] : p[2]) = c;
  (upper ? p[1] : p[3]) = d;
}

// act(gate) * up of this thread's elements. A thread has pairs of columns; four lanes swap theirs
// so that each stores 16 bytes of a row.
template <PointwiseFn kFn, class T>
__device__ void finish(const float (&sums)[sm90::kSums], T* out, int64_t out_stride, int row,
                       int column, const Sizes& sizes) {
  constexpr int kUp = sm90::kSums / 2;
  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x % kWarpgroup / 32;
#pragma unroll
  for (int group = 0; group < kTileHidden / 8; group += 4) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      uint32_t packed[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int at = 4 * (group + i) + 2 * half;
        packed[i] = pack<T>(activate<kFn, T>(sums[at]) * sums[kUp + at],
                            activate<kFn, T>(sums[at + 1]) * sums[kUp + at + 1]);
      }
      transpose_quad(packed);
      const int r = row + warp * 16 + lane / 4 + 8 * half;
      const int c = column + (group + lane % 4) * 8;
      if (r < sizes.rows && c < sizes.hidden)
        *reinterpret_cast<uint4*>(out + r * out_stride + c) =
            make_uint4(packed[0], packed[1], packed[2], packed[3]);
    }
  }
}

template <PointwiseFn kFn, class T, int kCluster>
__global__ void __cluster_dims__(kCluster, 1, 1) __launch_bounds__(kBlockThreads, 1)
    gated_mlp_sm90(const __grid_constant__ CUtensorMap x_map,
                   const __grid_constant__ CUtensorMap gate_map,
                   const __grid_constant__ CUtensorMap up_map, T* out, int64_t out_stride,
                   Sizes sizes) {
  extern __shared__ unsigned char memory[];
  const uint32_t misaligned = sm90::shared_address(memory) % kSharedAlignment;
  Shared& shared =
      *reinterpret_cast<Shared*>(memory + (misaligned == 0 ? 0 : kSharedAlignment - misaligned));
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < kStages; ++stage) {
      sm90::barrier_init(&shared.full[stage], 1);
      sm90::barrier_init(&shared.empty[stage], kConsumerWarps * kCluster);
    }
    sm90::fence_barrier_init();
  }
  sm90::cluster_sync();
  const int64_t first_tile = blockIdx.x / kCluster;
  const int64_t tile_step = gridDim.x / kCluster;
  // The same in all lanes, and the compiler is to know: addresses then stay in uniform registers.
  const int warp = __shfl_sync(0xffffffff, threadIdx.x / 32, 0);
  const int warpgroup = warp / (kWarpgroup / 32);
  if (warpgroup == 0) {
    sm90::give_registers<kProducerRegisters>();
    if (warp == 0 && sm90::elect_one()) {
      sm90::prefetch_map(&x_map);
      sm90::prefetch_map(&gate_map);
      sm90::prefetch_map(&up_map);
      produce<kCluster>(shared, x_map, gate_map, up_map, sizes, first_tile, tile_step);
    }
  } else {
    sm90::take_registers<kConsumerRegisters>();
    const int consumer = warpgroup - 1;
    const auto block = static_cast<int>(kCluster == 1 ? 0 : sm90::block_in_cluster());
    const int k_tiles = (sizes.k + kTileK - 1) / kTileK;
    const int64_t tiles = static_cast<int64_t>(sizes.row_tiles) * sizes.column_tiles;
    RingPosition at;
    for (int64_t index = first_tile; index < tiles; index += tile_step) {
      float sums[sm90::kSums];
      multiply<T, kCluster>(shared, consumer, k_tiles, at, sums);
      const GatedTile tile = gated_tile(index, sizes.row_tiles, sizes.column_tiles);
      finish<kFn, T>(sums, out, out_stride,
                     static_cast<int>(tile.row * kCluster + block) * kTileRows + consumer * 64,
                     static_cast<int>(tile.column) * kTileHidden, sizes);
    }
  }
  // No block leaves while another one may still write to its memory or arrive at its barriers.
  sm90::cluster_sync();
}

// --- Launch -------------------------------------------------------------------------------------

using Encode = CUresult (*)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*,
                            const cuuint64_t*, const cuuint32_t*, const cuuint32_t*,
                            CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion,
                            CUtensorMapFloatOOBfill);

// The driver's function: nothing but the runtime is linked.
cudaError_t find_encode(Encode& encode) {
  constexpr unsigned kSince = 12000;  // the CUDA version that has it
  void* address = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  const cudaError_t status = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &address,
                                                              kSince, cudaEnableDefault, &found);
  if (status != cudaSuccess) return status;
  if (found != cudaDriverEntryPointSuccess || address == nullptr) return cudaErrorSymbolNotFound;
  encode = reinterpret_cast<Encode>(address);
  return cudaSuccess;
}

// Boxes of box_rows x 64 elements of a row-major matrix.
cudaError_t make_map(CUtensorMap& map, DType dtype, const void* data, int64_t rows, int64_t columns,
                     int64_t stride, int box_rows) {
  static Encode encode = nullptr;
  static std::once_flag once;
  static cudaError_t status = cudaSuccess;
  std::call_once(once, [] { status = find_encode(encode); });
  if (status != cudaSuccess) return status;
  const std::array<cuuint64_t, 2> sizes = {static_cast<cuuint64_t>(columns),
                                           static_cast<cuuint64_t>(rows)};
  const std::array<cuuint64_t, 1> strides = {static_cast<cuuint64_t>(stride) * 2};
  const std::array<cuuint32_t, 2> box = {kTileK, static_cast<cuuint32_t>(box_rows)};
  const std::array<cuuint32_t, 2> steps = {1, 1};
  const CUresult result = encode(
      &map,
      dtype == DType::bf16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 2,
      const_cast<void*>(data), sizes.data(), strides.data(), box.data(), steps.data(),
      CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
      CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

template <PointwiseFn kFn, class T, int kCluster>
cudaError_t launch(const GatedCall& c, int multiprocessors, cudaStream_t stream) {
  CUtensorMap x_map;
  CUtensorMap gate_map;
  CUtensorMap up_map;
  constexpr int kPart = kTileHidden / kCluster;
  cudaError_t status = make_map(x_map, c.dtype, c.x, c.rows, c.k, c.x_stride, kTileRows);
  if (status == cudaSuccess)
    status = make_map(gate_map, c.dtype, c.gate, c.hidden, c.k, c.gate_stride, kPart);
  if (status == cudaSuccess)
    status = make_map(up_map, c.dtype, c.up, c.hidden, c.k, c.up_stride, kPart);
  auto* const kernel = gated_mlp_sm90<kFn, T, kCluster>;
  if (status == cudaSuccess)
    status =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes);
  if (status != cudaSuccess) return status;
  const auto tiles = [](int64_t n, int64_t tile) {
    return static_cast<int>((n + tile - 1) / tile);
  };
  const Sizes sizes{static_cast<int>(c.rows), static_cast<int>(c.hidden), static_cast<int>(c.k),
                    tiles(c.rows, kTileRows * kCluster), tiles(c.hidden, kTileHidden)};
  const int64_t all = static_cast<int64_t>(sizes.row_tiles) * sizes.column_tiles;
  const auto clusters = static_cast<unsigned>(std::min<int64_t>(all, multiprocessors / kCluster));
  kernel<<<clusters * kCluster, kBlockThreads, kSharedBytes, stream>>>(
      x_map, gate_map, up_map, static_cast<T*>(c.out), c.out_stride, sizes);
  return cudaGetLastError();
}

template <PointwiseFn kFn, class T>
cudaError_t launch_in(const GatedCall& c, GatedCluster cluster, int multiprocessors,
                      cudaStream_t stream) {
  return cluster == GatedCluster::one ? launch<kFn, T, 1>(c, multiprocessors, stream)
                                      : launch<kFn, T, 2>(c, multiprocessors, stream);
}

template <PointwiseFn kFn>
cudaError_t launch_as(const GatedCall& c, GatedCluster cluster, int multiprocessors,
                      cudaStream_t stream) {
  return c.dtype == DType::bf16 ? launch_in<kFn, Bf16>(c, cluster, multiprocessors, stream)
                                : launch_in<kFn, F16>(c, cluster, multiprocessors, stream);
}

}  // namespace

cudaError_t launch_gated_sm90(const GatedCall& c, GatedCluster cluster, int multiprocessors,
                              cudaStream_t stream) {
  switch (c.activation) {
    case PointwiseFn::gelu_tanh:
      return launch_as<PointwiseFn::gelu_tanh>(c, cluster, multiprocessors, stream);
    case PointwiseFn::silu:
      return launch_as<PointwiseFn::silu>(c, cluster, multiprocessors, stream);
    case PointwiseFn::relu:
      return launch_as<PointwiseFn::relu>(c, cluster, multiprocessors, stream);
    default: return cudaErrorInvalidValue;
  }
}

}  // namespace epilogue::cuda
