// SPDX-License-Identifier: Apache-2.0
// What one core can do at most: the ceiling that kernels are measured against.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace epilogue::simd {

// The f32 multiply-add rate of the calling thread at active_isa(), in GFLOP/s: the best of short
// runs within about `seconds`, from registers alone.
double fma_gflops(double seconds);

// The same of the dot products of bf16 that the level has, vectors or tiles; 0 where it has none
// (bf16 is then widened to f32).
double bf16_gflops(double seconds);

// What tiles reach of random values out of L1, where power limits them: zeros and values that stay
// the same are multiplied up to a quarter faster. Four products need two loads of rows and two of
// columns. For callers that keep the time, on as many threads as they like.
class TileProbe {
 public:
  TileProbe();
  TileProbe(const TileProbe&) = delete;
  TileProbe& operator=(const TileProbe&) = delete;
  // False where the level in use has no tiles.
  static bool is_there();
  static constexpr int64_t flops_per_round() { return 4 * 2 * 16 * 16 * 32; }
  void run(int64_t rounds) const;

 private:
  static constexpr size_t kTilesEach = 16;  // of rows, and of columns: 16 KiB
  std::vector<uint16_t> values_;
  const uint16_t* first_;  // of them, at a line of the caches
};

}  // namespace epilogue::simd
