// SPDX-License-Identifier: Apache-2.0
// Row kernels, compiled once per target.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/simd/reduce.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h, which chooses the target:
#include <cmath>

#include "backend/cpu/simd/reduce.h"
#include "backend/cpu/simd/rows-inl.h"
#include "backend/cpu/simd/targets.h"

HWY_BEFORE_NAMESPACE();
namespace epilogue::simd::HWY_NAMESPACE {
namespace {

struct Plain {
  const float* x;
  HWY_INLINE Vf at(size_t i) const { return load(x + i); }
  HWY_INLINE Vf tail(size_t i, size_t n) const { return load_tail(x + i, n); }
};
struct Product {
  const float* a;
  const float* b;
  HWY_INLINE Vf at(size_t i) const { return hn::Mul(load(a + i), load(b + i)); }
  HWY_INLINE Vf tail(size_t i, size_t n) const {
    return hn::Mul(load_tail(a + i, n), load_tail(b + i, n));
  }
};
struct SquaredDifference {
  const float* a;
  const float* b;
  static HWY_INLINE Vf square(Vf v) { return hn::Mul(v, v); }
  HWY_INLINE Vf at(size_t i) const { return square(hn::Sub(load(a + i), load(b + i))); }
  HWY_INLINE Vf tail(size_t i, size_t n) const {
    return square(hn::Sub(load_tail(a + i, n), load_tail(b + i, n)));
  }
};
// The centre must not count in the lanes beyond the tail.
struct SquaredDeviation {
  const float* x;
  float centre;
  static HWY_INLINE Vf square(Vf v) { return hn::Mul(v, v); }
  HWY_INLINE Vf at(size_t i) const { return square(hn::Sub(load(x + i), set(centre))); }
  HWY_INLINE Vf tail(size_t i, size_t n) const {
    const Vf deviation = hn::Sub(load_tail(x + i, n), set(centre));
    return hn::IfThenElseZero(hn::FirstN(Df(), n), square(deviation));
  }
};

float row_sum(const float* x, size_t n) { return sum_of(Plain{x}, 0, n); }
float row_dot(const float* a, const float* b, size_t n) { return sum_of(Product{a, b}, 0, n); }
float squared_difference(const float* a, const float* b, size_t n) {
  return sum_of(SquaredDifference{a, b}, 0, n);
}

float squared_deviation(const float* x, float centre, size_t n) {
  return sum_of(SquaredDeviation{x, centre}, 0, n);
}

// As row_max, from below.
float row_min(const float* x, size_t n) {
  const float highest = std::numeric_limits<float>::infinity();
  Vf best = set(highest);
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const Vf v = load(x + i);
    best = hn::IfThenElse(hn::Or(hn::Lt(v, best), hn::IsNaN(v)), v, best);
  }
  HWY_ALIGN float lanes[kLanes];
  hn::Store(best, Df(), lanes);
  float result = highest;
  for (const float lane : lanes)
    if (lane < result || std::isnan(lane)) result = lane;
  for (; i < n; ++i)
    if (x[i] < result || std::isnan(x[i])) result = x[i];
  return result;
}

size_t row_find(const float* x, float value, size_t n) {
  const bool is_nan = std::isnan(value);
  const Vf wanted = set(value);
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const Vf v = load(x + i);
    const auto hit = is_nan ? hn::IsNaN(v) : hn::Eq(v, wanted);
    if (!hn::AllFalse(Df(), hit)) break;
  }
  for (; i < n; ++i)
    if (is_nan ? std::isnan(x[i]) : x[i] == value) return i;
  return n;
}

struct Accumulated {
  const float* x;
  const float* acc;
  HWY_INLINE Vf at(size_t i) const { return hn::Add(load(acc + i), load(x + i)); }
  HWY_INLINE Vf tail(size_t i, size_t n) const {
    return hn::Add(load_tail(acc + i, n), load_tail(x + i, n));
  }
};
void accumulate(const float* x, float* acc, size_t n) { write_row(Accumulated{x, acc}, acc, n); }

