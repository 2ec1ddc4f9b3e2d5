// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/simd/targets.h"

#include <hwy/targets.h>

#include <algorithm>

#include "base/cpu_features.h"

namespace epilogue::simd {
namespace {

// Highway's own test of the CPU: a target may need more than our features promise
// (avx2 there includes BMI), and a virtual machine can mask any single feature.
Target best_target() {
  static const Target best = [] {
    const int64_t supported = hwy::SupportedTargets();
    if ((supported & HWY_AVX3) != 0) return Target::avx3;
    if ((supported & HWY_AVX2) != 0) return Target::avx2;
    if ((supported & HWY_SSE4) != 0) return Target::sse4;
    return Target::fallback;
  }();
  return best;
}

}  // namespace

Target active_target() {
  const CpuFeatures features = active_features();
  const Target wanted = features.has(CpuFeature::avx512) ? Target::avx3
                        : features.has(CpuFeature::avx2) ? Target::avx2
                                                         : Target::sse4;
  return std::min(wanted, best_target());
}

const char* target_name(Target target) {
  switch (target) {
    case Target::fallback: return "scalar";
    case Target::sse4: return "sse4";
    case Target::avx2: return "avx2";
    case Target::avx3: return "avx512";
  }
  return "unknown";
}

}  // namespace epilogue::simd
