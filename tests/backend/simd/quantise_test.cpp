// SPDX-License-Identifier: Apache-2.0
// Rows as integers: the nearest steps of each row's largest magnitude, the same on every level.
#include "backend/cpu/simd/quantise.h"

#include "backend/cpu/simd/convert.h"
#include "backend/simd/simd_testing.h"

namespace epilogue::simd::quantise_test {

constexpr int64_t kRows = 5;

template <class In, class Out>
void expect_rows(RowsToIntegers<In, Out> run, const std::vector<float>& values,
                 const std::vector<In>& in, int64_t k, int most) {
  const int64_t k_end = k + 3;
  Guarded<Out> out(static_cast<size_t>(kRows * k_end));
  std::vector<float> scales(kRows);
  run(in.data(), k, kRows, k, k_end, out.data(), k_end, scales.data());
  out.expect_guards_intact();
  for (int64_t i = 0; i < kRows; ++i) {
    const auto row = values.begin() + i * k;
    float largest = 0;
    bool is_finite = true;
    for (int64_t j = 0; j < k; ++j) {
      is_finite = is_finite && std::isfinite(row[j]);
      largest = std::max(largest, std::abs(row[j]));
    }
    const float scale = scales[static_cast<size_t>(i)];
    if (is_finite) {
      EXPECT_EQ(scale, largest / static_cast<float>(most));
    } else {
      EXPECT_TRUE(std::isnan(scale));
    }
    const float factor = is_finite && largest > 0 ? static_cast<float>(most) / largest : 0.0F;
    for (int64_t j = 0; j < k_end; ++j) {
      const float step = j < k && factor != 0 ? std::nearbyint(row[j] * factor) : 0.0F;
      ASSERT_EQ(static_cast<float>(out[static_cast<size_t>(i * k_end + j)]), step)
          << "row " << i << " of " << k << ", " << j;
    }
  }
}

TEST(QuantisedRows, AreTheNearestStepsOnEveryLevel) {
  for (const int64_t k : {1, 7, 16, 31, 64, 130}) {
    std::vector<float> values = sweep(-3, 4.5F, static_cast<size_t>(kRows * k));
    // Ties, zeros, and rows that are not finite.
    for (int64_t j = 0; j < k; ++j) {
      values[static_cast<size_t>(j)] = j == 0 ? 127.0F : static_cast<float>(j % 9) - 4.5F;
      values[static_cast<size_t>(k + j)] = 0;
    }
    values[static_cast<size_t>(3 * k - 1)] = kNan;
    values[static_cast<size_t>(3 * k)] = -kInf;
    std::vector<uint16_t> bf16(values.size());
    std::vector<float> widened(values.size());
    from_f32(FloatType::bf16, values.data(), bf16.data(), bf16.size());
    to_f32(FloatType::bf16, bf16.data(), widened.data(), widened.size());
    for_each_isa([&](Isa) {
      const QuantiseKernels& kernels = quantise_kernels();
      expect_rows(kernels.f32_to_i8, values, values, k, 127);
      expect_rows(kernels.bf16_to_i8, widened, bf16, k, 127);
      expect_rows(kernels.f32_to_wide_i8, values, values, k, 127);
      expect_rows(kernels.f32_to_i16, values, values, k, 32767);
      expect_rows(kernels.f32_to_split_i16, values, values, k, 32639);
    });
  }
}

}  // namespace epilogue::simd::quantise_test
