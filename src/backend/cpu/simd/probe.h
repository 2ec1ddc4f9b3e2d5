// SPDX-License-Identifier: Apache-2.0
// What one core can do at most: the ceiling that kernels are measured against.
#pragma once

namespace epilogue::simd {

// The f32 multiply-add rate of the calling thread at active_isa(), in GFLOP/s: the best of short
// runs within about `seconds`, from registers alone.
double fma_gflops(double seconds);

}  // namespace epilogue::simd