struct Scaled {
  const float* x;
  float factor;
  HWY_INLINE Vf at(size_t i) const { return hn::Mul(load(x + i), set(factor)); }
  HWY_INLINE Vf tail(size_t i, size_t n) const { return hn::Mul(load_tail(x + i, n), set(factor)); }
};
struct Shifted {
  const float* x;
  float max;
  float log_sum;
  HWY_INLINE Vf shift(Vf v) const { return hn::Sub(hn::Sub(v, set(max)), set(log_sum)); }
  HWY_INLINE Vf at(size_t i) const { return shift(load(x + i)); }
  HWY_INLINE Vf tail(size_t i, size_t n) const { return shift(load_tail(x + i, n)); }
};

// y = e^(x - max) / sum
void softmax(const float* x, float* y, size_t n) {
  const float max = row_max(x, n);
  write_row(ExpShifted{x, max}, y, n);
  write_row(Scaled{y, 1.0F / row_sum(y, n)}, y, n);
}

// y = x - max - log(sum of e^(x - max))
void log_softmax(const float* x, float* y, size_t n) {
  if (n == 0) return;
  const float max = row_max(x, n);
  const float log_sum = std::log(sum_of(ExpShifted{x, max}, 0, n));
  write_row(Shifted{x, max, log_sum}, y, n);
}

struct SoftmaxGradient {
  const float* dy;
  const float* y;
  float sum;
  HWY_INLINE Vf gradient(Vf g, Vf out) const { return hn::Mul(out, hn::Sub(g, set(sum))); }
  HWY_INLINE Vf at(size_t i) const { return gradient(load(dy + i), load(y + i)); }
  HWY_INLINE Vf tail(size_t i, size_t n) const {
    return gradient(load_tail(dy + i, n), load_tail(y + i, n));
  }
};
void softmax_backward(const float* dy, const float* y, float* dx, size_t n) {
  write_row(SoftmaxGradient{dy, y, row_dot(dy, y, n)}, dx, n);
}

struct LogSoftmaxGradient {
  const float* dy;
  const float* y;
  float sum;
  HWY_INLINE Vf gradient(Vf g, Vf out) const { return hn::NegMulAdd(exp_full(out), set(sum), g); }
  HWY_INLINE Vf at(size_t i) const { return gradient(load(dy + i), load(y + i)); }
  HWY_INLINE Vf tail(size_t i, size_t n) const {
    return gradient(load_tail(dy + i, n), load_tail(y + i, n));
  }
};
void log_softmax_backward(const float* dy, const float* y, float* dx, size_t n) {
  write_row(LogSoftmaxGradient{dy, y, row_sum(dy, n)}, dx, n);
}

// gamma or beta: an array, or one value where the caller gave none.
struct Weights {
  const float* data;
  float otherwise;
  HWY_INLINE Vf at(size_t i) const { return data != nullptr ? load(data + i) : set(otherwise); }
  HWY_INLINE Vf tail(size_t i, size_t n) const {
    return data != nullptr ? load_tail(data + i, n) : set(otherwise);
  }
};

struct Normalised {
  const float* x;
  RowMoments moments;
  Weights gamma;
  Weights beta;
  HWY_INLINE Vf value(Vf v, Vf g, Vf b) const {
    return hn::MulAdd(hn::Mul(hn::Sub(v, set(moments.mean)), set(moments.rstd)), g, b);
  }
  HWY_INLINE Vf at(size_t i) const { return value(load(x + i), gamma.at(i), beta.at(i)); }
  HWY_INLINE Vf tail(size_t i, size_t n) const {
    return value(load_tail(x + i, n), gamma.tail(i, n), beta.tail(i, n));
  }
};

RowMoments layer_norm(const float* x, const float* gamma, const float* beta, float eps, float* y,
                      size_t n) {
  const auto count = static_cast<float>(n);
  const float mean = row_sum(x, n) / count;
  const float variance = sum_of(SquaredDeviation{x, mean}, 0, n) / count;
  const RowMoments moments = {mean, 1.0F / std::sqrt(variance + eps)};
  write_row(Normalised{x, moments, {gamma, 1.0F}, {beta, 0.0F}}, y, n);
  return moments;
}

float rms_norm(const float* x, const float* gamma, float eps, float* y, size_t n) {
  const float mean_square = row_dot(x, x, n) / static_cast<float>(n);
  const float rstd = 1.0F / std::sqrt(mean_square + eps);
  write_row(Normalised{x, {0.0F, rstd}, {gamma, 1.0F}, {nullptr, 0.0F}}, y, n);
  return rstd;
}

