// SPDX-License-Identifier: Apache-2.0
// Lines that are asked for before they are read. Plain code, to be included above target regions.
#pragma once

#include "base/cpu_features.h"

namespace epilogue::simd {

// Levels of the caches, as __builtin_prefetch counts them.
inline constexpr int kIntoL1 = 3;
inline constexpr int kIntoL2 = 2;

// Always inlined: GCC takes a function that does nothing but prefetch for one without effects, and
// drops calls of it.
template <int kInto>
[[gnu::always_inline]] inline void fetch_line(const void* at) {
  __builtin_prefetch(at, 0, kInto);
}

[[gnu::always_inline]] inline void fetch_to_write(const void* at) {
  __builtin_prefetch(at, 1, kIntoL1);
}

// Whether queries that read keys in place, and a few rows that take a panel in pieces, fetch into
// L1. On a Cascade Lake that is 10 to 15 % faster than into L2; on a processor with AMX one row was
// 13 % slower; on Zen 4, whose L1 waits for 24 lines, queries were 15 to 35 % slower.
inline bool fetches_into_l1() {
  static const bool into_l1 = is_intel_cpu() && !detected_features().has(CpuFeature::amx_bf16);
  return into_l1;
}

}  // namespace epilogue::simd
