// SPDX-License-Identifier: Apache-2.0
// The machine as the passes see it. Constants: what a pass decides here decides the order of sums
// or what is rounded, and the same graph gives the same bits on every machine and in every run.
// Where that costs time, Tune::measure finds the faster plan.
#pragma once

#include <cstdint>

namespace epilogue::passes {

// What a block's hidden activations may take. Beyond a core's L2 they go through L3, once each way,
// which costs less than half a percent of the products; beyond a core's share of L3 they would go
// to memory as often as a kernel's result does.
inline constexpr int64_t kHiddenBlockBytes = int64_t{8} << 20;

// Of one core, for comparing what is computed again with what is saved. Memory: a core's share
// while all of them read and write. Pointwise: 9 operations of a tanh GELU in 0.35 ns. Products:
// f32 with 512-bit vectors; bf16 tiles are faster, but what saving costs is halved with them too.
inline constexpr double kMemoryBytesPerNs = 6;
inline constexpr double kPointwiseFlopsPerNs = 26;
inline constexpr double kProductFlopsPerNs = 100;
// Values of this size are still in the caches when the backward pass reads them.
inline constexpr int64_t kCachedBytes = int64_t{1} << 20;
inline constexpr double kCachedBytesPerNs = 20;
// A kernel more.
inline constexpr double kLaunchNs = 2000;

// Weights that a training step changes are packed anew for the next one: read, written and read
// again, n k elements. Joining a product with what stands around it saves passes over its rows and
// results, m (n + k) elements. It pays from this ratio of the two on: below 5, packing cost f32
// steps up to a tenth on the CPUs that it was measured on (AVX2, AVX-512); above 6 nothing.
inline constexpr double kElementsPerPackedElement = 6;

}  // namespace epilogue::passes
