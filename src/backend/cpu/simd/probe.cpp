// SPDX-License-Identifier: Apache-2.0
// The register-only loop, compiled once per target.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/simd/probe.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h, which chooses the target:
#include "backend/cpu/simd/lanes-inl.h"
#include "backend/cpu/simd/probe.h"
#include "backend/cpu/simd/probe_loop.h"
#include "backend/cpu/simd/targets.h"

#ifndef EPILOGUE_SIMD_PROBE_ONCE_
#define EPILOGUE_SIMD_PROBE_ONCE_
namespace epilogue::simd {
namespace {
struct Probe {
  float (*multiply_add)(int64_t rounds);
  int64_t flops_per_round;
};
}  // namespace
}  // namespace epilogue::simd
#endif

HWY_BEFORE_NAMESPACE();
namespace epilogue::simd::HWY_NAMESPACE {
namespace {

// Enough independent chains for two units of latency 4, few enough for 16 registers.
inline constexpr int64_t kChains = 12;

float multiply_add(int64_t rounds) {
  const Vf factor = set(0.999F);
  const Vf term = set(0.001F);
  Vf chains[kChains];
#pragma GCC unroll 12
  for (int64_t i = 0; i < kChains; ++i) chains[i] = set(static_cast<float>(i));
  for (int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 12
    for (Vf& chain : chains) chain = hn::MulAdd(chain, factor, term);
  }
  Vf sum = chains[0];
#pragma GCC unroll 12
  for (int64_t i = 1; i < kChains; ++i) sum = hn::Add(sum, chains[i]);
  return hn::GetLane(sum);
}

}  // namespace

constexpr Probe table = {multiply_add, 2 * kChains* static_cast<int64_t>(kLanes)};

}  // namespace epilogue::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace epilogue::simd {

double fma_gflops(double seconds) {
  const Probe& probe = EPILOGUE_PICK(table);
  constexpr int64_t kRounds = 20'000;
  volatile float sink = 0.0F;  // the sums must look used
  const double best = best_gflops(seconds, kRounds * probe.flops_per_round,
                                  [&] { sink = probe.multiply_add(kRounds); });
  static_cast<void>(sink);
  return best;
}

}  // namespace epilogue::simd
#endif  // HWY_ONCE
