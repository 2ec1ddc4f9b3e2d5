// SPDX-License-Identifier: Apache-2.0
// Activations: relu, sigmoid, tanh, silu and their backward ops. FLOPs count every +, -, * and /,
// and one for each exp or tanh.
#include <cmath>

#include "epilogue/ops.h"
#include "ops/ops.h"
#include "ops/reference.h"
#include "ops/run_op.h"

namespace epilogue {
namespace {

double sigmoid_of(double x) { return 1 / (1 + std::exp(-x)); }
Tensor one_minus(const Tensor& x) { return sub(scalar(1.0), x); }

OutMetas infer_relu(const Call& call) {
  if (call.in[0].dtype() == DType::boolean) fail(call.op, "numbers", to_string(call.in[0]));
  return infer_unary(call);
}
OutMetas infer_floating(const Call& call) {
  require_floating(call.op, call.in[0]);
  return infer_unary(call);
}
OutMetas infer_backward(const Call& call) {
  require_floating(call.op, call.in[0]);
  require_floating(call.op, call.in[1]);
  return infer_binary(call);
}

// The widest reaches far into both tails.
std::vector<Sample> unary_samples() {
  return {{.in = {{.sizes = {3, 5}}}},
          {.in = {{.sizes = {}}}},
          {.in = {{.sizes = {67}, .low = -30, .high = 30}}},
          {.in = {{.sizes = {0, 3}}}}};
}
// The second input is drawn from [low, high).
std::vector<Sample> backward_samples(const std::vector<Attr>& attrs, double low, double high) {
  return {{.in = {{.sizes = {3, 5}}, {.sizes = {3, 5}, .low = low, .high = high}}, .attrs = attrs},
          {.in = {{.sizes = {67}}, {.sizes = {67}, .low = low, .high = high}}, .attrs = attrs},
          {.in = {{.sizes = {}}, {.sizes = {}, .low = low, .high = high}}, .attrs = attrs}};
}

}  // namespace

constinit const OpDef kRelu{.name = "aten::relu",
                            .schema = "(Tensor self)",
                            .doc = "max(self, 0)",
                            .pointwise = true,
                            .infer = infer_relu,
                            .flops = flops_per_element<1>,
                            .vjp = [](const GradCall& g) -> Gradients {
                              return {run_op(kThresholdBackward, args(g.dout, g.out[0]), {0.0})};
                            },
                            .saves = kSaveOutput,
                            .reference =
                                [](const Call& call) {
                                  pointwise_reference<1>(
                                      call, []<class T>(T x) { return x <= 0 ? T{} : x; });
                                },
                            .samples = unary_samples};

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
    .samples = [] { return backward_samples({0.0}, -2, 2); }};

constinit const OpDef kSigmoid{
    .name = "aten::sigmoid",
    .schema = "(Tensor self)",
    .doc = "1 / (1 + exp(-self))",
    .pointwise = true,
    .infer = infer_unary_floating,
    .flops = flops_per_element<4>,
    .vjp = [](const GradCall& g) -> Gradients {
      return {run_op(kSigmoidBackward, args(g.dout, g.out[0]))};
    },
    .saves = kSaveOutput,
    .reference =
        [](const Call& call) {
          pointwise_reference<1>(call, [](auto x) { return sigmoid_of(static_cast<double>(x)); });
        },
    .samples = unary_samples};

// dy * y (1 - y)
constinit const OpDef kSigmoidBackward{
    .name = "aten::sigmoid_backward",
    .schema = "(Tensor grad_output, Tensor output)",
    .doc = "grad_output * output * (1 - output)",
    .pointwise = true,
    .infer = infer_backward,
    .flops = flops_per_element<3>,
    // d/dy: dy (1 - 2 y)
    .vjp = [](const GradCall& g) -> Gradients {
      const Tensor& dy = g.in[0];
      const Tensor& y = g.in[1];
      return {g.needs[0] ? run_op(kSigmoidBackward, args(g.dout, y)) : Tensor(),
              g.needs[1] ? g.dout * dy * one_minus(y * 2.0) : Tensor()};
    },
    .saves = save_input(0) | save_input(1),
    .reference =
        [](const Call& call) {
          pointwise_reference<2>(call, []<class T>(T dy, T y) { return dy * y * (1 - y); });
        },
    .samples = [] { return backward_samples({}, 0, 1); }};

