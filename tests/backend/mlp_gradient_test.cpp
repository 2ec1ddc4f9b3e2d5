// SPDX-License-Identifier: Apache-2.0
// The pointwise part of an MLP's backward pass against the ops one by one, in f64.
#include "epilogue/mlp_gradient.h"

#include <tuple>

#include "base/cpu_features.h"
#include "epilogue/autograd.h"
#include "epilogue/base/error.h"
#include "epilogue/ops.h"
#include "ops/op_testing.h"
#include "ops/table_support.h"
#include "support/test.h"

namespace epilogue::testing::mlp_gradient_test {

double activated(const std::string& name, double x) {
  if (name == "silu") return x / (1 + std::exp(-x));
  if (name == "relu") return x > 0 ? x : 0;
  if (name == "gelu") return 0.5 * x * std::erfc(-x / std::sqrt(2.0));
  if (name == "quick_gelu") return x / (1 + std::exp(-1.702 * x));
  if (name == "squared_relu") return x > 0 ? x * x : 0;
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}
double slope(const std::string& name, double x) {
  if (name == "relu") return x > 0 ? 1 : 0;
  constexpr double kStep = 1e-5;
  return (activated(name, x + kStep) - activated(name, x - kStep)) / (2 * kStep);
}

std::vector<double> values_of(const Tensor& t) {
  const Tensor wide = t.to(DType::f32);
  const auto* const data = static_cast<const float*>(wide.data());
  return {data, data + wide.numel()};
}

// The relative L2 difference from f(i). A slope near its zero counts as 0.1: there the f32 input's
// own rounding is what differs.
double far(const Tensor& got, const std::function<double(size_t)>& f) {
  double difference = 0;
  double norm = 0;
  const std::vector<double> values = values_of(got);
  for (size_t i = 0; i < values.size(); ++i) {
    difference += (values[i] - f(i)) * (values[i] - f(i));
    norm += std::max(f(i) * f(i), 0.01);
  }
  return std::sqrt(difference / norm);
}

struct MlpInputs {
  Tensor d_hidden, gate, up;
  std::vector<double> dh, g, u;

