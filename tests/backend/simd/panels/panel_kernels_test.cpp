// SPDX-License-Identifier: Apache-2.0
// Products over packed panels against sums in double: every level, panel type, one and two parts,
// ragged sizes, any strides of the weights.
#include "backend/cpu/simd/panels/packed_weights.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "base/cpu_features.h"

namespace epilogue::simd {
namespace {

struct Matrix {
  std::vector<uint16_t> bf16;
  std::vector<float> f32;  // the same values
};

// Values that bf16 holds exactly, so that every panel type has the same product.
Matrix random_matrix(int64_t rows, int64_t columns, uint32_t seed) {
  std::mt19937 generator(seed);
  std::uniform_real_distribution<float> values(-1, 1);
  Matrix m;
  m.f32.resize(static_cast<size_t>(rows * columns));
  m.bf16.resize(m.f32.size());
  for (float& x : m.f32) x = values(generator);
  from_f32(FloatType::bf16, m.f32.data(), m.bf16.data(), m.f32.size());
  to_f32(FloatType::bf16, m.bf16.data(), m.f32.data(), m.f32.size());
  return m;
}

struct Sizes {
  int64_t m;
  int64_t k;
  int64_t n;
};
constexpr Sizes kSizes[] = {{1, 1, 1},   {1, 2, 3},    {5, 7, 17},    {6, 64, 64},
                            {7, 65, 63}, {13, 33, 65}, {48, 96, 130}, {3, 200, 1}};

class LevelScope {
 public:
  explicit LevelScope(Isa isa) : before_(active_isa()) { set_active_isa(isa); }
  ~LevelScope() { set_active_isa(before_); }
  LevelScope(const LevelScope&) = delete;
  LevelScope& operator=(const LevelScope&) = delete;

