// SPDX-License-Identifier: Apache-2.0
// Row kernels against double, at every size, with edges; gradients against their formulas.
#include "backend/cpu/simd/reduce.h"

#include "backend/simd/simd_testing.h"
#include "support/test.h"

namespace epilogue::simd::reduce_test {

std::vector<double> doubles(const std::vector<float>& x) { return {x.begin(), x.end()}; }

std::vector<double> ref_softmax(const std::vector<float>& x) {
  std::vector<double> y = doubles(x);
  const double max = *std::max_element(y.begin(), y.end());
  double sum = 0.0;
  for (double& v : y) sum += v = std::exp(v - max);
  for (double& v : y) v /= sum;
  return y;
}

void expect_row(Guarded<float>& got, const std::vector<double>& want, double tolerance,
                const char* what) {
  got.expect_guards_intact();
  size_t worst = 0;
  double error = 0.0;
  for (size_t i = 0; i < want.size(); ++i) {
    const double e = std::abs(got[i] - want[i]);
    if (!(e <= error)) {
      error = e;
      worst = i;
    }
  }
  ASSERT_LE(error, tolerance) << what << " of " << want.size() << ": worst element " << worst
                              << " is " << got[worst] << ", not " << want[worst];
}

TEST(Row, SumsAndExtremes) {
  for_each_isa([](Isa) {
    const RowKernels& k = row_kernels();
    for (size_t n : awkward_sizes()) {
      const std::vector<float> a = uniform(n, -1.0F, 1.0F, 1);
      const std::vector<float> b = uniform(n, -1.0F, 1.0F, 2);
      double sum = 0.0;
      double dot = 0.0;
      double square = 0.0;
      float max = -kInf;
      for (size_t i = 0; i < n; ++i) {
        sum += a[i];
        dot += static_cast<double>(a[i]) * b[i];
        square += std::pow(static_cast<double>(a[i]) - b[i], 2);
        max = std::max(max, a[i]);
      }
      const double tolerance = 1e-6 * std::sqrt(static_cast<double>(n)) + 1e-7;
      EXPECT_NEAR(k.sum(a.data(), n), sum, tolerance) << n;
      EXPECT_NEAR(k.dot(a.data(), b.data(), n), dot, tolerance) << n;
      EXPECT_NEAR(k.squared_difference(a.data(), b.data(), n), square, 4 * tolerance) << n;
      EXPECT_EQ(k.max(a.data(), n), max) << n;
      Guarded<float> acc(n, 1);
      std::copy(a.begin(), a.end(), acc.data());
      k.accumulate(b.data(), acc.data(), n);
      acc.expect_guards_intact();
      for (size_t i = 0; i < n; ++i) EXPECT_EQ(acc[i], a[i] + b[i]);
    }
  });
}

TEST(Row, MinimaPlacesAndDeviations) {
  for_each_isa([](Isa) {
    const RowKernels& k = row_kernels();
    for (size_t n : awkward_sizes()) {
      const std::vector<float> x = uniform(n, -1.0F, 1.0F, 1);
      const auto least = std::min_element(x.begin(), x.end());
      EXPECT_EQ(k.min(x.data(), n), n == 0 ? kInf : *least) << n;
      EXPECT_EQ(k.find(x.data(), 7.0F, n), n);
      if (n == 0) continue;
      EXPECT_EQ(k.find(x.data(), *least, n), static_cast<size_t>(least - x.begin())) << n;
      double squares = 0.0;
      for (const float v : x) squares += std::pow(static_cast<double>(v) - 0.5, 2);
      EXPECT_NEAR(k.squared_deviation(x.data(), 0.5F, n), squares,
                  4e-6 * std::sqrt(static_cast<double>(n)) + 1e-6)
          << n;
    }
  });
}

TEST(Row, NanIsFoundWhereverItStandsAndWinsTheMinimum) {
  for_each_isa([](Isa) {
    for (size_t n : {1U, 5U, 16U, 33U, 70U})
      for (size_t where = 0; where < n; ++where) {
        std::vector<float> x = uniform(n, -1.0F, 1.0F, 1);
        x[where] = kNan;
        EXPECT_TRUE(std::isnan(row_kernels().min(x.data(), n))) << where << " of " << n;
        EXPECT_EQ(row_kernels().find(x.data(), kNan, n), where);
        x[where] = -kInf;
        EXPECT_EQ(row_kernels().min(x.data(), n), -kInf);
        EXPECT_EQ(row_kernels().find(x.data(), -kInf, n), where);
      }
  });
}

// A single f32 accumulator would stop growing at 2^24 and be off by far more.
TEST(Row, LongSumsStayAccurate) {
  for_each_isa([](Isa) {
    const size_t n = 3'000'001;
    const std::vector<float> x = uniform(n, 0.0F, 1.0F, 3);
    const double want = std::accumulate(x.begin(), x.end(), 0.0);
    EXPECT_NEAR(row_kernels().sum(x.data(), n) / want, 1.0, 1e-6);
  });
}

TEST(Row, NanWinsTheMaximumWhereverItStands) {
  for_each_isa([](Isa) {
    for (size_t n : {1U, 5U, 16U, 33U, 70U})
      for (size_t where = 0; where < n; ++where) {
        std::vector<float> x = uniform(n, -1.0F, 1.0F, 1);
        x[where] = kNan;
        EXPECT_TRUE(std::isnan(row_kernels().max(x.data(), n))) << where << " of " << n;
        x[where] = kInf;
        EXPECT_EQ(row_kernels().max(x.data(), n), kInf);
      }
  });
}

TEST(Row, SoftmaxAndItsLogarithm) {
  for_each_isa([](Isa) {
    const RowKernels& k = row_kernels();
    for (size_t n : awkward_sizes()) {
      Guarded<float> y(n, 1);
      Guarded<float> log_y(n, 1);
      const std::vector<float> x = uniform(n, -20.0F, 20.0F, 4);
      k.softmax(x.data(), y.data(), n);
      k.log_softmax(x.data(), log_y.data(), n);
      y.expect_guards_intact();
      if (n == 0) continue;
      const std::vector<double> want = ref_softmax(x);
      expect_row(y, want, 1e-6, "softmax");
      std::vector<double> logs;
      logs.reserve(n);
      for (double v : want) logs.push_back(std::log(v));
      expect_row(log_y, logs, 1e-5, "log_softmax");
    }
  });
}

TEST(Row, SoftmaxEdges) {
  for_each_isa([](Isa) {
    for (size_t n : {3U, 19U}) {
      std::vector<float> x(n, -kInf);
      std::vector<float> y(n);
      x[1] = 2.0F;
      row_kernels().softmax(x.data(), y.data(), n);
      for (size_t i = 0; i < n; ++i) EXPECT_EQ(y[i], i == 1 ? 1.0F : 0.0F);
      x[1] = -kInf;
      row_kernels().softmax(x.data(), y.data(), n);
      for (float v : y) EXPECT_TRUE(std::isnan(v)) << "all -inf";
      std::fill(x.begin(), x.end(), 1.0F);
      x[n - 1] = kNan;
      row_kernels().softmax(x.data(), y.data(), n);
      for (float v : y) EXPECT_TRUE(std::isnan(v));
      row_kernels().log_softmax(x.data(), y.data(), n);
      for (float v : y) EXPECT_TRUE(std::isnan(v));
      std::fill(x.begin(), x.end(), 3e38F);
      row_kernels().softmax(x.data(), y.data(), n);
      for (float v : y) EXPECT_NEAR(v, 1.0 / static_cast<double>(n), 1e-7);
    }
  });
}

TEST(Row, SoftmaxGradients) {
  for_each_isa([](Isa) {
    const RowKernels& k = row_kernels();
    for (size_t n : awkward_sizes()) {
      if (n == 0) continue;
      const std::vector<float> dy = uniform(n, -1.0F, 1.0F, 1);
      const std::vector<double> soft = ref_softmax(uniform(n, -3.0F, 3.0F, 2));
      std::vector<float> y(soft.begin(), soft.end());
      double dot = 0.0;
      double sum = 0.0;
      for (size_t i = 0; i < n; ++i) {
        dot += dy[i] * soft[i];
        sum += dy[i];
      }
      std::vector<double> want(n);
      std::vector<double> want_log(n);
      std::vector<float> log_y(n);
      for (size_t i = 0; i < n; ++i) {
        want[i] = soft[i] * (dy[i] - dot);
        want_log[i] = dy[i] - soft[i] * sum;
        log_y[i] = static_cast<float>(std::log(soft[i]));
      }
      Guarded<float> dx(n, 1);
      std::copy(dy.begin(), dy.end(), dx.data());
      k.softmax_backward(dx.data(), y.data(), dx.data(), n);
      expect_row(dx, want, 2e-6, "softmax_backward");
      std::copy(dy.begin(), dy.end(), dx.data());
      k.log_softmax_backward(dx.data(), log_y.data(), dx.data(), n);
      expect_row(dx, want_log, 5e-6, "log_softmax_backward");
    }
  });
}

struct Norm {
  double mean = 0.0;
  double rstd = 0.0;
  std::vector<double> h;
};
Norm normalise(const std::vector<float>& x, double eps, bool centre) {
  Norm norm;
  const auto n = static_cast<double>(x.size());
  if (centre) norm.mean = std::accumulate(x.begin(), x.end(), 0.0) / n;
  double variance = 0.0;
  for (float v : x) variance += (v - norm.mean) * (v - norm.mean);
  norm.rstd = 1.0 / std::sqrt(variance / n + eps);
  for (float v : x) norm.h.push_back((v - norm.mean) * norm.rstd);
  return norm;
}

TEST(Row, LayerNormAndRmsNorm) {
  for_each_isa([](Isa) {
    const RowKernels& k = row_kernels();
    for (size_t n : awkward_sizes()) {
      if (n == 0) continue;
      const std::vector<float> x = uniform(n, 9.0F, 13.0F, 1);  // far from zero: two passes matter
      const std::vector<float> gamma = uniform(n, 0.5F, 2.0F, 2);
      const std::vector<float> beta = uniform(n, -1.0F, 1.0F, 3);
      const Norm layer = normalise(x, 1e-5, true);
      const Norm rms = normalise(x, 1e-6, false);
      for (bool weights : {true, false}) {
        Guarded<float> y(n, 1);
        std::copy(x.begin(), x.end(), y.data());
        const RowMoments moments =
            k.layer_norm(y.data(), weights ? gamma.data() : nullptr,
                         weights ? beta.data() : nullptr, 1e-5F, y.data(), n);
        EXPECT_NEAR(moments.mean, layer.mean, 2e-5);
        EXPECT_NEAR(moments.rstd / layer.rstd, 1.0, 1e-4);
        std::vector<double> want(n);
        for (size_t i = 0; i < n; ++i)
          want[i] = weights ? layer.h[i] * gamma[i] + beta[i] : layer.h[i];
        expect_row(y, want, n == 1 ? 1e-2 : 3e-4, "layer_norm");
        std::copy(x.begin(), x.end(), y.data());
        const float rstd =
            k.rms_norm(y.data(), weights ? gamma.data() : nullptr, 1e-6F, y.data(), n);
        EXPECT_NEAR(rstd / rms.rstd, 1.0, 1e-6);
        for (size_t i = 0; i < n; ++i) want[i] = weights ? rms.h[i] * gamma[i] : rms.h[i];
        expect_row(y, want, 2e-6, "rms_norm");
      }
    }
  });
}

TEST(Row, AConstantRowIsNotDividedByZero) {
  for_each_isa([](Isa) {
    const std::vector<float> x(19, 4.0F);
    std::vector<float> y(19);
    row_kernels().layer_norm(x.data(), nullptr, nullptr, 1e-5F, y.data(), 19);
    for (float v : y) EXPECT_EQ(v, 0.0F);
  });
}

void check_norm_backward(size_t n, bool centre, bool weights) {
  const std::vector<float> x = uniform(n, -2.0F, 3.0F, 1);
  const std::vector<float> dy = uniform(n, -1.0F, 1.0F, 2);
  const std::vector<float> gamma = uniform(n, 0.5F, 2.0F, 3);
  const Norm norm = normalise(x, 1e-5, centre);
  const auto count = static_cast<double>(n);
  double mean_g = 0.0;
  double mean_gh = 0.0;
  const auto g = [&](size_t i) { return weights ? double{dy[i]} * gamma[i] : double{dy[i]}; };
  for (size_t i = 0; i < n; ++i) {
    if (centre) mean_g += g(i) / count;
    mean_gh += g(i) * norm.h[i] / count;
  }
  std::vector<double> want(n);
  std::vector<double> want_gamma(n);
  std::vector<double> want_beta(n);
  for (size_t i = 0; i < n; ++i) {
    want[i] = norm.rstd * (g(i) - mean_g - norm.h[i] * mean_gh);
    want_gamma[i] = 1.0 + dy[i] * norm.h[i];
    want_beta[i] = 2.0 + dy[i];
  }
  Guarded<float> dx(n, 1);
  std::copy(dy.begin(), dy.end(), dx.data());
  Guarded<float> dgamma(n, 2);
  std::fill_n(dgamma.data(), n, 1.0F);
  Guarded<float> dbeta(n, 3);
  std::fill_n(dbeta.data(), n, 2.0F);
  const float* const w = weights ? gamma.data() : nullptr;
  const auto rstd = static_cast<float>(norm.rstd);
  const RowKernels& k = row_kernels();
  if (centre) {
    k.layer_norm_backward(dx.data(), x.data(), w, {static_cast<float>(norm.mean), rstd}, dx.data(),
                          dgamma.data(), dbeta.data(), n);
    expect_row(dbeta, want_beta, 1e-6, "dbeta");
  } else {
    k.rms_norm_backward(dx.data(), x.data(), w, rstd, dx.data(), dgamma.data(), n);
  }
  const double scale = std::max(1.0, norm.rstd);
  expect_row(dx, want, 1e-5 * scale, "dx");
  expect_row(dgamma, want_gamma, 1e-5 * scale, "dgamma");
}

TEST(Row, NormGradientsInPlace) {
  for_each_isa([](Isa) {
    for (size_t n : awkward_sizes())
      for (bool centre : {true, false})
        for (bool weights : {true, false})
          if (n > 1) check_norm_backward(n, centre, weights);
  });
}

TEST(Row, GradientsThatAreNotWantedMayBeNull) {
  for_each_isa([](Isa) {
    const std::vector<float> x = uniform(21, -1.0F, 1.0F, 1);
    const std::vector<float> dy = uniform(21, -1.0F, 1.0F, 2);
    std::vector<float> dgamma(21);
    const RowKernels& k = row_kernels();
    k.layer_norm_backward(dy.data(), x.data(), nullptr, {0.0F, 2.0F}, nullptr, dgamma.data(),
                          nullptr, 21);
    for (size_t i = 0; i < 21; ++i) EXPECT_NEAR(dgamma[i], dy[i] * x[i] * 2.0, 1e-6);
    k.layer_norm_backward(dy.data(), x.data(), nullptr, {0.0F, 2.0F}, nullptr, nullptr, nullptr,
                          21);
    k.rms_norm_backward(dy.data(), x.data(), nullptr, 2.0F, nullptr, nullptr, 21);
  });
}

}  // namespace epilogue::simd::reduce_test
