// SPDX-License-Identifier: Apache-2.0
// The first half of a gated MLP in one Hopper kernel: out = act(x gate^T) * (x up^T).
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "core/pointwise_program.h"
#include "epilogue/dtype.h"

namespace epilogue::cuda {

struct GatedCall {
  int64_t rows = 0;    // of x and out
  int64_t hidden = 0;  // of gate and up, columns of out
  int64_t k = 0;
  DType dtype = DType::bf16;
  PointwiseFn activation = PointwiseFn::gelu_tanh;
  const void* x = nullptr;     // [rows, k]
  int64_t x_stride = 0;        // in elements, from row to row, as the others
  const void* gate = nullptr;  // [hidden, k]
  const void* up = nullptr;
  int64_t gate_stride = 0;
  int64_t up_stride = 0;
  void* out = nullptr;  // [rows, hidden]
  int64_t out_stride = 0;
};

// Why the kernel cannot run the call, or nullptr: bf16 or f16; the activations that
// launch_gated_sm90() has; 16-byte aligned rows.
const char* decline_gated_sm90(const GatedCall& call);

// Blocks that share the weights' tiles through the cluster's multicast.
enum class GatedCluster : uint8_t { one = 1, two = 2 };

// Precondition: a device of architecture 90, and nothing was declined. The status is that of the
// launch or of what prepares it.
cudaError_t launch_gated_sm90(const GatedCall& call, GatedCluster cluster, int multiprocessors,
                              cudaStream_t stream);

// How persistent blocks walk over the tiles: groups of rows-tiles share a column of weights in L2.
// `index` counts pairs (row tile, hidden tile).
struct GatedTile {
  int64_t row = 0;     // in tiles (of a cluster's rows)
  int64_t column = 0;  // in tiles
};
inline constexpr int64_t kGatedGroup = 8;
#ifdef __CUDACC__
__host__ __device__
#endif
    inline GatedTile
    gated_tile(int64_t index, int64_t row_tiles, int64_t column_tiles) {
  const int64_t in_group = kGatedGroup * column_tiles;
  const int64_t first = index / in_group * kGatedGroup;
  const int64_t left = row_tiles - first;
  const int64_t rows = left < kGatedGroup ? left : kGatedGroup;
  const int64_t rest = index % in_group;
  return {first + rest % rows, rest / rows};
}

}  // namespace epilogue::cuda