 private:
  Isa before_;
};

class Packed : public testing::TestWithParam<Isa> {
 protected:
  void SetUp() override {
    if (!is_available(GetParam()))
      GTEST_SKIP() << isa_name(GetParam()) << " is not on this machine";
  }
};

// All rows of A (with an even row stride, zero beyond k) through all panels.
void expect_product(const Sizes& c, PanelType type, int parts, bool transposed) {
  const PackedKernels kernels = packed_kernels();
  const auto index = static_cast<size_t>(type);
  const PanelKernel kernel = parts == 2 ? kernels.two[index] : kernels.one[index];
  if (kernel == nullptr) return;
  const int64_t stride = padded_depth(c.k, PanelType::bf16_pairs, kernels.layout);
  Matrix a = random_matrix(c.m, stride, 1);
  for (int64_t i = 0; i < c.m; ++i)
    for (int64_t q = c.k; q < stride; ++q) {
      a.f32[static_cast<size_t>(i * stride + q)] = 0;
      a.bf16[static_cast<size_t>(i * stride + q)] = 0;
    }
  std::vector<Matrix> weights;
  std::vector<PackedPart> operands;
  for (int p = 0; p < parts; ++p)
    weights.push_back(random_matrix(c.k, c.n, 2 + static_cast<uint32_t>(p)));
  for (const Matrix& w : weights)
    operands.push_back({transposed ? GemmOperand{w.bf16.data(), FloatType::bf16, 1, c.k}
                                   : GemmOperand{w.bf16.data(), FloatType::bf16, c.n, 1},
                        c.k});
  const PackedWeights packed(operands, c.n, type, kernels.layout);
  const int64_t each = packed.columns_per_panel();
  std::vector<float> sums[2];
  for (auto& s : sums) s.resize(static_cast<size_t>(c.m * kernels.layout.width));
  const bool pairs = type == PanelType::bf16_pairs;
  for (int64_t panel = 0; panel < packed.panels(); ++panel) {
    PanelArgs args;
    args.m = c.m;
    args.k = pairs ? stride : c.k;
    args.a = pairs ? static_cast<const void*>(a.bf16.data()) : a.f32.data();
    args.a_stride = stride;
    args.panel = packed.panel(panel, 0);
    args.sums[0] = sums[0].data();
    args.sums[1] = sums[1].data();
    kernel(args);
    args.accumulate = true;  // once more on top: twice the product
    kernel(args);
    for (int64_t i = 0; i < c.m; ++i)
      for (int64_t j = 0; j < std::min(each, c.n - panel * each); ++j)
        for (int p = 0; p < parts; ++p) {
          const int64_t column = panel * each + j;
          double expected = 0;
          double scale = 0;
          for (int64_t q = 0; q < c.k; ++q) {
            const float w =
                weights[static_cast<size_t>(p)]
                    .f32[static_cast<size_t>(transposed ? column * c.k + q : q * c.n + column)];
            const double term = 2.0 * a.f32[static_cast<size_t>(i * stride + q)] * w;
            expected += term;
            scale += std::abs(term);
          }
          EXPECT_NEAR(sums[p][static_cast<size_t>(i * each + j)], expected, 1e-6 * scale + 1e-12)
              << c.m << "x" << c.k << "x" << c.n << " parts " << parts << " type " << index
              << " at " << i << ", " << column << " of part " << p;
        }
  }
}

TEST_P(Packed, EqualsSumsInDouble) {
  const LevelScope level(GetParam());
  for (const Sizes& c : kSizes)
    for (const PanelType type : {PanelType::f32, PanelType::bf16, PanelType::bf16_pairs})
      for (const int parts : {1, 2})
        for (const bool transposed : {false, true}) expect_product(c, type, parts, transposed);
}

struct StoreCase {
  PanelType type;
  FloatType out;
  bool has_bias, relu, accumulate;
};

// One panel's results, finished in registers, against the same sums finished one by one.
void expect_finished(const Sizes& c, const StoreCase& s) {
  const PackedKernels kernels = packed_kernels();
  const auto index = static_cast<size_t>(s.type);
  if (!kernels.stores[index]) return;
  const int64_t width = kernels.layout.width;
  const int64_t stride = padded_depth(c.k, s.type, kernels.layout);
  Matrix a = random_matrix(c.m, stride, 1);
  a.bf16[0] = 0x7fc0;  // the first row's results are NaN
  a.f32[0] = NAN;
  const Matrix w = random_matrix(stride, width, 2);
  const PackedPart part = {{w.bf16.data(), FloatType::bf16, width, 1}, stride};
  const PackedWeights packed({&part, 1}, width, s.type, kernels.layout);
  const Matrix bias = random_matrix(1, width, 3);
  std::vector<float> sums(static_cast<size_t>(c.m * width), 0.25F);
  PanelArgs args;
  args.m = c.m;
  args.k = stride;
  args.a = s.type == PanelType::bf16_pairs ? static_cast<const void*>(a.bf16.data()) : a.f32.data();
  args.a_stride = stride;
  args.panel = packed.panel(0, 0);
  args.sums[0] = sums.data();
  args.accumulate = s.accumulate;
  std::vector<float> expected = sums;
  args.sums[0] = expected.data();
  kernels.one[index](args);
  args.sums[0] = sums.data();

  const int64_t columns = std::min(c.n, width);
  const int64_t out_stride = columns + 3;
  std::vector<float> out(static_cast<size_t>(c.m * out_stride), -7);
  std::vector<uint16_t> half(out.size());
  from_f32(FloatType::bf16, out.data(), half.data(), out.size());
  const bool is_half = s.out == FloatType::bf16;
  const PanelStore store = {is_half ? static_cast<void*>(half.data()) : out.data(),
                            out_stride,
                            s.out,
                            columns,
                            s.has_bias ? bias.f32.data() : nullptr,
                            s.relu};
  args.store = &store;
  kernels.one[index](args);
  if (is_half) to_f32(FloatType::bf16, half.data(), out.data(), out.size());
  for (int64_t i = 0; i < c.m; ++i)
    for (int64_t j = 0; j < out_stride; ++j) {
      float value = j < columns ? expected[static_cast<size_t>(i * width + j)] : -7;
      if (j < columns && s.has_bias) value += bias.f32[static_cast<size_t>(j)];
      if (j < columns && s.relu && value < 0) value = 0;
      if (is_half) {
        uint16_t bits = 0;
        from_f32(FloatType::bf16, &value, &bits, 1);
        to_f32(FloatType::bf16, &bits, &value, 1);
      }
      const float got = out[static_cast<size_t>(i * out_stride + j)];
      ASSERT_TRUE(got == value || (std::isnan(got) && std::isnan(value)))
          << got << ", not " << value << " at " << i << ", " << j << " type " << index << " bias "
          << s.has_bias << " relu " << s.relu << " accumulate " << s.accumulate;
    }
  EXPECT_TRUE(std::isnan(out[0]));
  EXPECT_EQ(sums, std::vector<float>(sums.size(), 0.25F)) << "sums were written";
}

TEST_P(Packed, ResultsFinishedInRegistersAreThoseOfTheSums) {
  const LevelScope level(GetParam());
  for (const Sizes& c : kSizes)
    for (const PanelType type : {PanelType::f32, PanelType::bf16, PanelType::bf16_pairs})
      for (const FloatType out : {FloatType::f32, FloatType::bf16})
        for (int flags = 0; flags < 8; ++flags)
          expect_finished(c, {type, out, (flags & 1) != 0, (flags & 2) != 0, (flags & 4) != 0});
}

TEST_P(Packed, PairsExistExactlyWhereTheLevelHasThem) {
  const LevelScope level(GetParam());
  constexpr auto pairs = static_cast<size_t>(PanelType::bf16_pairs);
  EXPECT_EQ(packed_kernels().one[pairs] != nullptr, cpu_has(CpuFeature::avx512_bf16));
  EXPECT_EQ(choose_panel_type(FloatType::f32, 1, 1, Precision::same), PanelType::f32);
  EXPECT_EQ(choose_panel_type(FloatType::f16, 1, 1, Precision::same), PanelType::f32);
}

TEST_P(Packed, ColumnsBeyondTheLastAreZero) {
  const LevelScope level(GetParam());
  const Matrix w = random_matrix(4, 3, 5);
  const PackedPart part = {{w.f32.data(), FloatType::f32, 3, 1}, 4};
  const PackedWeights packed({&part, 1}, 3, PanelType::f32, packed_kernels().layout);
  const auto* panel = static_cast<const float*>(packed.panel(0, 0));
  for (int64_t k = 0; k < 4; ++k)
    for (int64_t j = 3; j < packed.columns_per_panel(); ++j)
      EXPECT_EQ(panel[k * packed.columns_per_panel() + j], 0.0F);
}

INSTANTIATE_TEST_SUITE_P(Levels, Packed, testing::ValuesIn(kIsas),
                         [](const auto& level) { return std::string(isa_name(level.param)); });

}  // namespace
}  // namespace epilogue::simd
