// SPDX-License-Identifier: Apache-2.0
// Loops over one row of f32 that several kernels share: sums, the maximum, e^(x - shift). Included
// once per target.
#if defined(EPILOGUE_SIMD_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef EPILOGUE_SIMD_ROWS_INL_H_
#undef EPILOGUE_SIMD_ROWS_INL_H_
#else
#define EPILOGUE_SIMD_ROWS_INL_H_
#endif

#include <cmath>
#include <limits>

#include "backend/cpu/simd/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace epilogue::simd::HWY_NAMESPACE {

HWY_INLINE float sum_of_lanes(Vf v) { return hn::GetLane(hn::SumOfLanes(Df(), v)); }

// Rows are summed whole up to this many elements and by halves above, so that none of a vector's
// lanes takes more than 64 terms, whatever the level.
inline constexpr size_t kPairwise = 64 * 4 * kLanes;

// sum over i of term(i) for a Term with at(i) (a vector's worth) and tail(i, n) (0 in lanes
// beyond). Four accumulators hide the adder's latency.
template <class Term>
HWY_INLINE float sum_block(const Term& term, size_t begin, size_t end) {
  Vf s0 = set(0.0F);
  Vf s1 = s0;
  Vf s2 = s0;
  Vf s3 = s0;
  size_t i = begin;
  for (; i + 4 * kLanes <= end; i += 4 * kLanes) {
    s0 = hn::Add(s0, term.at(i));
    s1 = hn::Add(s1, term.at(i + kLanes));
    s2 = hn::Add(s2, term.at(i + 2 * kLanes));
    s3 = hn::Add(s3, term.at(i + 3 * kLanes));
  }
  for (; i + kLanes <= end; i += kLanes) s0 = hn::Add(s0, term.at(i));
  if (i < end) s1 = hn::Add(s1, term.tail(i, end - i));
  return sum_of_lanes(hn::Add(hn::Add(s0, s1), hn::Add(s2, s3)));
}

template <class Term>
float sum_of(const Term& term, size_t begin, size_t end) {
  if (end - begin <= kPairwise) return sum_block(term, begin, end);
  const size_t blocks = (end - begin + kPairwise - 1) / kPairwise;
  const size_t middle = begin + blocks / 2 * kPairwise;
  return sum_of(term, begin, middle) + sum_of(term, middle, end);
}

// The larger one; NaN if either is.
HWY_INLINE Vf max_nan(Vf a, Vf b) {
  return hn::IfThenElse(hn::Or(hn::Lt(a, b), hn::IsNaN(b)), b, a);
}

inline float row_max(const float* x, size_t n) {
  const float lowest = -std::numeric_limits<float>::infinity();
  Vf best = set(lowest);
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) best = max_nan(best, load(x + i));
  HWY_ALIGN float lanes[kLanes];
  hn::Store(best, Df(), lanes);
  float result = lowest;
  for (const float lane : lanes)
    if (lane > result || std::isnan(lane)) result = lane;
  for (; i < n; ++i)
    if (x[i] > result || std::isnan(x[i])) result = x[i];
  return result;
}

// out[i] = f(i) for an F with at and tail, as above.
template <class F>
HWY_INLINE void write_row(const F& f, float* out, size_t n) {
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store(f.at(i), out + i);
  if (i < n) store_tail(f.tail(i, n - i), out + i, n - i);
}

struct ExpShifted {
  const float* x;
  float shift;
  HWY_INLINE Vf at(size_t i) const { return exp_full(hn::Sub(load(x + i), set(shift))); }
  HWY_INLINE Vf tail(size_t i, size_t n) const {
    const Vf e = exp_full(hn::Sub(load_tail(x + i, n), set(shift)));
    return hn::IfThenElseZero(hn::FirstN(Df(), n), e);
  }
};
}  // namespace epilogue::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard, toggled per target
