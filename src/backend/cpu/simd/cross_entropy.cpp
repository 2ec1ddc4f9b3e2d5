// SPDX-License-Identifier: Apache-2.0
// Cross-entropy kernels, compiled once per target.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/simd/cross_entropy.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h, which chooses the target:
#include "backend/cpu/simd/cross_entropy.h"
#include "backend/cpu/simd/rows-inl.h"
#include "backend/cpu/simd/targets.h"

HWY_BEFORE_NAMESPACE();
namespace epilogue::simd::HWY_NAMESPACE {
namespace {

SoftmaxStats stats(const float* x, size_t n) {
  const float max = row_max(x, n);
  return {max, std::log(sum_of(ExpShifted{x, max}, 0, n))};
}

// The maximum must not count in the lanes beyond the tail.
struct WeightedShifted {
  const float* x;
  const float* weight;
  float max;
  HWY_INLINE Vf at(size_t i) const {
    const Vf shifted = hn::Sub(load(x + i), set(max));
    return weight != nullptr ? hn::Mul(shifted, load(weight + i)) : shifted;
  }
  HWY_INLINE Vf tail(size_t i, size_t n) const {
    const Vf shifted = hn::Sub(load_tail(x + i, n), set(max));
    const Vf value = weight != nullptr ? hn::Mul(shifted, load_tail(weight + i, n)) : shifted;
    return hn::IfThenElseZero(hn::FirstN(Df(), n), value);
  }
};

float shifted_sum(const float* x, const float* weight, float max, size_t n) {
  return sum_of(WeightedShifted{x, weight, max}, 0, n);
}

struct Gradient {
  const float* x;
  const float* weight;
  SoftmaxStats stats;
  float scale;
  float shift;
  HWY_INLINE Vf value(Vf v, Vf w) const {
    const Vf log_p = hn::Sub(hn::Sub(v, set(stats.max)), set(stats.log_sum));
    return hn::NegMulAdd(set(shift), w, hn::Mul(set(scale), exp_full(log_p)));
  }
  HWY_INLINE Vf at(size_t i) const {
    return value(load(x + i), weight != nullptr ? load(weight + i) : set(1.0F));
  }
  HWY_INLINE Vf tail(size_t i, size_t n) const {
    return value(load_tail(x + i, n), weight != nullptr ? load_tail(weight + i, n) : set(1.0F));
  }
};

void gradient(const float* x, const float* weight, SoftmaxStats stats, float scale, float shift,
              float* dx, size_t n) {
  write_row(Gradient{x, weight, stats, scale, shift}, dx, n);
}

}  // namespace

constexpr CrossEntropyKernels table = {
    .target = kTargetName,
    .stats = stats,
    .shifted_sum = shifted_sum,
    .gradient = gradient,
};

}  // namespace epilogue::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace epilogue::simd {

const CrossEntropyKernels& cross_entropy_kernels() { return EPILOGUE_PICK(table); }

}  // namespace epilogue::simd
#endif  // HWY_ONCE
