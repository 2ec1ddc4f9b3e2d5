// SPDX-License-Identifier: Apache-2.0
// The activations' meanings: one Meaning for each row of the table, PyTorch's formulas.
#include <algorithm>
#include <cmath>

#include "epilogue/ops.h"
#include "ops/ops.h"
#include "ops/pointwise/pointwise_op.h"

namespace epilogue {
namespace {

// tanh(log(1 + e^x))
double mish_gate(double x) { return std::tanh(x > 40 ? x : std::log1p(std::exp(x))); }

Tensor backward_of(PointwiseFn fn, const Tensor& dy, const Tensor& x,
                   std::span<const Attr> attrs = {}) {
  return run_op(function_op(fn), args(dy, x).span(), attrs)[0];
}
// The gradient to dy of a function that is linear in it.
Tensor linear_part(PointwiseFn fn, const GradCall& g) {
  return g.needs[0] ? backward_of(fn, g.dout, g.in[1], g.attrs) : Tensor();
}

// A function of one operand whose gradient is a function of its own, with the same attributes.
template <PointwiseFn kBackward>
struct WithBackward : UnaryMeaning {
  static Gradients gradient(const GradCall& g) {
    return {backward_of(kBackward, g.dout, g.in[0], g.attrs)};
  }
};

// Away from 0, where some are not smooth; the second input of binary ones.
constexpr SampleRange kSmooth = {0.25, 2};
constexpr SampleRange kSmoothBelow = {-2, -0.25};

std::vector<Sample> joined(std::vector<Sample> a, const std::vector<Sample>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

}  // namespace

template <>
struct Meaning<PointwiseFn::leaky_relu> : UnaryMeaning {
  static constexpr std::string_view schema = "(Tensor self, Scalar negative_slope=0.01)";
  static constexpr std::string_view doc = "self where self > 0, else negative_slope * self";
  static double value(double x, double slope) { return x > 0 ? x : x * slope; }
  static Gradients gradient(const GradCall& g) {
    const Attr attrs[] = {g.attrs[0], false};
    return {backward_of(PointwiseFn::leaky_relu_backward, g.dout, g.in[0], attrs)};
  }
  static std::vector<Sample> samples() {
    return joined(unary_samples({0.01}, kSmooth), unary_samples({0.2}, kSmoothBelow));
  }
};
template <>
struct Meaning<PointwiseFn::leaky_relu_backward> : BinaryMeaning {
  static constexpr std::string_view schema =
      "(Tensor grad_output, Tensor self, Scalar negative_slope, bool self_is_result)";
  static constexpr std::string_view doc =
      "grad_output where self > 0, else negative_slope * grad_output";
  static double value(double dy, double x, double slope) { return x > 0 ? dy : dy * slope; }
  static Gradients gradient(const GradCall& g) {
    return {linear_part(PointwiseFn::leaky_relu_backward, g), Tensor()};
  }
  static std::vector<Sample> samples() {
    return joined(binary_samples({0.01, false}, kSmooth),
                  binary_samples({0.2, false}, kSmoothBelow));
  }
};

template <>
struct Meaning<PointwiseFn::elu> : UnaryMeaning {
  static constexpr std::string_view schema =
      "(Tensor self, Scalar alpha=1, Scalar scale=1, Scalar input_scale=1)";
  static constexpr std::string_view doc =
      "scale * (self where self > 0, else alpha * (exp(input_scale * self) - 1))";
  static double value(double x, double alpha, double scale, double input_scale) {
    return x < 0 ? std::expm1(x * input_scale) * (alpha * scale) : x * scale;
  }
  static Gradients gradient(const GradCall& g) {
    const Attr attrs[] = {g.attrs[0], g.attrs[1], g.attrs[2], false};
    return {backward_of(PointwiseFn::elu_backward, g.dout, g.in[0], attrs)};
  }
  static std::vector<Sample> samples() {
    return joined(unary_samples({1.0, 1.0, 1.0}, kSmoothBelow),
                  joined(unary_samples({1.5, 0.5, 2.0}, kSmoothBelow),
                         unary_samples({1.5, 0.5, 2.0}, kSmooth)));
  }
};
// PyTorch takes the result instead of the input where is_result is set: for in-place calls, of
// which there are none.
template <>
struct Meaning<PointwiseFn::elu_backward> : BinaryMeaning {
  static constexpr std::string_view schema =
      "(Tensor grad_output, Scalar alpha, Scalar scale, Scalar input_scale, bool is_result, "
      "Tensor self_or_result)";
  static constexpr std::string_view doc = "grad_output * elu'(self)";
  static OutMetas infer(const Call& call) {
    if (call.attr<bool>(3)) fail(call.op, "is_result false: the input", "the result");
    return infer_floating(call);
  }
  static double value(double dy, double x, double alpha, double scale, double input_scale) {
    return x <= 0 ? dy * (alpha * scale * input_scale) * std::exp(x * input_scale) : dy * scale;
  }
  static Gradients gradient(const GradCall& g) {
    const Tensor ddy = linear_part(PointwiseFn::elu_backward, g);
    if (!g.needs[1]) return {ddy, Tensor()};
    const Tensor bend = backward_of(PointwiseFn::elu_backward, g.dout * g.in[0] * g.attr<double>(2),
                                    g.in[1], g.attrs);
    return {ddy, where(le(g.in[1], 0), bend, 0)};
  }
  static std::vector<Sample> samples() {
    return joined(binary_samples({1.0, 1.0, 1.0, false}, kSmoothBelow),
                  binary_samples({1.5, 0.5, 2.0, false}, kSmooth));
  }
};

template <>
struct Meaning<PointwiseFn::softplus> : WithBackward<PointwiseFn::softplus_backward> {
  static constexpr std::string_view schema = "(Tensor self, Scalar beta=1, Scalar threshold=20)";
  static constexpr std::string_view doc =
      "log(1 + exp(beta * self)) / beta; self where beta * self > threshold";
  static constexpr std::array<AutocastRule, 2> autocast = {AutocastRule::none, AutocastRule::f32};
  static double value(double x, double beta, double threshold) {
    return x * beta > threshold ? x : std::log1p(std::exp(x * beta)) / beta;
  }
  static std::vector<Sample> samples() {
    return joined(unary_samples({1.0, 20.0}),
                  joined(unary_samples({2.5, 20.0}), unary_samples({1.0, 0.0}, kSmooth)));
  }
};
template <>
struct Meaning<PointwiseFn::softplus_backward> : BinaryMeaning {
  static constexpr std::string_view schema =
      "(Tensor grad_output, Tensor self, Scalar beta, Scalar threshold)";
  static constexpr std::string_view doc =
      "grad_output * sigmoid(beta * self); grad_output where beta * self > threshold";
  static double value(double dy, double x, double beta, double threshold) {
    return x * beta > threshold ? dy : dy * sigmoid_of(x * beta);
  }
  static Gradients gradient(const GradCall& g) {
    const Tensor ddy = linear_part(PointwiseFn::softplus_backward, g);
    if (!g.needs[1]) return {ddy, Tensor()};
    const Tensor scaled = g.in[1] * g.attr<double>(0);
    const Tensor s = sigmoid(scaled);
    const Tensor slope = g.dout * g.in[0] * s * sub(scalar(1.0), s) * g.attr<double>(0);
    return {ddy, where(gt(scaled, g.attr<double>(1)), 0, slope)};
  }
  static std::vector<Sample> samples() {
    return joined(binary_samples({1.0, 20.0}), binary_samples({2.5, 0.0}, kSmooth));
  }
};

template <>
struct Meaning<PointwiseFn::mish> : WithBackward<PointwiseFn::mish_backward> {
  static constexpr std::string_view doc = "self * tanh(log(1 + exp(self)))";
  static double value(double x) { return x * mish_gate(x); }
};
template <>
struct Meaning<PointwiseFn::mish_backward> : BinaryMeaning {
  static constexpr std::string_view doc =
      "grad_output * (t + self * s * (1 - t * t)), t = tanh(log(1 + exp(self))), s = sigmoid(self)";
  static double value(double dy, double x) {
    const double t = mish_gate(x);
    return dy * (t + x * sigmoid_of(x) * (1 - t * t));
  }
  // d/dx: s (1 - t^2) (2 + x (1 - s - 2 t s))
  static Gradients gradient(const GradCall& g) {
    const Tensor ddy = linear_part(PointwiseFn::mish_backward, g);
    if (!g.needs[1]) return {ddy, Tensor()};
    const Tensor& x = g.in[1];
    const Tensor s = sigmoid(x);
    const Tensor t = tanh(softplus(x));
    const Tensor bend = x * (sub(scalar(1.0), s) - t * s * 2.0) + 2.0;
    return {ddy, g.dout * g.in[0] * s * sub(scalar(1.0), t * t) * bend};
  }
};

template <>
struct Meaning<PointwiseFn::hardswish> : WithBackward<PointwiseFn::hardswish_backward> {
  static constexpr std::string_view doc = "self * clamp(self + 3, 0, 6) / 6";
  static double value(double x) { return x * (x < -3 ? 0 : x > 3 ? 6 : x + 3) / 6; }
};
template <>
struct Meaning<PointwiseFn::hardswish_backward> : BinaryMeaning {
  static constexpr std::string_view doc =
      "0 where self < -3, grad_output where self > 3, else grad_output * (self / 3 + 1 / 2)";
  static double value(double dy, double x) { return x < -3 ? 0 : x > 3 ? dy : dy * (x / 3 + 0.5); }
  static Gradients gradient(const GradCall& g) {
    const Tensor ddy = linear_part(PointwiseFn::hardswish_backward, g);
    if (!g.needs[1]) return {ddy, Tensor()};
    const Tensor slope = g.dout * g.in[0] / 3.0;
    return {ddy, where(lt(g.in[1], -3), 0, where(gt(g.in[1], 3), 0, slope))};
  }
};

constinit const ActivationOps kActivationOps =
    pointwise_ops<PointwiseFn::leaky_relu, std::tuple_size_v<ActivationOps>>();

Tensor leaky_relu(const Tensor& self, double negative_slope) {
  return run_op(function_op(PointwiseFn::leaky_relu), args(self), {negative_slope});
}
Tensor elu(const Tensor& self, double alpha, double scale, double input_scale) {
  return run_op(function_op(PointwiseFn::elu), args(self), {alpha, scale, input_scale});
}
Tensor softplus(const Tensor& self, double beta, double threshold) {
  return run_op(function_op(PointwiseFn::softplus), args(self), {beta, threshold});
}
Tensor mish(const Tensor& self) { return run_op(function_op(PointwiseFn::mish), args(self)); }
Tensor hardswish(const Tensor& self) {
  return run_op(function_op(PointwiseFn::hardswish), args(self));
}

}  // namespace epilogue
