// SPDX-License-Identifier: Apache-2.0
// Activations: relu, sigmoid, tanh, silu and their backward ops. FLOPs (of the table's rows) count
// every +, -, * and /, and one for each exp or tanh.
#include <cmath>

#include "epilogue/ops.h"
#include "ops/ops.h"
#include "ops/pointwise/pointwise_op.h"

namespace epilogue {
namespace {

Tensor one_minus(const Tensor& x) { return sub(scalar(1.0), x); }

// The last one reaches far into both tails.
struct ActivationMeaning : UnaryMeaning {
  static std::vector<Sample> samples() {
    std::vector<Sample> list = unary_samples();
    list.push_back({.in = {{.sizes = {67}, .low = -30, .high = 30}}});
    return list;
  }
};
// Whose backward op reads the output.
struct OutputBackwardMeaning : BinaryMeaning {
  static constexpr std::string_view schema = "(Tensor grad_output, Tensor output)";
};

}  // namespace

template <>
struct Meaning<PointwiseFn::relu> : ActivationMeaning {
  static constexpr auto infer = infer_numbers;
  static constexpr std::string_view doc = "max(self, 0)";
  template <class T>  // integers are not rounded
  static T value(T x) {
    return x <= 0 ? T{} : x;
  }
  static Gradients gradient(const GradCall& g) {
    return {run_op(kThresholdBackward, args(g.dout, g.out[0]), {0.0})};
  }
};

template <>
struct Meaning<PointwiseFn::sigmoid> : ActivationMeaning {
  static constexpr auto infer = infer_unary_floating;
  static constexpr std::string_view doc = "1 / (1 + exp(-self))";
  static double value(double x) { return sigmoid_of(x); }
  static Gradients gradient(const GradCall& g) {
    return {run_op(kSigmoidBackward, args(g.dout, g.out[0]))};
  }
};
template <>
struct Meaning<PointwiseFn::sigmoid_backward> : OutputBackwardMeaning {
  static constexpr std::string_view doc = "grad_output * output * (1 - output)";
  static double value(double dy, double y) { return dy * y * (1 - y); }
  // d/dy: dy (1 - 2 y)
  static Gradients gradient(const GradCall& g) {
    const Tensor& dy = g.in[0];
    const Tensor& y = g.in[1];
    return {g.needs[0] ? run_op(kSigmoidBackward, args(g.dout, y)) : Tensor(),
            g.needs[1] ? g.dout * dy * one_minus(y * 2.0) : Tensor()};
  }
  static std::vector<Sample> samples() { return binary_samples({}, {0, 1}); }
};

template <>
struct Meaning<PointwiseFn::tanh> : ActivationMeaning {
  static constexpr auto infer = infer_unary_floating;
  static constexpr std::string_view doc = "hyperbolic tangent";
  static double value(double x) { return std::tanh(x); }
  static Gradients gradient(const GradCall& g) {
    return {run_op(kTanhBackward, args(g.dout, g.out[0]))};
  }
};
template <>
struct Meaning<PointwiseFn::tanh_backward> : OutputBackwardMeaning {
  static constexpr std::string_view doc = "grad_output * (1 - output * output)";
  static double value(double dy, double y) { return dy * (1 - y * y); }
  // d/dy: -2 dy y
  static Gradients gradient(const GradCall& g) {
    const Tensor& dy = g.in[0];
    const Tensor& y = g.in[1];
    return {g.needs[0] ? run_op(kTanhBackward, args(g.dout, y)) : Tensor(),
            g.needs[1] ? g.dout * dy * y * -2.0 : Tensor()};
  }
  static std::vector<Sample> samples() { return binary_samples({}, {-1, 1}); }
};

template <>
struct Meaning<PointwiseFn::silu> : ActivationMeaning {
  static constexpr std::string_view doc = "self / (1 + exp(-self))";
  static double value(double x) { return x / (1 + std::exp(-x)); }
  static Gradients gradient(const GradCall& g) {
    return {run_op(kSiluBackward, args(g.dout, g.in[0]))};
  }
};
template <>
struct Meaning<PointwiseFn::silu_backward> : BinaryMeaning {
  static constexpr std::string_view doc =
      "grad_output * s * (1 + self * (1 - s)), s = sigmoid(self)";
  static double value(double dy, double x) {
    const double s = sigmoid_of(x);
    return dy * s * (1 + x * (1 - s));
  }
  // d/dx: dy s (1 - s) (2 + x (1 - 2 s))
  static Gradients gradient(const GradCall& g) {
    const Tensor& dy = g.in[0];
    const Tensor& x = g.in[1];
    const Tensor ddy = g.needs[0] ? run_op(kSiluBackward, args(g.dout, x)) : Tensor();
    if (!g.needs[1]) return {ddy, Tensor()};
    const Tensor s = sigmoid(x);
    const Tensor second = s * one_minus(s) * (x * one_minus(s * 2.0) + 2.0);
    return {ddy, g.dout * dy * second};
  }
  static std::vector<Sample> samples() { return binary_samples({}, {-6, 6}); }
};

constinit const OpDef kRelu = pointwise_op<PointwiseFn::relu>();
constinit const OpDef kSigmoid = pointwise_op<PointwiseFn::sigmoid>();
constinit const OpDef kSigmoidBackward = pointwise_op<PointwiseFn::sigmoid_backward>();
constinit const OpDef kTanh = pointwise_op<PointwiseFn::tanh>();
constinit const OpDef kTanhBackward = pointwise_op<PointwiseFn::tanh_backward>();
constinit const OpDef kSilu = pointwise_op<PointwiseFn::silu>();
constinit const OpDef kSiluBackward = pointwise_op<PointwiseFn::silu_backward>();

// By hand: relu's backward function is this op with one value of its attribute.
constinit const OpDef kThresholdBackward{
    .name = "aten::threshold_backward",
    .schema = "(Tensor grad_output, Tensor self, Scalar threshold)",
    .doc = "grad_output where self > threshold, else 0",
    .pointwise = true,
    .infer = infer_binary,
    .flops = flops_per_element<1>,
    .vjp = [](const GradCall& g) -> Gradients {
      return {run_op(kThresholdBackward, args(g.dout, g.in[1]), {g.attrs[0]}), Tensor()};
    },
    .saves = save_input(1),
    .reference =
        [](const Call& call) {
          const auto threshold = call.attr<double>(0);
          pointwise_reference<2>(call, [threshold]<class T>(T dy, T x) {
            return static_cast<double>(x) <= threshold ? T{} : dy;
          });
        },
    .samples = [] { return binary_samples({0.0}); }};

Tensor relu(const Tensor& self) { return run_op(kRelu, args(self)); }
Tensor sigmoid(const Tensor& self) { return run_op(kSigmoid, args(self)); }
Tensor tanh(const Tensor& self) { return run_op(kTanh, args(self)); }
Tensor silu(const Tensor& self) { return run_op(kSilu, args(self)); }

}  // namespace epilogue