// g = dy * gamma; in the lanes beyond the tail dy, hence g, is 0.
struct WeightedGradient {
  const float* dy;
  Weights gamma;
  HWY_INLINE Vf at(size_t i) const { return hn::Mul(load(dy + i), gamma.at(i)); }
  HWY_INLINE Vf tail(size_t i, size_t n) const {
    return hn::Mul(load_tail(dy + i, n), gamma.tail(i, n));
  }
};
// g * h, h = (x - mean) * rstd
struct GradientTimesNormalised {
  WeightedGradient g;
  const float* x;
  RowMoments moments;
  HWY_INLINE Vf h(Vf v) const { return hn::Mul(hn::Sub(v, set(moments.mean)), set(moments.rstd)); }
  HWY_INLINE Vf at(size_t i) const { return hn::Mul(g.at(i), h(load(x + i))); }
  HWY_INLINE Vf tail(size_t i, size_t n) const {
    return hn::Mul(g.tail(i, n), h(load_tail(x + i, n)));
  }
};
// rstd * (g - mean_g - h * mean_gh)
struct NormGradient {
  GradientTimesNormalised gh;
  float mean_g;
  float mean_gh;
  HWY_INLINE Vf value(Vf g, Vf v) const {
    const Vf centred = hn::NegMulAdd(gh.h(v), set(mean_gh), hn::Sub(g, set(mean_g)));
    return hn::Mul(centred, set(gh.moments.rstd));
  }
  HWY_INLINE Vf at(size_t i) const { return value(gh.g.at(i), load(gh.x + i)); }
  HWY_INLINE Vf tail(size_t i, size_t n) const {
    return value(gh.g.tail(i, n), load_tail(gh.x + i, n));
  }
};
struct GammaGradient {
  GradientTimesNormalised gh;
  const float* acc;
  HWY_INLINE Vf at(size_t i) const { return hn::Add(load(acc + i), gh.at(i)); }
  HWY_INLINE Vf tail(size_t i, size_t n) const {
    return hn::Add(load_tail(acc + i, n), gh.tail(i, n));
  }
};

void layer_norm_backward(const float* dy, const float* x, const float* gamma, RowMoments moments,
                         float* dx, float* dgamma, float* dbeta, size_t n) {
  // The weights' gradients first: dx may overwrite dy or x.
  const Weights ones = {nullptr, 1.0F};
  if (dgamma != nullptr) write_row(GammaGradient{{{dy, ones}, x, moments}, dgamma}, dgamma, n);
  if (dbeta != nullptr) accumulate(dy, dbeta, n);
  if (dx == nullptr) return;
  const auto count = static_cast<float>(n);
  const GradientTimesNormalised gh = {{dy, {gamma, 1.0F}}, x, moments};
  const float mean_g = sum_of(gh.g, 0, n) / count;
  const float mean_gh = sum_of(gh, 0, n) / count;
  write_row(NormGradient{gh, mean_g, mean_gh}, dx, n);
}

void rms_norm_backward(const float* dy, const float* x, const float* gamma, float rstd, float* dx,
                       float* dgamma, size_t n) {
  const RowMoments moments = {0.0F, rstd};
  const Weights ones = {nullptr, 1.0F};
  if (dgamma != nullptr) write_row(GammaGradient{{{dy, ones}, x, moments}, dgamma}, dgamma, n);
  if (dx == nullptr) return;
  const GradientTimesNormalised gh = {{dy, {gamma, 1.0F}}, x, moments};
  const float mean_gh = sum_of(gh, 0, n) / static_cast<float>(n);
  write_row(NormGradient{gh, 0.0F, mean_gh}, dx, n);
}

}  // namespace

constexpr RowKernels table = {
    .target = kTargetName,
    .sum = row_sum,
    .max = row_max,
    .min = row_min,
    .find = row_find,
    .squared_deviation = squared_deviation,
    .dot = row_dot,
    .squared_difference = squared_difference,
    .accumulate = accumulate,
    .softmax = softmax,
    .log_softmax = log_softmax,
    .softmax_backward = softmax_backward,
    .log_softmax_backward = log_softmax_backward,
    .layer_norm = layer_norm,
    .rms_norm = rms_norm,
    .layer_norm_backward = layer_norm_backward,
    .rms_norm_backward = rms_norm_backward,
};

}  // namespace epilogue::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace epilogue::simd {

const RowKernels& row_kernels() { return EPILOGUE_PICK(table); }

}  // namespace epilogue::simd
#endif  // HWY_ONCE
