// SPDX-License-Identifier: Apache-2.0
// The rungs of `epilogue bench ladder` between a vector kernel and compile() where a tile unit
// multiplies bf16: the library's own kernels, each rung with one technique more.
#pragma once

#include <cstdint>

#include "backend/cpu/simd/panels/kernel_list.h"
#include "backend/cpu/simd/panels/packed_weights.h"
#include "epilogue/tensor.h"

namespace epilogue::bench::ladder {

enum class TileStep : uint8_t {
  panels,    // rows as they lie, panels of weights; sums of some rows go to y after their products
  tiled,     // rows and weights lie tile by tile, a call for each block of 32 columns
  overlaps,  // y's lines are stored between the products of the next rows
  fetches,   // one call for all columns: it asks for the next block's weights meanwhile
  blocks,    // tile_blocks(): k is cut for L1, and what stays in L1 and L2 is chosen
};

// y [m, n] = x [m, k] w^T as ladder_kernels.h has it, of bf16. The weights are packed once, blocks
// of rows are those of a row chain.
class TiledProduct {
 public:
  // False where the level in use has no tiles of bf16.
  static bool is_there();
  TiledProduct(const Tensor& w, TileStep step);
  void run(const Tensor& x, const Tensor& y) const;

 private:
  void run_panels(const uint16_t* x, uint16_t* y, int64_t m) const;
  void run_tiles(const uint16_t* x, uint16_t* y, int64_t m) const;

  TileStep step_;
  const simd::PanelKernel& kernel_;
  simd::PackedWeights weights_;
};

}  // namespace epilogue::bench::ladder
