// SPDX-License-Identifier: Apache-2.0
// What one core can do at most: the ceiling that kernels are measured against.
#pragma once

#include <cstdint>

namespace epilogue::simd {

// The f32 multiply-add rate of the calling thread at active_isa(), in GFLOP/s: the best of short
// runs within about `seconds`, from registers alone.
double fma_gflops(double seconds);

// Likewise the rate of bf16 products with f32 sums, where they have instructions of their own
// (level avx512_bf16). 0: not at this level, or not known (amx).
double bf16_dot_gflops(double seconds);

// The best rate of `body`, which does `flops_per_round` in each of its rounds.
double best_gflops(double seconds, int64_t flops_per_round, float (*body)(int64_t rounds));

}  // namespace epilogue::simd
