// SPDX-License-Identifier: Apache-2.0
// Lines of bf16 out of sums: activations beside double, ends of the range, ragged blocks.
#include "backend/cpu/simd/panels/block_lines.h"

#include <limits>

#include "backend/simd/panels/plain_tile_unit.h"
#include "base/cpu_features.h"
#include "support/test.h"

namespace epilogue::simd::block_lines_test {

using Exact = double (*)(double);
double identity(double x) { return x; }
double relu(double x) { return x > 0 ? x : 0; }
double silu(double x) { return x / (1 + std::exp(-x)); }
double gelu_tanh(double x) {
  return x / (1 + std::exp(-2 * 0.79788456080286536 * (x + 0.044715 * x * x * x)));
}
double gelu_erf(double x) { return x * 0.5 * std::erfc(-x / std::sqrt(2.0)); }
struct Function {
  std::optional<PointwiseFn> fn;
  Exact exact;
};
constexpr Function kFunctions[] = {{std::nullopt, identity},
                                   {PointwiseFn::relu, relu},
                                   {PointwiseFn::silu, silu},
                                   {PointwiseFn::gelu_tanh, gelu_tanh},
                                   {PointwiseFn::gelu_erf, gelu_erf}};

class BlockLinesTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!cpu_has(CpuFeature::avx512_bf16)) GTEST_SKIP() << "needs AVX512-BF16";
    for (size_t i = 0; i < sums_.size(); ++i)
      sums_[i] = static_cast<float>(static_cast<int64_t>(i * 37 % 2048) - 1024) / 128.0F;
  }
  // Half a rounding step of bf16 at x and what the activations may lose.
  static double room(double x) { return std::abs(x) * (0x1p-8 + 4e-4) + 1e-5; }

  alignas(64) std::array<float, kBlockSums> sums_{};
  alignas(64) std::array<uint16_t, 32 * 64> out_{};
};

TEST_F(BlockLinesTest, AreTheFunctionsOfSumsAndBias) {
  std::array<float, 32> bias;
  for (size_t j = 0; j < bias.size(); ++j) bias[j] = static_cast<float>(j) / 16.0F - 1;
  for (const Function& f : kFunctions)
    for (const bool has_bias : {false, true})
      for (const int64_t columns : {1, 15, 16, 31, 32})
        for (const bool streams : {false, true}) {
          if (streams && columns != 32) continue;
          out_.fill(0xABCD);
          BlockLines lines{sums_.data(), has_bias ? bias.data() : nullptr, out_.data(), 64, columns,
                           streams};
          const LineFunction run = plain_lines(f.fn);
          ASSERT_NE(run, nullptr);
          run(lines, 0, 7);
          run(lines, 7, 25);
          end_streams();
          for (int64_t i = 0; i < 32; ++i)
            for (int64_t j = 0; j < 64; ++j) {
              const uint16_t got = out_[static_cast<size_t>(i * 64 + j)];
              if (j >= columns) {
                ASSERT_EQ(got, 0xABCD) << "beyond column " << columns;
                continue;
              }
              const double x = static_cast<double>(sums_[static_cast<size_t>(i * 32 + j)]) +
                               (has_bias ? bias[static_cast<size_t>(j)] : 0);
              ASSERT_NEAR(widen(got), f.exact(x), room(f.exact(x))) << x;
            }
        }
}

TEST_F(BlockLinesTest, GateTimesUp) {
  for (const Function& f : kFunctions) {
    if (!f.fn) continue;
    for (const int64_t columns : {1, 9, 16}) {
      out_.fill(0xABCD);
      gated_lines (*f.fn)({sums_.data(), nullptr, out_.data(), 32, columns}, 0, 32);
      for (int64_t i = 0; i < 32; ++i)
        for (int64_t j = 0; j < 32; ++j) {
          const uint16_t got = out_[static_cast<size_t>(i * 32 + j)];
          if (j >= columns) {
            ASSERT_EQ(got, 0xABCD);
            continue;
          }
          const double expected = f.exact(sums_[static_cast<size_t>(i * 16 + j)]) *
                                  sums_[static_cast<size_t>(512 + i * 16 + j)];
          ASSERT_NEAR(widen(got), expected, room(expected));
        }
    }
  }
}

// int32 times a scale of the row and one of the column are what f32 sums would be.
TEST_F(BlockLinesTest, SumsOfIntegersAreScaled) {
  alignas(64) std::array<int32_t, kBlockSums> integers;
  std::array<float, 32> row_scales;
  std::array<float, 32> scales;
  for (size_t i = 0; i < integers.size(); ++i)
    integers[i] = static_cast<int32_t>(i * 7919 % 60001) - 30000;
  for (size_t i = 0; i < 32; ++i) {
    row_scales[i] = 1e-3F * static_cast<float>(i + 1);
    scales[i] = 5e-3F * static_cast<float>(33 - i);
  }
  std::array<uint16_t, 32 * 64> expected;
  for (const bool is_gated : {false, true}) {
    for (size_t i = 0; i < integers.size(); ++i) {
      const size_t row = is_gated ? i % 512 / 16 : i / 32;
      const size_t column = is_gated ? i / 512 * 16 + i % 16 : i % 32;
      sums_[i] = static_cast<float>(integers[i]) * (row_scales[row] * scales[column]);
    }
    const LineFunction run =
        is_gated ? gated_lines(PointwiseFn::silu) : plain_lines(PointwiseFn::silu);
    const int64_t columns = is_gated ? 16 : 32;
    expected.fill(1);
    out_.fill(1);
    run({sums_.data(), nullptr, expected.data(), 64, columns}, 0, 32);
    BlockLines lines{reinterpret_cast<const float*>(integers.data()), nullptr, out_.data(), 64,
                     columns};
    lines.row_scales = row_scales.data();
    lines.scales = scales.data();
    run(lines, 0, 5);
    run(lines, 5, 27);
    EXPECT_TRUE(std::equal(out_.begin(), out_.end(), expected.begin())) << is_gated;
  }
}

// As the formulas of f32 (pointwise.h): x times a gate is inf, and NaN for -inf.
TEST_F(BlockLinesTest, EndsOfTheRange) {
  constexpr float inf = std::numeric_limits<float>::infinity();
  sums_.fill(1);
  const float ends[] = {inf, -inf, std::numeric_limits<float>::quiet_NaN(), 3e38F, -3e38F, 1e20F};
  std::copy(std::begin(ends), std::end(ends), sums_.begin());
  for (const Function& f : kFunctions) {
    plain_lines(f.fn)({sums_.data(), nullptr, out_.data(), 32, 32}, 0, 1);
    const auto got = [&](size_t i) { return widen(out_[i]); };
    const bool is_gate = f.fn && f.fn != PointwiseFn::relu;
    EXPECT_EQ(got(0), inf);
    if (is_gate) {
      EXPECT_TRUE(std::isnan(got(1)));
    } else {
      EXPECT_EQ(got(1), f.fn ? 0 : -inf);
    }
    EXPECT_TRUE(std::isnan(got(2)));
    EXPECT_NEAR(got(3) / 3e38, 1, 0x1p-8);
    EXPECT_NEAR(got(4), f.fn ? 0 : -3e38, f.fn ? 1e-6 : 3e36);
    EXPECT_NEAR(got(5) / 1e20, 1, 0x1p-8);
  }
}

TEST_F(BlockLinesTest, OthersHaveNone) {
  EXPECT_EQ(plain_lines(PointwiseFn::tanh), nullptr);
  EXPECT_EQ(gated_lines(PointwiseFn::tanh), nullptr);
}

}  // namespace epilogue::simd::block_lines_test
