// SPDX-License-Identifier: Apache-2.0
// Gradient kernels, compiled once per target.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/simd/gradients.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h, which chooses the target:
#include <cmath>

#include "backend/cpu/simd/gradients.h"
#include "backend/cpu/simd/math-inl.h"
#include "backend/cpu/simd/targets.h"

HWY_BEFORE_NAMESPACE();
namespace epilogue::simd::HWY_NAMESPACE {
namespace {

using Dd = hn::Rebind<double, hn::Half<Df>>;
using Vd = hn::Vec<Dd>;
inline constexpr size_t kHalf = hn::MaxLanes(Dd());

struct Square {
  static HWY_INLINE Vd apply(Vd x, Vd sum) { return hn::MulAdd(x, x, sum); }
  static double apply(double x) { return x * x; }
};
struct Magnitude {
  static HWY_INLINE Vd apply(Vd x, Vd sum) { return hn::Add(hn::Abs(x), sum); }
  static double apply(double x) { return std::abs(x); }
};

HWY_INLINE Vd load_wide(const float* p) {
  return hn::PromoteTo(Dd(), hn::LoadU(hn::Half<Df>(), p));
}

template <class Term>
double sum_of(const float* x, size_t n) {
  Vd s0 = hn::Zero(Dd());
  Vd s1 = s0;
  Vd s2 = s0;
  Vd s3 = s0;
  size_t i = 0;
  for (; i + 4 * kHalf <= n; i += 4 * kHalf) {
    s0 = Term::apply(load_wide(x + i), s0);
    s1 = Term::apply(load_wide(x + i + kHalf), s1);
    s2 = Term::apply(load_wide(x + i + 2 * kHalf), s2);
    s3 = Term::apply(load_wide(x + i + 3 * kHalf), s3);
  }
  double sum = hn::GetLane(hn::SumOfLanes(Dd(), hn::Add(hn::Add(s0, s1), hn::Add(s2, s3))));
  for (; i < n; ++i) sum += Term::apply(static_cast<double>(x[i]));
  return sum;
}

float max_magnitude(const float* x, size_t n) {
  Vf best = set(0.0F);
  for (size_t i = 0; i < n; i += kLanes) {
    const size_t left = n - i;
    const Vf v = hn::Abs(left < kLanes ? load_tail(x + i, left) : load(x + i));
    best = hn::IfThenElse(hn::Or(hn::Lt(best, v), hn::IsNaN(v)), v, best);
  }
  HWY_ALIGN float lanes[kLanes];
  hn::Store(best, Df(), lanes);
  float result = 0;
  for (const float lane : lanes) {
    if (std::isnan(lane)) return lane;
    if (lane > result) result = lane;
  }
  return result;
}

// x - x is 0 where x is finite, NaN elsewhere, and NaN survives sums.
HWY_INLINE Vf residue(Vf x) { return hn::Sub(x, x); }
HWY_INLINE bool is_clean(Vf residues) { return hn::AllTrue(Df(), hn::Eq(residues, set(0.0F))); }

bool all_finite(const float* x, size_t n) {
  Vf a = set(0.0F);
  Vf b = a;
  size_t i = 0;
  for (; i + 2 * kLanes <= n; i += 2 * kLanes) {
    a = hn::Add(a, residue(load(x + i)));
    b = hn::Add(b, residue(load(x + i + kLanes)));
  }
  for (; i + kLanes <= n; i += kLanes) a = hn::Add(a, residue(load(x + i)));
  if (i < n) b = hn::Add(b, residue(load_tail(x + i, n - i)));
  return is_clean(hn::Add(a, b));
}

bool scale_and_check(const float* x, float factor, float* out, size_t n) {
  const Vf f = set(factor);
  Vf bad = set(0.0F);
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const Vf v = load(x + i);
    bad = hn::Add(bad, residue(v));
    store(hn::Mul(v, f), out + i);
  }
  if (i < n) {
    const Vf v = load_tail(x + i, n - i);
    bad = hn::Add(bad, residue(v));
    store_tail(hn::Mul(v, f), out + i, n - i);
  }
  return is_clean(bad);
}

void clamp(const float* x, float low, float high, float* out, size_t n) {
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store(at_most(at_least(load(x + i), low), high), out + i);
  if (i < n) store_tail(at_most(at_least(load_tail(x + i, n - i), low), high), out + i, n - i);
}

}  // namespace

constexpr GradientKernels table = {
    .target = kTargetName,
    .sum_squares = sum_of<Square>,
    .sum_magnitudes = sum_of<Magnitude>,
    .max_magnitude = max_magnitude,
    .all_finite = all_finite,
    .scale_and_check = scale_and_check,
    .clamp = clamp,
};

}  // namespace epilogue::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace epilogue::simd {

const GradientKernels& gradient_kernels() { return EPILOGUE_PICK(table); }

}  // namespace epilogue::simd
#endif  // HWY_ONCE
