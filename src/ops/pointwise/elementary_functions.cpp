// SPDX-License-Identifier: Apache-2.0
// The elementary functions' meanings: roots, powers, sines, bounds, comparisons and selection.
#include <cmath>
#include <type_traits>

#include "epilogue/ops.h"
#include "ops/ops.h"
#include "ops/pointwise/pointwise_op.h"

namespace epilogue {
namespace {

template <class T>
bool is_nan(T x) {
  if constexpr (std::is_floating_point_v<T>) return std::isnan(x);
  return false;
}
// NaN of either comes through.
template <class T>
T larger(T a, T b) {
  return is_nan(a) || a >= b ? a : b;
}
template <class T>
T smaller(T a, T b) {
  return is_nan(a) || a <= b ? a : b;
}

OutMetas infer_truth(const Call& call) {
  return OutMeta{broadcast_sizes(call.op, call.in[0].sizes(), call.in[1].sizes()), DType::boolean};
}

// Bounds of integers are integers: what PyTorch would give as f32 is refused.
void require_bounds_fit(const Call& call) {
  if (is_floating(call.in[0].dtype())) return;
  for (const Attr& attr : call.attrs)
    if (const auto bound = number_of(attr); bound && *bound != std::floor(*bound))
      fail(call.op, "integer bounds for integer tensors", std::to_string(*bound));
}

// The number as it is in a comparison with self: PyTorch rounds it to self's dtype.
Tensor number_like(const Tensor& self, double number) {
  if (self.defined() && is_floating(self.dtype()))
    return scalar(
        dispatch(self.dtype(), [&]<class T>() { return widen(round_from_double<T>(number)); }));
  return number == std::floor(number) && std::abs(number) < 0x1p62
             ? scalar(static_cast<int64_t>(number))
             : scalar(number);
}

std::vector<Sample> comparison_samples() {
  std::vector<Sample> samples = binary_samples();
  // Some equal.
  samples.push_back({{{{5, 7}, 0, 3, DType::i64}, {{5, 7}, 0, 3, DType::i64}}});
  samples.push_back({{{{5, 7}, 0, 3, DType::u8}, {{7}, 0, 3, DType::u8}}});
  return samples;
}

struct Comparison : BinaryMeaning {
  static constexpr auto infer = infer_truth;
  static Gradients gradient(const GradCall&) { return {}; }
  static std::vector<Sample> samples() { return comparison_samples(); }
  static constexpr std::string_view schema = "(Tensor self, Tensor other)";
};

struct NumberMeaning : UnaryMeaning {
  static constexpr auto infer = infer_numbers;
};
struct RealMeaning : UnaryMeaning {
  static constexpr auto infer = infer_unary_floating;
};

// The gradient of maximum (kSign 1) and minimum: half to each where both are it, as PyTorch's.
template <int kSign>
Gradients extremum_gradient(const GradCall& g) {
  const Tensor& a = g.in[0];
  const Tensor& b = g.in[1];
  const Tensor shared = where(eq(a, b), g.dout * 0.5, g.dout);
  const Tensor a_loses = kSign > 0 ? lt(a, b) : gt(a, b);
  const Tensor b_loses = kSign > 0 ? gt(a, b) : lt(a, b);
  return {g.needs[0] ? where(a_loses, 0, shared) : Tensor(),
          g.needs[1] ? where(b_loses, 0, shared) : Tensor()};
}

}  // namespace

template <>
struct Meaning<PointwiseFn::sqrt> : RealMeaning {
  static constexpr std::string_view doc = "square root";
  static double value(auto x) { return std::sqrt(static_cast<double>(x)); }
  static Gradients gradient(const GradCall& g) { return {g.dout / (g.out[0] * 2.0)}; }
  static std::vector<Sample> samples() { return unary_samples({}, {0.25, 4}); }
};

template <>
struct Meaning<PointwiseFn::abs> : NumberMeaning {
  static constexpr std::string_view doc = "magnitude";
  static auto value(auto x) { return x < 0 ? -x : x == 0 ? decltype(x){} : x; }
  static Gradients gradient(const GradCall& g) {
    return {g.dout * run_op(function_op(PointwiseFn::sgn), args(g.in[0]))};
  }
  static std::vector<Sample> samples() { return unary_samples({}, {-2.01, -0.25}); }
};
template <>
struct Meaning<PointwiseFn::sgn> : NumberMeaning {
  static constexpr std::string_view doc = "-1, 0 or 1 as self is negative, 0 or positive";
  static auto value(auto x) { return static_cast<decltype(x)>((x > 0) - (x < 0)); }
  static Gradients gradient(const GradCall& g) { return {g.dout * 0.0}; }
  static std::vector<Sample> samples() { return unary_samples({}, {-2.01, -0.25}); }
};

template <>
struct Meaning<PointwiseFn::sin> : RealMeaning {
  static constexpr std::string_view doc = "sine";
  static double value(auto x) { return std::sin(static_cast<double>(x)); }
  static Gradients gradient(const GradCall& g) { return {g.dout * cos(g.in[0])}; }
};
template <>
struct Meaning<PointwiseFn::cos> : RealMeaning {
  static constexpr std::string_view doc = "cosine";
  static double value(auto x) { return std::cos(static_cast<double>(x)); }
  static Gradients gradient(const GradCall& g) { return {neg(g.dout * sin(g.in[0]))}; }
};

template <>
struct Meaning<PointwiseFn::pow> : RealMeaning {
  static constexpr std::string_view schema = "(Tensor self, Scalar exponent)";
  static constexpr std::string_view doc = "self to a power; integers give f32";
  static constexpr std::array<AutocastRule, 2> autocast = {AutocastRule::none, AutocastRule::f32};
  static double value(auto x, double exponent) {
    return std::pow(static_cast<double>(x), exponent);
  }
  static Gradients gradient(const GradCall& g) {
    const auto exponent = g.attr<double>(0);
    if (exponent == 0) return {g.dout * 0.0};
    return {g.dout * (pow(g.in[0], exponent - 1) * exponent)};
  }
  static std::vector<Sample> samples() {
    std::vector<Sample> samples;
    for (const double exponent : {2.0, 3.0, 0.5, -1.0, -2.5, 1.7, 0.0, 1.0})
      for (Sample& s : unary_samples({exponent}, {0.25, 2})) samples.push_back(std::move(s));
    return samples;
  }
};

template <>
struct Meaning<PointwiseFn::clamp> : NumberMeaning {
  static constexpr std::string_view schema = "(Tensor self, Scalar? min=None, Scalar? max=None)";
  static constexpr std::string_view doc = "self, at least min and at most max";
  static OutMetas infer(const Call& call) {
    if (!call.has_attr(0) && !call.has_attr(1)) fail(call.op, "min, max or both", "neither");
    require_bounds_fit(call);
    return infer_numbers(call);
  }
  template <class T>
  static T value(T x, double low, double high) {
    const double bounded = smaller(larger(static_cast<double>(x), low), high);
    // Integers that are within the bounds stay as they are, however large.
    return bounded == static_cast<double>(x) ? x : static_cast<T>(bounded);
  }
  static Gradients gradient(const GradCall& g) {
    Tensor dx = g.dout;
    if (g.has_attr(1)) dx = where(le(g.in[0], g.attr<double>(1)), dx, 0);
    if (g.has_attr(0)) dx = where(ge(g.in[0], g.attr<double>(0)), dx, 0);
    return {dx};
  }
  static std::vector<Sample> samples() {
    std::vector<Sample> samples = unary_samples({-3.0, 3.0});  // within
    for (Sample& s : unary_samples({-1.0, Attr()}, {-2, -1.25})) samples.push_back(std::move(s));
    for (Sample& s : unary_samples({Attr(), 1.0}, {1.25, 2})) samples.push_back(std::move(s));
    return samples;
  }
};

template <>
struct Meaning<PointwiseFn::maximum> : BinaryMeaning {
  static constexpr auto infer = infer_binary;
  static constexpr std::string_view schema = "(Tensor self, Tensor other)";
  static constexpr std::string_view doc = "the larger one; NaN where one is NaN";
  template <class T>
  static T value(T a, T b) {
    return larger(a, b);
  }
  static Gradients gradient(const GradCall& g) { return extremum_gradient<1>(g); }
};
template <>
struct Meaning<PointwiseFn::minimum> : BinaryMeaning {
  static constexpr auto infer = infer_binary;
  static constexpr std::string_view schema = "(Tensor self, Tensor other)";
  static constexpr std::string_view doc = "the smaller one; NaN where one is NaN";
  template <class T>
  static T value(T a, T b) {
    return smaller(a, b);
  }
  static Gradients gradient(const GradCall& g) { return extremum_gradient<-1>(g); }
};

template <>
struct Meaning<PointwiseFn::eq> : Comparison {
  static constexpr std::string_view doc = "whether self = other";
  static auto value(auto a, auto b) { return static_cast<decltype(a)>(a == b); }
};
template <>
struct Meaning<PointwiseFn::ne> : Comparison {
  static constexpr std::string_view doc = "whether self and other differ";
  static auto value(auto a, auto b) { return static_cast<decltype(a)>(a != b); }
};
template <>
struct Meaning<PointwiseFn::lt> : Comparison {
  static constexpr std::string_view doc = "whether self < other";
  static auto value(auto a, auto b) { return static_cast<decltype(a)>(a < b); }
};
template <>
struct Meaning<PointwiseFn::le> : Comparison {
  static constexpr std::string_view doc = "whether self <= other";
  static auto value(auto a, auto b) { return static_cast<decltype(a)>(a <= b); }
};
template <>
struct Meaning<PointwiseFn::gt> : Comparison {
  static constexpr std::string_view doc = "whether self > other";
  static auto value(auto a, auto b) { return static_cast<decltype(a)>(a > b); }
};
template <>
struct Meaning<PointwiseFn::ge> : Comparison {
  static constexpr std::string_view doc = "whether self >= other";
  static auto value(auto a, auto b) { return static_cast<decltype(a)>(a >= b); }
};

template <>
struct Meaning<PointwiseFn::where> : BinaryMeaning {
  static constexpr std::string_view schema = "(Tensor condition, Tensor self, Tensor other)";
  static constexpr std::string_view doc = "self where condition is true, else other";
  static OutMetas infer(const Call& call) {
    if (call.in[0].dtype() != DType::boolean)
      fail(call.op, "a condition of booleans", to_string(call.in[0]));
    const Dims sizes = broadcast_sizes(call.op, call.in[1].sizes(), call.in[2].sizes());
    return OutMeta{broadcast_sizes(call.op, call.in[0].sizes(), sizes),
                   result_dtype(call.in.subspan(1))};
  }
  static auto value(auto condition, auto a, auto b) { return condition != 0 ? a : b; }
  static Gradients gradient(const GradCall& g) {
    return {Tensor(), g.needs[1] ? where(g.in[0], g.dout, 0) : Tensor(),
            g.needs[2] ? where(g.in[0], 0, g.dout) : Tensor()};
  }
  static std::vector<Sample> samples() {
    const auto sample = [](Dims condition, Dims a, Dims b) {
      return Sample{{{condition, 0, 2, DType::boolean}, {a}, {b}}};
    };
    return {sample({3, 5}, {3, 5}, {3, 5}), sample({67}, {67}, {67}), sample({}, {7}, {7}),
            sample({4, 1}, {6}, {4, 6}),    sample({7}, {}, {7}),     sample({0, 3}, {3}, {})};
  }
};

constinit const ElementaryOps kElementaryOps =
    pointwise_ops<PointwiseFn::sqrt, std::tuple_size_v<ElementaryOps>>();

namespace {
Tensor run(PointwiseFn fn, const Tensor& self) { return run_op(function_op(fn), args(self)); }
Tensor run(PointwiseFn fn, const Tensor& self, const Tensor& other) {
  return run_op(function_op(fn), args(self, other));
}
Attr bound_of(const std::optional<double>& bound) { return bound ? Attr(*bound) : Attr(); }
}  // namespace

Tensor sqrt(const Tensor& self) { return run(PointwiseFn::sqrt, self); }
Tensor abs(const Tensor& self) { return run(PointwiseFn::abs, self); }
Tensor sgn(const Tensor& self) { return run(PointwiseFn::sgn, self); }
Tensor sin(const Tensor& self) { return run(PointwiseFn::sin, self); }
Tensor cos(const Tensor& self) { return run(PointwiseFn::cos, self); }
Tensor pow(const Tensor& self, double exponent) {
  return run_op(function_op(PointwiseFn::pow), args(self), {exponent});
}
Tensor clamp(const Tensor& self, std::optional<double> min, std::optional<double> max) {
  return run_op(function_op(PointwiseFn::clamp), args(self), {bound_of(min), bound_of(max)});
}
Tensor maximum(const Tensor& self, const Tensor& other) {
  return run(PointwiseFn::maximum, self, other);
}
Tensor minimum(const Tensor& self, const Tensor& other) {
  return run(PointwiseFn::minimum, self, other);
}
Tensor eq(const Tensor& self, const Tensor& other) { return run(PointwiseFn::eq, self, other); }
Tensor ne(const Tensor& self, const Tensor& other) { return run(PointwiseFn::ne, self, other); }
Tensor lt(const Tensor& self, const Tensor& other) { return run(PointwiseFn::lt, self, other); }
Tensor le(const Tensor& self, const Tensor& other) { return run(PointwiseFn::le, self, other); }
Tensor gt(const Tensor& self, const Tensor& other) { return run(PointwiseFn::gt, self, other); }
Tensor ge(const Tensor& self, const Tensor& other) { return run(PointwiseFn::ge, self, other); }
Tensor eq(const Tensor& self, double other) { return eq(self, number_like(self, other)); }
Tensor ne(const Tensor& self, double other) { return ne(self, number_like(self, other)); }
Tensor lt(const Tensor& self, double other) { return lt(self, number_like(self, other)); }
Tensor le(const Tensor& self, double other) { return le(self, number_like(self, other)); }
Tensor gt(const Tensor& self, double other) { return gt(self, number_like(self, other)); }
Tensor ge(const Tensor& self, double other) { return ge(self, number_like(self, other)); }
Tensor where(const Tensor& condition, const Tensor& self, const Tensor& other) {
  return run_op(function_op(PointwiseFn::where), args(condition, self, other));
}

}  // namespace epilogue