  MlpInputs(Dims sizes, DType dtype, bool gated)
      : d_hidden(randn(sizes).to(dtype)),
        gate(randn(sizes).to(dtype)),
        up(gated ? randn(sizes).to(dtype) : Tensor()),
        dh(values_of(d_hidden)),
        g(values_of(gate)),
        u(gated ? values_of(up) : std::vector<double>(g.size(), 1)) {}
};

void expect_gradients(const std::string& name, Dims sizes, DType dtype, bool gated) {
  const MlpInputs in(sizes, dtype, gated);
  // One rounding of each result, and f32 arithmetic before it.
  const double close = dtype == DType::f32 ? 2e-6 : dtype == DType::f16 ? 1e-3 : 6e-3;
  const auto hidden = [&](size_t i) { return activated(name, in.g[i]) * in.u[i]; };
  const auto d_gate = [&](size_t i) { return in.dh[i] * in.u[i] * slope(name, in.g[i]); };
  const auto d_up = [&](size_t i) { return in.dh[i] * activated(name, in.g[i]); };
  const Tensor out = empty(sizes, dtype);
  mlp_hidden_into(name, in.gate, in.up, out);
  EXPECT_LE(far(out, hidden), close);
  MlpGradients all{empty(sizes, dtype), empty(sizes, dtype), {}};
  if (gated) all.up = empty(sizes, dtype);
  mlp_gradients_into(name, in.d_hidden, in.gate, in.up, all);
  EXPECT_EQ(values_of(all.hidden), values_of(out));
  EXPECT_LE(far(all.gate, d_gate), close);
  if (gated) {
    EXPECT_LE(far(all.up, d_up), close);
  }
  const MlpGradients one{{}, empty(sizes, dtype), {}};  // alone, the same
  mlp_gradients_into(name, in.d_hidden, in.gate, in.up, one);
  EXPECT_EQ(values_of(one.gate), values_of(all.gate));
}

class MlpGradient : public ::testing::TestWithParam<std::tuple<const char*, DType, bool>> {};

// Slopes are finite differences in double.
TEST_P(MlpGradient, IsTheFormulaInDoubleOnEveryLevel) {
  const auto [name, dtype, gated] = GetParam();
  const test::IsaScope scope;
  for (const Isa level : available_isas()) {
    set_active_isa(level);
    for (const Dims& sizes : {Dims{1}, Dims{7, 3}, Dims{1, 1023}, Dims{5, 205}, Dims{3, 5001}}) {
      SCOPED_TRACE(to_string(sizes) + " on level " + std::to_string(static_cast<int>(level)));
      expect_gradients(name, sizes, dtype, gated);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, MlpGradient,
                         ::testing::Combine(::testing::Values("silu", "relu", "gelu", "gelu_tanh",
                                                              "quick_gelu", "squared_relu"),
                                            ::testing::Values(DType::f32, DType::bf16, DType::f16),
                                            ::testing::Bool()));

TEST(MlpGradient, EqualsTheOpsGradient) {
  const MlpInputs in({9, 130}, DType::f32, true);
  const Tensor out[] = {empty({9, 130}), empty({9, 130}), empty({9, 130})};
  mlp_gradients_into("silu", in.d_hidden, in.gate, in.up, {out[0], out[1], out[2]});
  Tensor leaves[] = {clone(in.gate), clone(in.up)};
  for (Tensor& leaf : leaves) leaf.set_requires_grad(true);
  const Tensor y = mul(silu(leaves[0]), leaves[1]);
  const std::vector<Tensor> want = grad({&y, 1}, leaves, {&in.d_hidden, 1});
  EXPECT_LT(far(out[0], [v = values_of(y)](size_t i) { return v[i]; }), 1e-6);
  EXPECT_LT(far(out[1], [v = values_of(want[0])](size_t i) { return v[i]; }), 1e-6);
  EXPECT_LT(far(out[2], [v = values_of(want[1])](size_t i) { return v[i]; }), 1e-6);
}

TEST(MlpGradient, NothingIsWrittenBesideTheResult) {
  const MlpInputs in({1, 1037}, DType::bf16, true);
  const Tensor memory = full({1, 3 * 1037}, 7).to(DType::bf16);
  const Tensor middle = slice(memory, 1, 1037, 2 * 1037);
  mlp_gradients_into("silu", in.d_hidden, in.gate, in.up, {{}, middle, {}});
  const std::vector<double> values = values_of(memory);
  for (size_t i = 0; i < 1037; ++i) {
    EXPECT_EQ(values[i], 7);
    EXPECT_EQ(values[2 * 1037 + i], 7);
  }
}

TEST(MlpGradient, NoElementsAreNoWork) {
  const Tensor none = empty({0, 5});
  EXPECT_NO_THROW(mlp_hidden_into("silu", none, none, empty({0, 5})));
  EXPECT_NO_THROW(
      mlp_gradients_into("silu", none, none, none, {empty({0, 5}), empty({0, 5}), empty({0, 5})}));
}

TEST(MlpGradient, RefusesWhatDoesNotFit) {
  const Tensor x = ones({2, 3});
  const Tensor out = empty({2, 3});
  EXPECT_THROW(mlp_hidden_into("tanh", x, {}, out), Error);
  EXPECT_THROW(mlp_hidden_into("silu", x, ones({3, 2}), out), Error);
  EXPECT_THROW(mlp_hidden_into("silu", x, {}, x), Error);
  EXPECT_THROW(mlp_hidden_into("silu", x, {}, {}), Error);
  EXPECT_THROW(mlp_hidden_into("silu", transpose(ones({3, 2}), 0, 1), {}, out), Error);
  EXPECT_THROW(mlp_hidden_into("silu", ones({2, 3}, DType::f64), {}, out), Error);
  EXPECT_THROW(mlp_gradients_into("silu", {}, x, {}, {out, {}, {}}), Error);
  EXPECT_THROW(mlp_gradients_into("silu", x, x, {}, {{}, {}, out}), Error);
  EXPECT_THROW(mlp_gradients_into("silu", x, x, {}, {x, {}, {}}), Error);
  EXPECT_THROW(mlp_gradients_into("silu", x, x, {}, {out, out, {}}), Error);
}

// Into columns of a wider result, with and without an addend, transposed operands, sums that go on.
TEST(ProductInto, IsTheProductOfTheOps) {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const int64_t m : {1, 7, 40, 130}) {
      const Tensor a = randn({m, 70}).to(dtype);
      const Tensor b = transpose(randn({90, 70}).to(dtype), 0, 1);
      const Tensor wide = full({m, 96}, 5.0, dtype);
      const Tensor out = slice(wide, 1, 3, 93);
      const auto close = [&](const Tensor& expected, const std::string& what) {
        const std::vector<double> got = values_of(contiguous(out));
        const std::vector<double> want = values_of(expected);
        for (size_t i = 0; i < got.size(); ++i)
          ASSERT_NEAR(got[i], want[i], dtype == DType::f32 ? 1e-4 : 0.02 * std::abs(want[i]) + 0.1)
              << what << ", " << m << " rows at " << i;
      };
      product_into(a, b, {}, out);
      close(mm(a.to(DType::f32), b.to(DType::f32)), "product");
      EXPECT_EQ(values_of(contiguous(slice(wide, 1, 0, 3))),
                std::vector<double>(static_cast<size_t>(3 * m), 5))
          << "beside the result";
      const Tensor bias = randn({90}).to(dtype);
      product_into(a, b, bias, out);
      const Tensor sum = mm(a.to(DType::f32), b.to(DType::f32)) + bias.to(DType::f32);
      close(sum, "with a bias");
      product_into(a, b, out, out);
      close(sum + mm(a.to(DType::f32), b.to(DType::f32)), "onto itself");
    }
}

class ProductAndHidden : public ::testing::TestWithParam<std::tuple<const char*, DType, bool>> {};

// Sizes that run on tiles where a level has them, and some that do not; odd ones; weights of either
// layout; results that go past the caches.
TEST_P(ProductAndHidden, AreTheProductAndWhatFollows) {
  const auto [name, dtype, gated] = GetParam();
  const double close = dtype == DType::f32 ? 1e-5 : dtype == DType::f16 ? 2e-3 : 1e-2;
  const auto expect_close = [&](const Tensor& got, const Tensor& want, const char* what) {
    EXPECT_LE(far(got, [v = values_of(want)](size_t i) { return v[i]; }), close) << what;
  };
  for (const auto& [m, k, n] :
       {std::tuple{70, 331, 411}, {33, 512, 288}, {3, 40, 50}, {1100, 128, 1056}}) {
    SCOPED_TRACE(std::to_string(m) + " x " + std::to_string(k) + " x " + std::to_string(n));
    const double scale = 1.0 / std::sqrt(static_cast<double>(k));
    const Tensor x = randn({m, k}).to(dtype);
    const Tensor w = transpose((randn({n, k}) * scale).to(dtype), 0, 1);
    const Tensor bias = randn({n}).to(dtype);
    const Tensor gate = gated ? randn({m, n}).to(dtype) : Tensor();
    const Tensor out = empty({m, n}, dtype);
    const Tensor hidden = empty({m, n}, dtype);
    product_hidden_into(name, x, w, bias, gate, out, hidden);
    const Tensor want = empty({m, n}, dtype);
    product_into(x, w, bias, want);
    EXPECT_EQ(values_of(out), values_of(want));
    const Tensor want_hidden = empty({m, n}, dtype);
    gated ? mlp_hidden_into(name, gate, want, want_hidden)
          : mlp_hidden_into(name, want, {}, want_hidden);
    expect_close(hidden, want_hidden, "hidden");

    const Tensor up = gated ? out : Tensor();
    const Tensor given = gated ? gate : out;
    const Tensor back = (randn({k, n}) * scale).to(dtype);
    const auto gradients = [&] {
      return MlpGradients{empty({m, n}, dtype), empty({m, n}, dtype),
                          gated ? empty({m, n}, dtype) : Tensor()};
    };
    const MlpGradients got = gradients();
    product_gradients_into(name, x, back, given, up, got);
    const MlpGradients expected = gradients();
    product_into(x, back, {}, want);
    mlp_gradients_into(name, want, given, up, expected);
    EXPECT_EQ(values_of(got.hidden), values_of(expected.hidden));
    expect_close(got.gate, expected.gate, "d_gate");
    if (gated) expect_close(got.up, expected.up, "d_up");
    const MlpGradients again = gradients();
    product_gradients_into(name, x, back, given, up, again);
    EXPECT_EQ(values_of(again.gate), values_of(got.gate)) << "bits repeat";
    const MlpGradients one{{}, empty({m, n}, dtype), {}};
    product_gradients_into(name, x, back, given, up, one);
    EXPECT_EQ(values_of(one.gate), values_of(got.gate)) << "alone";
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, ProductAndHidden,
    ::testing::Combine(::testing::Values("silu", "relu", "gelu", "gelu_tanh", "quick_gelu"),
                       ::testing::Values(DType::f32, DType::bf16, DType::f16), ::testing::Bool()));

// Sums of bf16 go on in place.
TEST(ProductInto, AddsToWhatIsThere) {
  const Tensor a = randn({70, 331}).to(DType::bf16);
  const Tensor b = randn({331, 411}).to(DType::bf16);
  const Tensor before = randn({70, 411}).to(DType::bf16);
  const Tensor out = clone(before);
  product_into(a, b, out, out);
  const Tensor want = mm(a.to(DType::f32), b.to(DType::f32)) + before.to(DType::f32);
  EXPECT_LE(far(out, [v = values_of(want)](size_t i) { return v[i]; }), 3e-3);
}

TEST(ProductAndHidden, RefuseWhatDoesNotFit) {
  const Tensor x = ones({2, 3});
  const Tensor w = ones({3, 4});
  const Tensor out = empty({2, 4});
  EXPECT_THROW(product_hidden_into("tanh", x, w, {}, {}, out, empty({2, 4})), Error);
  EXPECT_THROW(product_hidden_into("silu", x, w, {}, {}, out, out), Error);
  EXPECT_THROW(product_hidden_into("silu", x, w, {}, ones({4, 2}), out, empty({2, 4})), Error);
  EXPECT_THROW(product_hidden_into("silu", x, w, {}, {}, out, {}), Error);
  EXPECT_THROW(product_gradients_into("silu", x, w, ones({2, 5}), {}, {out, {}, {}}), Error);
  EXPECT_THROW(product_gradients_into("silu", x, w, out, {}, {out, {}, {}}), Error);
  EXPECT_THROW(product_gradients_into("silu", x, w, ones({2, 4}), {}, {{}, {}, out}), Error);
}

TEST(ProductInto, ErrorsNameWhatWasExpected) {
  const Tensor a = randn({4, 5});
  const Tensor b = randn({5, 6});
  EXPECT_THROW(product_into(a, b, {}, empty({4, 7})), Error);
  EXPECT_THROW(product_into(a, b, {}, Tensor()), Error);
  EXPECT_THROW(product_into(a, b.to(DType::f64), {}, empty({4, 6})), Error);
  EXPECT_THROW(product_into(a, b, {}, transpose(empty({6, 4}), 0, 1)), Error);
  EXPECT_THROW(product_into(a, b, zeros({3}), empty({4, 6})), Error);
}

}  // namespace epilogue::testing::mlp_gradient_test
