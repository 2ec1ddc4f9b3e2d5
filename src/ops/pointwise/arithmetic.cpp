// SPDX-License-Identifier: Apache-2.0
// Pointwise arithmetic: add, sub, mul, div, neg, exp and their in-place forms.
#include <cmath>

#include "epilogue/ops.h"
#include "ops/ops.h"
#include "ops/reference.h"
#include "ops/run_op.h"

namespace epilogue {
namespace {

// alpha of add and sub, attribute 0.
double alpha_of(const Call& call) { return call.attr<double>(0); }

void require_alpha_fits(const Call& call, const OutMetas& out) {
  if (!is_floating(out[0].dtype) && alpha_of(call) != std::floor(alpha_of(call)))
    fail(call.op, "an integer alpha for integer tensors", std::to_string(alpha_of(call)));
}

OutMetas infer_with_alpha(const Call& call) {
  OutMetas out = infer_binary(call);
  require_alpha_fits(call, out);
  return out;
}

OutMetas infer_add_(const Call& call) {
  OutMetas out = infer_inplace(call);
  require_alpha_fits(call, out);
  return out;
}

// True division: integers give f32.
OutMetas infer_div(const Call& call) {
  return OutMeta{broadcast_sizes(call.op, call.in[0].sizes(), call.in[1].sizes()),
                 floating_result_dtype(call.in)};
}

// f on numbers as unsigned where they are integers: those wrap around, as in PyTorch.
template <class T, class F>
T wrapping(F f, T a, T b) {
  if constexpr (std::is_integral_v<T>)
    return static_cast<T>(
        f(static_cast<std::make_unsigned_t<T>>(a), static_cast<std::make_unsigned_t<T>>(b)));
  else
    return f(a, b);
}

template <int kSign>
void add_reference(const Call& call) {
  const double alpha = kSign * alpha_of(call);
  pointwise_reference<2>(call, [alpha]<class T>(T a, T b) {
    const T scaled = wrapping([](auto x, auto y) { return x * y; }, static_cast<T>(alpha), b);
    return wrapping([](auto x, auto y) { return x + y; }, a, scaled);
  });
}
void mul_reference(const Call& call) {
  pointwise_reference<2>(
      call, []<class T>(T a, T b) { return wrapping([](auto x, auto y) { return x * y; }, a, b); });
}
void div_reference(const Call& call) {
  pointwise_reference<2>(
      call, []<class T>(T a, T b) { return b == 0 && std::is_integral_v<T> ? T{} : a / b; });
}

std::vector<Sample> binary_samples(std::vector<Attr> attrs, double low_b) {
  return {{{{{3, 5}}, {{3, 5}, low_b}}, attrs}, {{{{2, 3, 4}}, {{4}, low_b}}, attrs},
          {{{{4, 1}}, {{1, 6}, low_b}}, attrs}, {{{{}}, {{7}, low_b}}, attrs},
          {{{{37}}, {{}, low_b}}, attrs},       {{{{0, 3}}, {{3}, low_b}}, attrs}};
}
std::vector<Sample> inplace_samples(std::vector<Attr> attrs) {
  return {{{{{3, 5}}, {{3, 5}, 0.5}}, attrs},
          {{{{2, 3, 4}}, {{4}, 0.5}}, attrs},
          {{{{33}}, {{}, 0.5}}, attrs}};
}

}  // namespace

constinit const OpDef kAdd{.name = "aten::add",
                           .schema = "(Tensor self, Tensor other, *, Scalar alpha=1)",
                           .doc = "self + alpha * other",
                           .pointwise = true,
                           .infer = infer_with_alpha,
                           .flops = flops_per_element<1>,
                           .vjp = [](const GradCall& g) -> Gradients {
                             const auto alpha = g.attr<double>(0);
                             return {g.dout, alpha == 1 ? g.dout : mul(g.dout, alpha)};
                           },
                           .reference = add_reference<1>,
                           .samples = [] { return binary_samples({1.0}, -2); }};

constinit const OpDef kSub{
    .name = "aten::sub",
    .schema = "(Tensor self, Tensor other, *, Scalar alpha=1)",
    .doc = "self - alpha * other",
    .pointwise = true,
    .infer = infer_with_alpha,
    .flops = flops_per_element<1>,
    .vjp = [](const GradCall& g) -> Gradients {
      return {g.dout, g.needs[1] ? mul(g.dout, -g.attr<double>(0)) : Tensor()};
    },
    .reference = add_reference<-1>,
    .samples = [] { return binary_samples({2.0}, -2); }};

constinit const OpDef kMul{.name = "aten::mul",
                           .schema = "(Tensor self, Tensor other)",
                           .doc = "self * other",
                           .pointwise = true,
                           .infer = infer_binary,
                           .flops = flops_per_element<1>,
                           .vjp = [](const GradCall& g) -> Gradients {
                             return {g.needs[0] ? mul(g.dout, g.in[1]) : Tensor(),
                                     g.needs[1] ? mul(g.dout, g.in[0]) : Tensor()};
                           },
                           .saves = save_input(0) | save_input(1),
                           .reference = mul_reference,
                           .samples = [] { return binary_samples({}, -2); }};

constinit const OpDef kDiv{
    .name = "aten::div",
    .schema = "(Tensor self, Tensor other)",
    .doc = "self / other; integers give f32",
    .pointwise = true,
    .infer = infer_div,
    .flops = flops_per_element<1>,
    // d(a/b) = da / b - db * (a / b) / b
    .vjp = [](const GradCall& g) -> Gradients {
      const Tensor da = div(g.dout, g.in[1]);
      return {da, g.needs[1] ? neg(mul(da, div(g.in[0], g.in[1]))) : Tensor()};
    },
    .saves = save_input(0) | save_input(1),
    .reference = div_reference,
    .samples = [] { return binary_samples({}, 0.5); }};

constinit const OpDef kNeg{
    .name = "aten::neg",
    .schema = "(Tensor self)",
    .doc = "-self",
    .pointwise = true,
    .infer =
        [](const Call& call) {
          if (call.in[0].dtype() == DType::boolean) fail(call.op, "numbers", to_string(call.in[0]));
          return infer_unary(call);
        },
    .flops = flops_per_element<1>,
    .vjp = [](const GradCall& g) -> Gradients { return {neg(g.dout)}; },
    .reference =
        [](const Call& call) { pointwise_reference<1>(call, []<class T>(T x) { return -x; }); },
    .samples =
        [] {
          return std::vector<Sample>{{{{{3, 5}}}}, {{{{}}}}, {{{{67}}}}, {{{{0}}}}};
        }};

constinit const OpDef kExp{
    .name = "aten::exp",
    .schema = "(Tensor self)",
    .doc = "e to the power of self",
    .pointwise = true,
    .infer = infer_unary_floating,
    .flops = flops_per_element<1>,
    .vjp = [](const GradCall& g) -> Gradients { return {mul(g.dout, g.out[0])}; },
    .saves = kSaveOutput,
    .autocast = {AutocastRule::none, AutocastRule::f32},
    .reference =
        [](const Call& call) {
          pointwise_reference<1>(call, [](auto x) { return std::exp(static_cast<double>(x)); });
        },
    .samples =
        [] {
          return std::vector<Sample>{{{{{3, 5}}}}, {{{{}}}}, {{{{67}, -10, 10}}}};
        }};

constinit const OpDef kLog{
    .name = "aten::log",
    .schema = "(Tensor self)",
    .doc = "natural logarithm",
    .pointwise = true,
    .infer = infer_unary_floating,
    .flops = flops_per_element<1>,
    .vjp = [](const GradCall& g) -> Gradients { return {div(g.dout, g.in[0])}; },
    .saves = save_input(0),
    .autocast = {AutocastRule::none, AutocastRule::f32},
    .reference =
        [](const Call& call) {
          pointwise_reference<1>(call, [](auto x) { return std::log(static_cast<double>(x)); });
        },
    .samples =
        [] {
          return std::vector<Sample>{{{{{3, 5}, 0.25, 4}}}, {{{{}, 0.25, 4}}}, {{{{67}, 0.01, 9}}}};
        }};

constinit const OpDef kAdd_{.name = "aten::add_",
                            .schema = "(Tensor self, Tensor other, *, Scalar alpha=1)",
                            .doc = "self += alpha * other",
                            .kind = OpKind::inplace,
                            .pointwise = true,
                            .infer = infer_add_,
                            .flops = flops_per_element<1>,
                            .functional = &kAdd,
                            .reference = add_reference<1>,
                            .samples = [] { return inplace_samples({1.0}); }};

constinit const OpDef kMul_{.name = "aten::mul_",
                            .schema = "(Tensor self, Tensor other)",
                            .doc = "self *= other",
                            .kind = OpKind::inplace,
                            .pointwise = true,
                            .infer = infer_inplace,
                            .flops = flops_per_element<1>,
                            .functional = &kMul,
                            .reference = mul_reference,
                            .samples = [] { return inplace_samples({}); }};

constinit const OpDef kDiv_{.name = "aten::div_",
                            .schema = "(Tensor self, Tensor other)",
                            .doc = "self /= other; floating tensors only",
                            .kind = OpKind::inplace,
                            .pointwise = true,
                            .infer =
                                [](const Call& call) {
                                  require_floating(call.op, call.in[0]);
                                  return infer_inplace(call);
                                },
                            .flops = flops_per_element<1>,
                            .functional = &kDiv,
                            .reference = div_reference,
                            .samples = [] { return inplace_samples({}); }};

Tensor add(const Tensor& self, const Tensor& other, double alpha) {
  return run_op(kAdd, args(self, other), {alpha});
}
Tensor sub(const Tensor& self, const Tensor& other, double alpha) {
  return run_op(kSub, args(self, other), {alpha});
}
Tensor mul(const Tensor& self, const Tensor& other) { return run_op(kMul, args(self, other)); }
Tensor div(const Tensor& self, const Tensor& other) { return run_op(kDiv, args(self, other)); }
Tensor neg(const Tensor& self) { return run_op(kNeg, args(self)); }
Tensor exp(const Tensor& self) { return run_op(kExp, args(self)); }
Tensor log(const Tensor& self) { return run_op(kLog, args(self)); }
Tensor add_(const Tensor& self, const Tensor& other, double alpha) {
  return run_op(kAdd_, args(self, other), {alpha});
}
Tensor mul_(const Tensor& self, const Tensor& other) { return run_op(kMul_, args(self, other)); }
Tensor div_(const Tensor& self, const Tensor& other) { return run_op(kDiv_, args(self, other)); }

}  // namespace epilogue
