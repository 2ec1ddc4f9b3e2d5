// SPDX-License-Identifier: Apache-2.0
// gelu, exact and in its tanh form, and its backward op. FLOPs count every +, - and *, and one for
// each erf, exp or tanh.
//   exact: y = x Phi(x),               Phi = (1 + erf(x / sqrt 2)) / 2
//   tanh:  y = x (1 + tanh u) / 2,     u = beta (x + kappa x^3)
#include <cmath>
#include <numbers>

#include "epilogue/ops.h"
#include "ops/ops.h"
#include "ops/reference.h"
#include "ops/run_op.h"
#include "pointwise/pointwise_fn.h"

namespace epilogue {
namespace {

constexpr double kBeta = std::numbers::sqrt2 * std::numbers::inv_sqrtpi;  // sqrt(2 / pi)
constexpr double kKappa = 0.044715;
constexpr double kInvSqrt2Pi = std::numbers::inv_sqrtpi / std::numbers::sqrt2;

// Attribute 0, `approximate`: 0 none, 1 tanh.
bool is_tanh(const Call& call) { return call.attr<int64_t>(0) == 1; }

// The table has the numbers.
template <PointwiseFn kExact, PointwiseFn kTanhForm>
double flops_of_form(const Call& call) {
  return pointwise_row(is_tanh(call) ? kTanhForm : kExact).flops *
         static_cast<double>(call.out[0].numel());
}

void require_gelu_args(const Call& call) {
  for (const Tensor& t : call.in) require_floating(call.op, t);
  const auto approximate = call.attr<int64_t>(0);
  if (approximate != 0 && approximate != 1)
    fail(call.op, "approximate 0 (none) or 1 (tanh)", std::to_string(approximate));
}

double gelu_of(double x, bool tanh_form) {
  if (!tanh_form) return 0.5 * x * (1 + std::erf(x / std::numbers::sqrt2));
  return 0.5 * x * (1 + std::tanh(kBeta * x * (1 + kKappa * x * x)));
}

// exact: Phi + x phi, phi = exp(-x^2 / 2) / sqrt(2 pi)
// tanh:  (1 + T) / 2 + x (1 - T^2) u' / 2, T = tanh u, u' = beta (1 + 3 kappa x^2)
double gelu_slope(double x, bool tanh_form) {
  if (!tanh_form) {
    return 0.5 * (1 + std::erf(x / std::numbers::sqrt2)) + x * std::exp(-0.5 * x * x) * kInvSqrt2Pi;
  }
  const double t = std::tanh(kBeta * x * (1 + kKappa * x * x));
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * kBeta * (1 + 3 * kKappa * x * x);
}

// exact: phi (2 - x^2)
Tensor exact_curvature(const Tensor& x) {
  const Tensor squared = x * x;
  return exp(squared * -0.5) * kInvSqrt2Pi * sub(scalar(2.0), squared);
}
// tanh: (1 - T^2) (u' + x (u'' - 2 T u'^2) / 2), u'' = 6 beta kappa x
Tensor tanh_curvature(const Tensor& x) {
  const Tensor squared = x * x;
  const Tensor t = tanh(x * (squared * kKappa + 1.0) * kBeta);
  const Tensor slope = squared * (3 * kKappa * kBeta) + kBeta;
  const Tensor bend = x * (6 * kKappa * kBeta) - t * slope * slope * 2.0;
  return sub(scalar(1.0), t * t) * (slope + x * bend * 0.5);
}

std::vector<Sample> gelu_samples() {
  std::vector<Sample> samples;
  for (const int64_t approximate : {0, 1}) {
    samples.push_back({.in = {{.sizes = {3, 5}}}, .attrs = {approximate}});
    samples.push_back({.in = {{.sizes = {67}, .low = -12, .high = 12}}, .attrs = {approximate}});
    samples.push_back({.in = {{.sizes = {}}}, .attrs = {approximate}});
  }
  return samples;
}
std::vector<Sample> gelu_backward_samples() {
  std::vector<Sample> samples = gelu_samples();
  for (Sample& s : samples) s.in.insert(s.in.begin(), SampleInput{.sizes = s.in[0].sizes});
  return samples;
}

}  // namespace

constinit const OpDef kGelu{
    .name = "aten::gelu",
    .schema = "(Tensor self, *, str approximate='none')",
    .doc = "self * Phi(self), Phi the normal distribution; or its tanh approximation",
    .pointwise = true,
    .infer =
        [](const Call& call) {
          require_gelu_args(call);
          return infer_unary(call);
        },
    // exact: x c, erf, 1+, x/2, *. tanh: x x, k *, 1+, x *, b *, tanh, 1+, x/2, *.
    .flops = flops_of_form<PointwiseFn::gelu_erf, PointwiseFn::gelu_tanh>,
    .vjp = [](const GradCall& g) -> Gradients {
      return {run_op(kGeluBackward, args(g.dout, g.in[0]), {g.attrs[0]})};
    },
    .saves = save_input(0),
    .reference =
        [](const Call& call) {
          const bool tanh_form = is_tanh(call);
          pointwise_reference<1>(
              call, [tanh_form](auto x) { return gelu_of(static_cast<double>(x), tanh_form); });
        },
    .samples = gelu_samples};

constinit const OpDef kGeluBackward{
    .name = "aten::gelu_backward",
    .schema = "(Tensor grad_output, Tensor self, *, str approximate='none')",
    .doc = "grad_output * gelu'(self)",
    .pointwise = true,
    .infer =
        [](const Call& call) {
          require_gelu_args(call);
          return infer_binary(call);
        },
    // exact: Phi 4, phi 4, x phi, +, dy *. tanh: u and T 6, 1 - T^2 2, u' 3, (1 + T)/2 2, x/2 and
    // two products 3, +, dy *.
    .flops = flops_of_form<PointwiseFn::gelu_erf_backward, PointwiseFn::gelu_tanh_backward>,
    .vjp = [](const GradCall& g) -> Gradients {
      const Tensor& dy = g.in[0];
      const Tensor& x = g.in[1];
      const Tensor ddy =
          g.needs[0] ? run_op(kGeluBackward, args(g.dout, x), {g.attrs[0]}) : Tensor();
      if (!g.needs[1]) return {ddy, Tensor()};
      const bool tanh_form = g.attr<int64_t>(0) == 1;
      return {ddy, g.dout * dy * (tanh_form ? tanh_curvature(x) : exact_curvature(x))};
    },
    .saves = save_input(0) | save_input(1),
    .reference =
        [](const Call& call) {
          const bool tanh_form = is_tanh(call);
          pointwise_reference<2>(call, [tanh_form](auto dy, auto x) {
            return static_cast<double>(dy) * gelu_slope(static_cast<double>(x), tanh_form);
          });
        },
    .samples = gelu_backward_samples};

Tensor gelu(const Tensor& self, Gelu approximate) {
  return run_op(kGelu, args(self), {int64_t{approximate == Gelu::tanh}});
}

}  // namespace epilogue
