// SPDX-License-Identifier: Apache-2.0
// What one core can do at most: the ceiling that kernels are measured against.
#pragma once

namespace epilogue::simd {

// The f32 multiply-add rate of the calling thread at active_isa(), in GFLOP/s: the best of short
// runs within about `seconds`, from registers alone.
double fma_gflops(double seconds);

// The same of the dot products of bf16 that the level has, vectors or tiles; 0 where it has none
// (bf16 is then widened to f32).
double bf16_gflops(double seconds);

}  // namespace epilogue::simd
