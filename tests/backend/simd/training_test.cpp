// SPDX-License-Identifier: Apache-2.0
// Optimizer, gradient and cross-entropy kernels against plain loops in double: every size, offset
// and level, nothing touched beyond the arrays.
#include <bit>

#include "backend/cpu/simd/cross_entropy.h"
#include "backend/cpu/simd/gradients.h"
#include "backend/cpu/simd/optimizer.h"
#include "backend/simd/simd_testing.h"
#include "epilogue/dtype.h"
#include "support/test.h"

namespace epilogue::simd::training_test {

constexpr double kTolerance = 4e-7;

template <class T>
void fill(Guarded<T>& array, const std::vector<float>& values) {
  for (size_t i = 0; i < values.size(); ++i) {
    if constexpr (std::is_same_v<T, float>) {
      array[i] = values[i];
    } else {
      array[i] = BFloat16(values[i]).bits;
    }
  }
}
double value(float x) { return static_cast<double>(x); }
double value(uint16_t bits) {
  return static_cast<double>(std::bit_cast<float>(static_cast<uint32_t>(bits) << 16));
}

constexpr AdamScalars kAdam = {.grad_factor = -0.5F,
                               .clip = 0.25F,
                               .decay = 0.99F,
                               .l2 = 0.1F,
                               .beta1_weight = 0.1F,
                               .beta2 = 0.99F,
                               .beta2_weight = 0.01F,
                               .step_size = 0.03F,
                               .inverse_root = 4,
                               .eps = 1e-3F};

// One step on n elements of type T; `tolerance` is relative to the values, which are near 1.
template <class T>
void check_adam(AdamKernel kernel, size_t n, size_t offset, bool amsgrad, bool with_copy,
                double tolerance) {
  std::array<std::vector<float>, 5> start;
  for (size_t k = 0; k < 5; ++k)
    start[k] = uniform(n, k >= 3 ? 0.5F : -1.0F, 1, static_cast<uint32_t>(10 * n + k));
  std::array<Guarded<T>, 5> a = {Guarded<T>(n, offset), Guarded<T>(n, offset),
                                 Guarded<T>(n, offset), Guarded<T>(n, offset),
                                 Guarded<T>(n, offset)};  // p, g, m, v, largest v
  for (size_t k = 0; k < 5; ++k) fill(a[k], start[k]);
  std::array<std::vector<double>, 5> before;
  for (size_t k = 0; k < 5; ++k)
    for (size_t i = 0; i < n; ++i) before[k].push_back(value(a[k][i]));
  Guarded<uint16_t> copy(n, offset);
  kernel({a[0].data(), a[1].data(), a[2].data(), a[3].data(), amsgrad ? a[4].data() : nullptr,
          with_copy ? copy.data() : nullptr},
         kAdam, n);
  for (size_t i = 0; i < n; ++i) {
    const double g = before[1][i] * -0.5 * 0.25 + static_cast<double>(kAdam.l2) * before[0][i];
    const double m = before[2][i] + static_cast<double>(kAdam.beta1_weight) * (g - before[2][i]);
    const double v = static_cast<double>(kAdam.beta2) * before[3][i] +
                     static_cast<double>(kAdam.beta2_weight) * g * g;
    const double second = amsgrad ? std::max(before[4][i], v) : v;
    const double p = before[0][i] * static_cast<double>(kAdam.decay) -
                     static_cast<double>(kAdam.step_size) * m /
                         (std::sqrt(second) * 4 + static_cast<double>(kAdam.eps));
    ASSERT_NEAR(value(a[0][i]), p, tolerance) << i << " of " << n;
    ASSERT_NEAR(value(a[2][i]), m, tolerance) << i << " of " << n;
    ASSERT_NEAR(value(a[3][i]), v, tolerance) << i << " of " << n;
    ASSERT_EQ(value(a[1][i]), before[1][i]);
    if (amsgrad) {
      ASSERT_NEAR(value(a[4][i]), second, tolerance);
    }
    if constexpr (std::is_same_v<T, float>) {
      if (with_copy) {
        ASSERT_EQ(copy[i], BFloat16(a[0][i]).bits);
      }
    }
  }
  for (auto& array : a) array.expect_guards_intact();
  copy.expect_guards_intact();
}

TEST(OptimizerKernels, AdamIsTheFormula) {
  for_each_isa([](Isa) {
    const OptimizerKernels& k = optimizer_kernels();
    for (const size_t n : awkward_sizes()) {
      for (const bool amsgrad : {false, true}) {
        check_adam<float>(k.adam_f32[0], n, n % 3, amsgrad, false, kTolerance);
        check_adam<float>(k.adam_f32[1], n, n % 3, amsgrad, true, kTolerance);
        check_adam<uint16_t>(k.adam_low[1], n, n % 3, amsgrad, false, 0x1p-8);
      }
    }
  });
}

TEST(OptimizerKernels, SgdIsTheFormula) {
  for_each_isa([](Isa) {
    for (const size_t n : awkward_sizes()) {
      for (const bool first : {false, true}) {
        for (const bool nesterov : {false, true}) {
          const SgdScalars with = {.grad_factor = 2,
                                   .clip = 0.5F,
                                   .l2 = 0.25F,
                                   .momentum = 0.5F,
                                   .dampened = 0.75F,
                                   .lr = 0.125F,
                                   .nesterov = nesterov,
                                   .is_first = first};
          Guarded<float> p(n, n % 3);
          Guarded<float> g(n);
          Guarded<float> b(n, 1);
          Guarded<uint16_t> copy(n);
          const auto p0 = uniform(n, -1, 1, 1);
          const auto g0 = uniform(n, -1, 1, 2);
          const auto b0 = uniform(n, -1, 1, 3);
          fill(p, p0);
          fill(g, g0);
          fill(b, b0);
          optimizer_kernels().sgd_f32[1]({p.data(), g.data(), b.data(), copy.data()}, with, n);
          for (size_t i = 0; i < n; ++i) {
            const double grad = value(g0[i]) + 0.25 * value(p0[i]);
            const double next = first ? grad : 0.5 * value(b0[i]) + 0.75 * grad;
            const double step = nesterov ? grad + 0.5 * next : next;
            ASSERT_NEAR(value(b[i]), next, kTolerance);
            ASSERT_NEAR(value(p[i]), value(p0[i]) - 0.125 * step, kTolerance);
            ASSERT_EQ(copy[i], BFloat16(p[i]).bits);
          }
          for (auto* array : {&p, &g, &b}) array->expect_guards_intact();
          copy.expect_guards_intact();
        }
      }
    }
  });
}

TEST(GradientKernels, SumsAreInDouble) {
  for_each_isa([](Isa) {
    const GradientKernels& k = gradient_kernels();
    for (const size_t n : awkward_sizes()) {
      const auto values = uniform(n, -2, 2, static_cast<uint32_t>(n));
      Guarded<float> x(n, n % 5);
      fill(x, values);
      double squares = 0;
      double magnitudes = 0;
      float largest = 0;
      for (const float v : values) {
        squares += value(v) * value(v);
        magnitudes += std::abs(value(v));
        largest = std::max(largest, std::abs(v));
      }
      EXPECT_NEAR(k.sum_squares(x.data(), n), squares, 1e-12 * squares);
      EXPECT_NEAR(k.sum_magnitudes(x.data(), n), magnitudes, 1e-12 * magnitudes);
      EXPECT_EQ(k.max_magnitude(x.data(), n), largest);
    }
    const std::vector<float> huge(100, 3e38F);
    EXPECT_NEAR(k.sum_squares(huge.data(), 100) / 9e78, 1, 1e-6);
  });
}

TEST(GradientKernels, FindNonFiniteElementsWhereverTheyAre) {
  for_each_isa([](Isa) {
    const GradientKernels& k = gradient_kernels();
    for (const size_t n : {1U, 7U, 16U, 35U, 65U}) {
      std::vector<float> x(n, 3e38F);  // large, but finite: their sum is not
      EXPECT_TRUE(k.all_finite(x.data(), n));
      for (size_t at = 0; at < n; ++at) {
        for (const float bad : {NAN, INFINITY, -INFINITY}) {
          x[at] = bad;
          EXPECT_FALSE(k.all_finite(x.data(), n)) << at << " of " << n;
          std::vector<float> out(n);
          EXPECT_FALSE(k.scale_and_check(x.data(), 0.5F, out.data(), n));
          EXPECT_FALSE(std::isfinite(out[at]));
          EXPECT_EQ(std::isnan(k.max_magnitude(x.data(), n)), std::isnan(bad));
        }
        x[at] = 3e38F;
      }
    }
    EXPECT_TRUE(k.all_finite(nullptr, 0));
  });
}

TEST(GradientKernels, ScaleAndClampTouchTheirElementsOnly) {
  for_each_isa([](Isa) {
    const GradientKernels& k = gradient_kernels();
    for (const size_t n : awkward_sizes()) {
      const auto values = uniform(n, -2, 2, static_cast<uint32_t>(n));
      Guarded<float> x(n, 1);
      fill(x, values);
      EXPECT_TRUE(k.scale_and_check(x.data(), 0.25F, x.data(), n));
      for (size_t i = 0; i < n; ++i) ASSERT_EQ(x[i], values[i] * 0.25F);
      k.clamp(x.data(), -0.125F, 0.25F, x.data(), n);
      for (size_t i = 0; i < n; ++i) ASSERT_EQ(x[i], std::clamp(values[i] * 0.25F, -0.125F, 0.25F));
      x.expect_guards_intact();
    }
    float nan = NAN;
    k.clamp(&nan, -1, 1, &nan, 1);
    EXPECT_TRUE(std::isnan(nan));
  });
}

TEST(CrossEntropyKernels, StatsAndGradientAreTheFormulas) {
  for_each_isa([](Isa) {
    const CrossEntropyKernels& k = cross_entropy_kernels();
    for (const size_t n : awkward_sizes()) {
      if (n == 0) continue;
      for (const float shift : {0.0F, 1000.0F, -1000.0F}) {
        auto values = uniform(n, -3, 3, static_cast<uint32_t>(n));
        for (float& v : values) v += shift;
        const auto weight = uniform(n, 0.5F, 2, 7);
        Guarded<float> x(n, n % 3);
        fill(x, values);
        const SoftmaxStats s = k.stats(x.data(), n);
        EXPECT_EQ(s.max, *std::max_element(values.begin(), values.end()));
        double sum = 0;
        double shifted = 0;
        for (size_t i = 0; i < n; ++i) {
          sum += std::exp(value(values[i]) - value(s.max));
          shifted += value(weight[i]) * (value(values[i]) - value(s.max));
        }
        EXPECT_NEAR(value(s.log_sum), std::log(sum), 1e-6 * std::max(1.0, std::log(sum)));
        EXPECT_NEAR(value(k.shifted_sum(x.data(), weight.data(), s.max, n)), shifted,
                    2e-6 * std::abs(shifted) + 1e-6);
        for (const float* w : {weight.data(), static_cast<const float*>(nullptr)}) {
          Guarded<float> dx(n, 1);
          k.gradient(x.data(), w, s, 2, 0.5F, dx.data(), n);
          for (size_t i = 0; i < n; ++i) {
            const double p = std::exp(value(values[i]) - value(s.max)) / sum;
            ASSERT_NEAR(value(dx[i]), 2 * p - 0.5 * (w != nullptr ? value(w[i]) : 1), 2e-6);
          }
          dx.expect_guards_intact();
        }
      }
    }
  });
}

TEST(CrossEntropyKernels, NonFiniteLogitsGiveNaN) {
  for_each_isa([](Isa) {
    const CrossEntropyKernels& k = cross_entropy_kernels();
    for (const float bad : {NAN, INFINITY}) {
      std::vector<float> x(20, 1);
      x[17] = bad;
      EXPECT_TRUE(std::isnan(k.stats(x.data(), x.size()).log_sum));
    }
    const std::vector<float> masked = {1, -INFINITY, 1};
    EXPECT_NEAR(value(k.stats(masked.data(), 3).log_sum), std::log(2.0), 1e-7);
  });
}

}  // namespace epilogue::simd::training_test