constinit const OpDef kTanh{
    .name = "aten::tanh",
    .schema = "(Tensor self)",
    .doc = "hyperbolic tangent",
    .pointwise = true,
    .infer = infer_unary_floating,
    .flops = flops_per_element<1>,
    .vjp = [](const GradCall& g) -> Gradients {
      return {run_op(kTanhBackward, args(g.dout, g.out[0]))};
    },
    .saves = kSaveOutput,
    .reference =
        [](const Call& call) {
          pointwise_reference<1>(call, [](auto x) { return std::tanh(static_cast<double>(x)); });
        },
    .samples = unary_samples};

// dy (1 - y^2)
constinit const OpDef kTanhBackward{
    .name = "aten::tanh_backward",
    .schema = "(Tensor grad_output, Tensor output)",
    .doc = "grad_output * (1 - output * output)",
    .pointwise = true,
    .infer = infer_backward,
    .flops = flops_per_element<3>,
    // d/dy: -2 dy y
    .vjp = [](const GradCall& g) -> Gradients {
      const Tensor& dy = g.in[0];
      const Tensor& y = g.in[1];
      return {g.needs[0] ? run_op(kTanhBackward, args(g.dout, y)) : Tensor(),
              g.needs[1] ? g.dout * dy * y * -2.0 : Tensor()};
    },
    .saves = save_input(0) | save_input(1),
    .reference =
        [](const Call& call) {
          pointwise_reference<2>(call, []<class T>(T dy, T y) { return dy * (1 - y * y); });
        },
    .samples = [] { return backward_samples({}, -1, 1); }};

constinit const OpDef kSilu{.name = "aten::silu",
                            .schema = "(Tensor self)",
                            .doc = "self / (1 + exp(-self))",
                            .pointwise = true,
                            .infer = infer_floating,
                            .flops = flops_per_element<4>,
                            .vjp = [](const GradCall& g) -> Gradients {
                              return {run_op(kSiluBackward, args(g.dout, g.in[0]))};
                            },
                            .saves = save_input(0),
                            .reference =
                                [](const Call& call) {
                                  pointwise_reference<1>(call, [](auto x) {
                                    return static_cast<double>(x) /
                                           (1 + std::exp(-static_cast<double>(x)));
                                  });
                                },
                            .samples = unary_samples};

// dy s (1 + x (1 - s)), s = sigmoid(x)
constinit const OpDef kSiluBackward{
    .name = "aten::silu_backward",
    .schema = "(Tensor grad_output, Tensor self)",
    .doc = "grad_output * s * (1 + self * (1 - s)), s = sigmoid(self)",
    .pointwise = true,
    .infer = infer_backward,
    .flops = flops_per_element<9>,
    // d/dx: dy s (1 - s) (2 + x (1 - 2 s))
    .vjp = [](const GradCall& g) -> Gradients {
      const Tensor& dy = g.in[0];
      const Tensor& x = g.in[1];
      const Tensor ddy = g.needs[0] ? run_op(kSiluBackward, args(g.dout, x)) : Tensor();
      if (!g.needs[1]) return {ddy, Tensor()};
      const Tensor s = sigmoid(x);
      const Tensor second = s * one_minus(s) * (x * one_minus(s * 2.0) + 2.0);
      return {ddy, g.dout * dy * second};
    },
    .saves = save_input(0) | save_input(1),
    .reference =
        [](const Call& call) {
          pointwise_reference<2>(call, [](auto dy, auto x) {
            const double s = sigmoid_of(static_cast<double>(x));
            return static_cast<double>(dy) * s * (1 + static_cast<double>(x) * (1 - s));
          });
        },
    .samples = [] { return backward_samples({}, -6, 6); }};

Tensor relu(const Tensor& self) { return run_op(kRelu, args(self)); }
Tensor sigmoid(const Tensor& self) { return run_op(kSigmoid, args(self)); }
Tensor tanh(const Tensor& self) { return run_op(kTanh, args(self)); }
Tensor silu(const Tensor& self) { return run_op(kSilu, args(self)); }

}  // namespace epilogue
