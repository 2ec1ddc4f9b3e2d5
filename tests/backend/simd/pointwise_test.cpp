// SPDX-License-Identifier: Apache-2.0
// Pointwise kernels against the formulas in double, at every size, in place, and at the edges.
#include "backend/cpu/simd/pointwise.h"

#include "backend/simd/simd_testing.h"
#include "support/test.h"

namespace epilogue::simd::pointwise_test {

constexpr double kBeta = 0.79788456080286535588;
constexpr double kKappa = 0.044715;
double ref_sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }
double ref_phi(double x) { return 0.5 * std::erfc(-x / std::sqrt(2.0)); }
double ref_gelu_u(double x) { return kBeta * (x + kKappa * x * x * x); }
double ref_gelu_tanh(double x) { return x * ref_sigmoid(2.0 * ref_gelu_u(x)); }
double ref_gelu_tanh_slope(double x) {
  const double t = std::tanh(ref_gelu_u(x));
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * kBeta * (1 + 3 * kKappa * x * x);
}
double ref_gelu_erf_slope(double x) {
  return ref_phi(x) + x * std::exp(-x * x / 2) / std::sqrt(2 * M_PI);
}
double ref_silu_slope(double x) {
  const double s = ref_sigmoid(x);
  return s * (1 + x * (1 - s));
}

struct Unary {
  PointwiseFn op;
  const char* name;
  double (*reference)(double);
};
const Unary kUnary[] = {
    {PointwiseFn::neg, "neg", [](double x) { return -x; }},
    {PointwiseFn::relu, "relu", [](double x) { return x > 0 ? x : 0.0; }},
    {PointwiseFn::sigmoid, "sigmoid", ref_sigmoid},
    {PointwiseFn::tanh, "tanh", [](double x) { return std::tanh(x); }},
    {PointwiseFn::exp, "exp", [](double x) { return std::exp(x); }},
    {PointwiseFn::gelu_tanh, "gelu_tanh", ref_gelu_tanh},
    {PointwiseFn::gelu_erf, "gelu_erf", [](double x) { return x * ref_phi(x); }},
    {PointwiseFn::silu, "silu", [](double x) { return x * ref_sigmoid(x); }},
};

struct Backward {
  PointwiseFn op;
  const char* name;
  double (*slope)(double);  // of the saved value
};
const Backward kBackward[] = {
    {PointwiseFn::relu_backward, "relu", [](double y) { return y > 0 ? 1.0 : 0.0; }},
    {PointwiseFn::sigmoid_backward, "sigmoid", [](double y) { return y * (1 - y); }},
    {PointwiseFn::tanh_backward, "tanh", [](double y) { return 1 - y * y; }},
    {PointwiseFn::gelu_tanh_backward, "gelu_tanh", ref_gelu_tanh_slope},
    {PointwiseFn::gelu_erf_backward, "gelu_erf", ref_gelu_erf_slope},
    {PointwiseFn::silu_backward, "silu", ref_silu_slope},
};

// Prints the worst element of a dense sweep; the bound is absolute + relative * |want|.
void expect_accuracy(const std::string& name, const std::vector<float>& x,
                     const std::vector<float>& got, const std::function<double(double)>& reference,
                     double absolute, double relative) {
  double worst = 0.0;
  size_t where = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double want = reference(x[i]);
    const double error = std::abs(got[i] - want) / (absolute + relative * std::abs(want));
    if (!(error <= worst)) {
      worst = error;
      where = i;
    }
  }
  EXPECT_LE(worst, 1.0) << name << "(" << x[where] << ") = " << got[where] << ", not "
                        << reference(x[where]);
}

