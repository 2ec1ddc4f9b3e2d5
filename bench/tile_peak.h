// SPDX-License-Identifier: Apache-2.0
// The rate that tiles reach of random values out of L1, on all threads: what shares of products of
// bf16 on AMX are of.
#pragma once

#include <cstdint>

#include "backend/cpu/simd/probe.h"
#include "base/clock.h"
#include "base/thread_pool.h"

namespace epilogue::bench {

// One run takes a millisecond or two. Where TileProbe::is_there() only.
inline constexpr int64_t kTileProbeRounds = 30'000;
inline void run_tile_probe(const simd::TileProbe& probe) {
  parallel_for(num_threads(), 1, [&](int64_t, int64_t) { probe.run(kTileProbeRounds); });
}
inline double tile_probe_flops() {
  return static_cast<double>(num_threads() * kTileProbeRounds * simd::TileProbe::flops_per_round());
}

// In one run, in GFLOP/s.
inline double tile_peak_gflops(const simd::TileProbe& probe) {
  const int64_t before = monotonic_ns();
  run_tile_probe(probe);
  return tile_probe_flops() / static_cast<double>(monotonic_ns() - before);
}

}  // namespace epilogue::bench
