// SPDX-License-Identifier: Apache-2.0
// The kernels of the table of functions: every row in every form of its operands, and the accuracy
// and special values of those that follow silu_backward.
#include <bit>

#include "backend/cpu/simd/pointwise.h"
#include "backend/simd/simd_testing.h"
#include "support/test.h"

namespace epilogue::simd::functions_test {

using Fn = PointwiseFn;

float one(Fn fn, std::initializer_list<float> operands, PointwiseParameters parameters) {
  std::vector<TileOperand> in;
  for (const float& x : operands) in.emplace_back(&x);
  float out = 0;
  pointwise_kernels()[fn](in.data(), &out, 1, parameters.data());
  return out;
}
float one(Fn fn, std::initializer_list<float> operands) {
  return one(fn, operands, default_parameters(fn));
}

// Distance in representable numbers, of one sign.
double ulps(float got, double want) {
  const auto nearest = static_cast<float>(want);
  if (got == nearest || (std::isnan(got) && std::isnan(nearest))) return 0;
  const float step = std::nextafter(std::abs(nearest), kInf) - std::abs(nearest);
  return std::abs(static_cast<double>(got) - want) / static_cast<double>(step);
}

void expect_ulps(Fn fn, const PointwiseParameters& p, const std::vector<float>& x,
                 const std::function<double(double)>& f, double bound) {
  std::vector<float> out(x.size());
  const TileOperand in = x.data();
  pointwise_kernels()[fn](&in, out.data(), x.size(), p.data());
  double worst = 0;
  size_t where = 0;
  for (size_t i = 0; i < x.size(); ++i)
    if (const double e = ulps(out[i], f(x[i])); !(e <= worst)) {
      worst = e;
      where = i;
    }
  EXPECT_LE(worst, bound) << pointwise_fn_name(fn) << "(" << x[where] << ") = " << out[where]
                          << ", not " << f(x[where]);
}

// A value broadcast as a scalar gives the bits that an array of it gives, at any size, in place.
TEST(Functions, EveryFormOfOperandsGivesTheSameBits) {
  for_each_isa([](Isa) {
    for (const PointwiseRow& row : kPointwiseTable) {
      if (row.kind != PointwiseKind::elementwise) continue;
      const PointwiseParameters p = default_parameters(row.fn);
      for (const size_t n : awkward_sizes()) {
        std::vector<std::vector<float>> arrays;
        for (size_t k = 0; k < row.operands; ++k)
          arrays.push_back(uniform(n, 0.25F, 2.0F, static_cast<unsigned>(k + 1)));
        for (size_t scalars = 0; scalars < size_t{1} << row.operands; ++scalars) {
          const std::vector<float> value = {0.5F, 1.5F, 0.75F};
          std::vector<std::vector<float>> spread = arrays;
          std::vector<TileOperand> in;
          std::vector<TileOperand> want_in;
          for (size_t k = 0; k < row.operands; ++k) {
            const bool scalar = (scalars >> k & 1) != 0;
            if (scalar) spread[k].assign(n, value[k]);
            in.push_back(scalar ? TileOperand(value[k]) : TileOperand(arrays[k].data()));
            want_in.emplace_back(spread[k].data());
          }
          Guarded<float> got(n, 1);
          std::vector<float> want(n);
          pointwise_kernels()[row.fn](in.data(), got.data(), n, p.data());
          pointwise_kernels()[row.fn](want_in.data(), want.data(), n, p.data());
          got.expect_guards_intact();
          for (size_t i = 0; i < n; ++i)
            ASSERT_EQ(std::bit_cast<uint32_t>(got[i]), std::bit_cast<uint32_t>(want[i]))
                << row.name << " form " << scalars << " of " << n;
          // The result may take the place of any operand.
          for (size_t k = 0; k < row.operands; ++k) {
            std::vector<std::vector<float>> copies = spread;
            std::vector<TileOperand> at;
            for (const std::vector<float>& copy : copies) at.emplace_back(copy.data());
            pointwise_kernels()[row.fn](at.data(), copies[k].data(), n, p.data());
            ASSERT_EQ(copies[k], want) << row.name << " in place of operand " << k;
          }
        }
      }
    }
  });
}

TEST(Functions, SinesAreGoodToAFewUlps) {
  for_each_isa([](Isa) {
    for (const Fn fn : {Fn::sin, Fn::cos}) {
      const auto exact = [fn](double x) { return fn == Fn::sin ? std::sin(x) : std::cos(x); };
      expect_ulps(fn, {}, sweep(-4, 4, 100'003), exact, 4);
      expect_ulps(fn, {}, sweep(-1e4F, 1e4F, 100'003), exact, 4);
      expect_ulps(fn, {}, sweep(25'000, 1e9F, 10'007), exact, 4);
      for (const float x : {kInf, -kInf, kNan}) EXPECT_TRUE(std::isnan(one(fn, {x})));
    }
    EXPECT_TRUE(std::signbit(one(Fn::sin, {-0.0F})));
  });
}

TEST(Functions, PowersAreGoodToTwoUlps) {
  for_each_isa([](Isa) {
    for (const float y : {0.0F, 1.0F, 2.0F, 3.0F, 4.0F, 0.5F, -1.0F, -2.0F, 1.7F, -0.3F, 7.0F,
                          -5.0F, 11.5F, 40.0F, 1e-5F}) {
      const auto exact = [y](double x) { return std::pow(x, static_cast<double>(y)); };
      expect_ulps(Fn::pow, {y}, sweep(0.001F, 8, 50'021), exact, 2);
      expect_ulps(Fn::pow, {y}, sweep(-8, -0.001F, 50'021), exact, 2);
      expect_ulps(Fn::pow, {y}, sweep(0.999F, 1.001F, 5'003), exact, 2);
    }
  });
}

TEST(Functions, PowersHaveTheSpecialCasesOfTheStandard) {
  const float bases[] = {0.0F,   -0.0F, 1.0F,  -1.0F, kInf,   -kInf, kNan,
                         1e-40F, 2.5F,  -2.5F, 3e38F, -3e38F, 0.5F,  -0.5F};
  const float exponents[] = {0.0F, -0.0F, 1.0F,  -1.0F, 2.0F,  -2.0F,  3.0F, -3.0F, 0.5F, -0.5F,
                             4.0F, kInf,  -kInf, kNan,  1e30F, -1e30F, 7.0F, -7.0F, 2.5F, -2.5F};
  for_each_isa([&](Isa) {
    for (const float y : exponents)
      for (const float x : bases) {
        const float want = std::pow(x, y);
        const float got = one(Fn::pow, {x}, {y});
        EXPECT_LE(ulps(got, want), 3) << x << " ^ " << y << " = " << got << ", not " << want;
        if (std::isnan(want)) continue;
        EXPECT_EQ(std::signbit(got), std::signbit(want)) << x << " ^ " << y;
      }
  });
}

double exact_softplus(double x, double beta, double threshold) {
  return x * beta > threshold ? x : std::log1p(std::exp(x * beta)) / beta;
}
double exact_mish(double x) { return x * std::tanh(std::log1p(std::exp(x))); }

TEST(Functions, ActivationsAreGoodToAFewUlps) {
  for_each_isa([](Isa) {
    const std::vector<float> x = sweep(-30, 30, 100'003);
    expect_ulps(
        Fn::softplus, {1, 20}, x, [](double v) { return exact_softplus(v, 1, 20); }, 8);
    expect_ulps(
        Fn::softplus, {2, 3}, x, [](double v) { return exact_softplus(v, 2, 3); }, 8);
    expect_ulps(Fn::mish, {}, x, exact_mish, 8);
    expect_ulps(
        Fn::elu, {1.5F, 0.5F, 2.0F}, x,
        [](double v) { return v < 0 ? std::expm1(v * 2) * 0.75 : v * 0.5; }, 8);
    expect_ulps(
        Fn::leaky_relu, {0.2F}, x, [](double v) { return v > 0 ? v : v * double{0.2F}; }, 1);
    expect_ulps(
        Fn::hardswish, {}, sweep(-2.5F, 5, 10'007),
        [](double v) { return v * std::min(v + 3, 6.0) / 6; }, 3);
    expect_ulps(
        Fn::sqrt, {}, sweep(0, 1e6F, 10'007), [](double v) { return std::sqrt(v); }, 0.5);
  });
}

TEST(Functions, DerivativesOfActivations) {
  const std::vector<float> x = sweep(-25, 25, 50'021);
  const std::vector<float> ones(x.size(), 1.0F);
  const auto sigmoid = [](double v) { return 1 / (1 + std::exp(-v)); };
  const std::pair<Fn, std::function<double(double)>> cases[] = {
      {Fn::leaky_relu_backward, [](double v) { return v > 0 ? 1 : 0.01; }},
      {Fn::elu_backward, [](double v) { return v > 0 ? 1 : std::exp(v); }},
      {Fn::softplus_backward, [&](double v) { return v > 20 ? 1 : sigmoid(v); }},
      {Fn::mish_backward,
       [&](double v) {
         const double t = std::tanh(std::log1p(std::exp(v)));
         return t + v * sigmoid(v) * (1 - t * t);
       }},
      {Fn::hardswish_backward, [](double v) { return v < -3  ? 0
                                                     : v > 3 ? 1
                                                             : v / 3 + 0.5; }}};
  for_each_isa([&](Isa) {
    std::vector<float> out(x.size());
    for (const auto& [fn, slope] : cases) {
      pointwise_kernels().run(fn, {ones.data(), x.data()}, out.data(), x.size());
      for (size_t i = 0; i < x.size(); ++i)
        ASSERT_NEAR(out[i], slope(x[i]), 1e-6) << pointwise_fn_name(fn) << " at " << x[i];
    }
  });
}

// PyTorch's values: NaN comes through but where a comparison selects.
TEST(Functions, NanAndInfinity) {
  for_each_isa([](Isa) {
    for (const Fn fn : {Fn::leaky_relu, Fn::elu, Fn::softplus, Fn::mish, Fn::hardswish, Fn::sqrt,
                        Fn::abs, Fn::sin, Fn::cos, Fn::pow, Fn::clamp}) {
      EXPECT_TRUE(std::isnan(one(fn, {kNan}))) << pointwise_fn_name(fn);
    }
    EXPECT_TRUE(std::isnan(one(Fn::clamp, {kNan}, {-1, 1})));
    EXPECT_TRUE(std::isnan(one(Fn::clamp, {0.5F}, {kNan, 1})));
    EXPECT_TRUE(std::isnan(one(Fn::clamp, {0.5F}, {-1, kNan})));
    EXPECT_EQ(one(Fn::clamp, {0.5F}, {2, 1}), 1);  // the upper bound wins
    for (const Fn fn : {Fn::maximum, Fn::minimum}) {
      EXPECT_TRUE(std::isnan(one(fn, {kNan, 1})) && std::isnan(one(fn, {1, kNan})));
    }
    EXPECT_EQ(one(Fn::sgn, {kNan}), 0);
    EXPECT_EQ(one(Fn::leaky_relu, {-kInf}), -kInf);
    EXPECT_EQ(one(Fn::elu, {-kInf}), -1);
    EXPECT_EQ(one(Fn::softplus, {-kInf}), 0);
    EXPECT_EQ(one(Fn::softplus, {kInf}), kInf);
    EXPECT_EQ(one(Fn::softplus, {90.0F}, {1, 200}), 90);
    EXPECT_EQ(one(Fn::mish, {kInf}), kInf);
    EXPECT_TRUE(std::isnan(one(Fn::mish, {-kInf})));
    EXPECT_EQ(one(Fn::hardswish, {kInf}), kInf);
    EXPECT_TRUE(std::isnan(one(Fn::hardswish, {-kInf})));
    EXPECT_TRUE(std::isnan(one(Fn::sqrt, {-1})));
    EXPECT_EQ(one(Fn::ne, {kNan, kNan}), 1);
    for (const Fn fn : {Fn::eq, Fn::lt, Fn::le, Fn::gt, Fn::ge})
      EXPECT_EQ(one(fn, {kNan, kNan}), 0) << pointwise_fn_name(fn);
    EXPECT_EQ(one(Fn::where, {0, kNan, 2}), 2);
    EXPECT_EQ(one(Fn::where, {1, 3, kNan}), 3);
  });
}

}  // namespace epilogue::simd::functions_test