TEST(Pointwise, UnaryAccuracy) {
  const std::vector<float> near = sweep(-5.0F, 5.0F, 100'003);
  const std::vector<float> far = sweep(-30.0F, 30.0F, 100'003);
  for_each_isa([&](Isa) {
    std::vector<float> out(near.size());
    for (const Unary& u : kUnary) {
      pointwise_kernels().run(u.op, {near.data()}, out.data(), out.size());
      expect_accuracy(u.name, near, out, u.reference, u.op == PointwiseFn::exp ? 0.0 : 1e-6,
                      u.op == PointwiseFn::exp ? 2.5e-7 : 0.0);
      pointwise_kernels().run(u.op, {far.data()}, out.data(), out.size());
      expect_accuracy(u.name, far, out, u.reference, u.op == PointwiseFn::exp ? 0.0 : 1e-6, 3e-7);
    }
  });
}

// Of what rows reduce to: sums of exponentials, variances.
TEST(Pointwise, LogarithmAndInverseSquareRootOfPositiveNumbers) {
  const std::vector<float> x = sweep(1e-6F, 50.0F, 10'007);
  for_each_isa([&](Isa) {
    std::vector<float> out(x.size());
    pointwise_kernels().run(PointwiseFn::log, {x.data()}, out.data(), out.size());
    expect_accuracy(
        "log", x, out, [](double v) { return std::log(v); }, 1e-7, 1.2e-7);
    pointwise_kernels().run(PointwiseFn::rsqrt, {x.data()}, out.data(), out.size());
    expect_accuracy(
        "rsqrt", x, out, [](double v) { return 1 / std::sqrt(v); }, 0, 1.8e-7);
    const float ends[] = {0.0F, -0.0F, kInf, -1.0F, kNan};
    float got[5];
    pointwise_kernels().run(PointwiseFn::log, {ends}, got, 5);
    EXPECT_EQ(got[0], -kInf);
    EXPECT_EQ(got[2], kInf);
    EXPECT_TRUE(std::isnan(got[3]) && std::isnan(got[4]));
    pointwise_kernels().run(PointwiseFn::rsqrt, {ends}, got, 5);
    EXPECT_EQ(got[0], kInf);
    EXPECT_EQ(got[1], -kInf);
    EXPECT_EQ(got[2], 0);
    EXPECT_TRUE(std::isnan(got[3]) && std::isnan(got[4]));
  });
}

TEST(Pointwise, DerivativeAccuracy) {
  const std::vector<float> x = sweep(-8.0F, 8.0F, 100'003);
  const std::vector<float> ones(x.size(), 1.0F);
  for_each_isa([&](Isa) {
    std::vector<float> out(x.size());
    for (const Backward& b : kBackward) {
      const bool of_output =
          b.op == PointwiseFn::sigmoid_backward || b.op == PointwiseFn::tanh_backward;
      const std::vector<float> saved = of_output ? sweep(-1.0F, 1.0F, x.size()) : x;
      pointwise_kernels().run(b.op, {ones.data(), saved.data()}, out.data(), out.size());
      expect_accuracy(b.name, saved, out, b.slope, 2e-6, 0.0);
    }
  });
}

TEST(Pointwise, ExpCoversTheWholeRange) {
  const std::vector<float> x = sweep(-110.0F, 90.0F, 100'003);
  for_each_isa([&](Isa) {
    std::vector<float> out(x.size());
    pointwise_kernels().run(PointwiseFn::exp, {x.data()}, out.data(), x.size());
    for (size_t i = 0; i < x.size(); ++i) {
      const auto want = static_cast<float>(std::exp(static_cast<double>(x[i])));
      if (std::isinf(want)) {
        ASSERT_EQ(out[i], want) << x[i];
      } else {
        ASSERT_NEAR(out[i], want, want * 3e-7 + 0x1p-149) << x[i];
      }
    }
  });
}

TEST(Pointwise, TanhIsRelativelyAccurateNearZero) {
  const std::vector<float> x = sweep(1e-6F, 0.7F, 10'001);
  for_each_isa([&](Isa) {
    std::vector<float> out(x.size());
    pointwise_kernels().run(PointwiseFn::tanh, {x.data()}, out.data(), x.size());
    expect_accuracy(
        "tanh", x, out, [](double v) { return std::tanh(v); }, 0.0, 4e-7);
  });
}

// The values of PyTorch's formulas at the ends; every lane, so that tails are covered too.
TEST(Pointwise, NanAndInfinity) {
  struct Edge {
    PointwiseFn op;
    float at_minus;
    float at_plus;
  };
  const Edge edges[] = {
      {PointwiseFn::neg, kInf, -kInf},     {PointwiseFn::relu, 0.0F, kInf},
      {PointwiseFn::sigmoid, 0.0F, 1.0F},  {PointwiseFn::tanh, -1.0F, 1.0F},
      {PointwiseFn::exp, 0.0F, kInf},      {PointwiseFn::gelu_tanh, kNan, kInf},
      {PointwiseFn::gelu_erf, kNan, kInf}, {PointwiseFn::silu, kNan, kInf},
  };
  const auto same = [](float a, float b) { return (std::isnan(a) && std::isnan(b)) || a == b; };
  for_each_isa([&](Isa) {
    const size_t n = 37;
    std::vector<float> out(n);
    for (const Edge& e : edges) {
      const std::vector<std::pair<float, float>> cases = {
          {-kInf, e.at_minus}, {kInf, e.at_plus}, {kNan, kNan}};
      for (const auto& [in, want] : cases) {
        const std::vector<float> x(n, in);
        pointwise_kernels().run(e.op, {x.data()}, out.data(), n);
        for (float v : out)
          EXPECT_TRUE(same(v, want)) << static_cast<int>(e.op) << " of " << in << ": " << v;
      }
    }
    const std::vector<float> nans(n, kNan);
    const std::vector<float> ones(n, 1.0F);
    for (const Backward& b : kBackward) {
      pointwise_kernels().run(b.op, {ones.data(), nans.data()}, out.data(), n);
      for (float v : out) {
        // threshold_backward passes the gradient where the saved value is not <= 0.
        EXPECT_TRUE(b.op == PointwiseFn::relu_backward ? v == 1.0F : std::isnan(v))
            << b.name << " " << v;
      }
    }
  });
}

// Large arguments must not turn into NaN on the way: e^40^3 overflows.
TEST(Pointwise, LargeFiniteArgumentsGiveTheLimits) {
  for_each_isa([](Isa) {
    const std::vector<float> x = {-3e4F, -200.0F, 200.0F, 3e4F};
    std::vector<float> out(4);
    for (PointwiseFn op : {PointwiseFn::gelu_tanh, PointwiseFn::gelu_erf, PointwiseFn::silu}) {
      pointwise_kernels().run(op, {x.data()}, out.data(), 4);
      EXPECT_EQ(out, (std::vector<float>{-0.0F, -0.0F, 200.0F, 3e4F})) << static_cast<int>(op);
    }
    const std::vector<float> ones(4, 1.0F);
    for (PointwiseFn op : {PointwiseFn::gelu_tanh_backward, PointwiseFn::gelu_erf_backward,
                           PointwiseFn::silu_backward}) {
      pointwise_kernels().run(op, {ones.data(), x.data()}, out.data(), 4);
      for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(out[i], i < 2 ? 0.0F : 1.0F, 1e-30) << x[i];
    }
  });
}

double arithmetic(PointwiseFn op, double a, double b, double alpha) {
  switch (op) {
    case PointwiseFn::add: return a + alpha * b;
    case PointwiseFn::sub: return a - alpha * b;
    case PointwiseFn::mul: return a * b;
    case PointwiseFn::div: return a / b;
    default: return 0.0;
  }
}

TEST(Pointwise, ArithmeticWithArraysAndScalars) {
  for_each_isa([](Isa) {
    const PointwiseKernels& k = pointwise_kernels();
    for (const PointwiseFn which :
         {PointwiseFn::add, PointwiseFn::sub, PointwiseFn::mul, PointwiseFn::div})
      for (size_t n : awkward_sizes())
        for (float alpha : {1.0F, 0.5F, -2.0F}) {
          const std::vector<float> a = uniform(n, -4.0F, 4.0F, 1);
          const std::vector<float> b = uniform(n, 0.5F, 4.0F, 2);
          Guarded<float> both(n, 1);
          Guarded<float> right(n, 2);
          Guarded<float> left(n, 3);
          const auto run = [&](const TileOperand& x, const TileOperand& y, float* out) {
            const TileOperand operands[] = {x, y};
            k[which](operands, out, n, &alpha);
          };
          run(a.data(), b.data(), both.data());
          run(a.data(), 1.5F, right.data());
          run(1.5F, b.data(), left.data());
          for (size_t i = 0; i < n; ++i) {
            ASSERT_NEAR(both[i], arithmetic(which, a[i], b[i], alpha), 2e-6) << n << " " << i;
            ASSERT_NEAR(right[i], arithmetic(which, a[i], 1.5, alpha), 2e-6) << n << " " << i;
            ASSERT_NEAR(left[i], arithmetic(which, 1.5, b[i], alpha), 2e-6) << n << " " << i;
          }
          both.expect_guards_intact();
          right.expect_guards_intact();
          left.expect_guards_intact();
        }
  });
}

TEST(Pointwise, AnySizeInPlaceWithoutTouchingNeighbours) {
  for_each_isa([](Isa) {
    for (size_t n : awkward_sizes())
      for (size_t offset : {0U, 1U}) {
        const std::vector<float> x = uniform(n, -2.0F, 2.0F, 5);
        for (const Unary& u : kUnary) {
          Guarded<float> data(n, offset);
          std::copy(x.begin(), x.end(), data.data());
          pointwise_kernels().run(u.op, {data.data()}, data.data(), n);
          data.expect_guards_intact();
          for (size_t i = 0; i < n; ++i) ASSERT_NEAR(data[i], u.reference(x[i]), 2e-6) << u.name;
        }
        for (const Backward& b : kBackward) {
          Guarded<float> data(n, offset);
          std::copy(x.begin(), x.end(), data.data());
          const std::vector<float> dy(n, 3.0F);
          pointwise_kernels().run(b.op, {dy.data(), data.data()}, data.data(), n);
          data.expect_guards_intact();
          for (size_t i = 0; i < n; ++i) ASSERT_NEAR(data[i], 3.0 * b.slope(x[i]), 6e-6) << b.name;
        }
      }
  });
}

TEST(Pointwise, MaskScaleAxpyFill) {
  for_each_isa([](Isa) {
    const PointwiseKernels& k = pointwise_kernels();
    for (size_t n : awkward_sizes()) {
      std::vector<float> x = uniform(n, -2.0F, 2.0F, 5);
      std::vector<uint8_t> keep(n);
      for (size_t i = 0; i < n; ++i) keep[i] = i % 3 == 0 ? 0 : static_cast<uint8_t>(i);
      if (n > 0) x[0] = kNan;  // dropped
      Guarded<float> masked(n, 1);
      k.mask_scale(x.data(), keep.data(), 2.0F, masked.data(), n);
      masked.expect_guards_intact();
      if (n > 0) x[0] = 1.0F;
      Guarded<float> y(n, 1);
      k.fill(0.5F, y.data(), n);
      k.axpy(3.0F, x.data(), y.data(), n);
      y.expect_guards_intact();
      Guarded<float> scaled(n, 1);
      k.scale(x.data(), -2.0F, scaled.data(), n);
      scaled.expect_guards_intact();
      for (size_t i = 0; i < n; ++i) {
        EXPECT_EQ(masked[i], keep[i] != 0 ? x[i] * 2.0F : 0.0F) << i;
        EXPECT_NEAR(y[i], 0.5 + 3.0 * x[i], 1e-6);
        EXPECT_EQ(scaled[i], -2.0F * x[i]);
      }
    }
  });
}

}  // namespace epilogue::simd::pointwise_test
