// SPDX-License-Identifier: Apache-2.0
// The panel kernels against sums in double: every level, every kernel of the list, one and two
// parts, ragged sizes, any strides of the weights.
#include "backend/cpu/simd/panels/kernel_list.h"
#include "backend/cpu/simd/panels/packed_weights.h"
#include "base/cpu_features.h"
#include "support/test.h"

namespace epilogue::simd::panel_kernels_test {

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

class PanelKernels : public testing::TestWithParam<Isa> {
 protected:
  void SetUp() override {
    if (!is_available(GetParam()))
      GTEST_SKIP() << isa_name(GetParam()) << " is not on this machine";
  }
};

// Uses that between them every kernel serves.
constexpr PanelUse kUses[] = {
    {.weights = FloatType::f32, .rows = 100},
    {.weights = FloatType::bf16, .rows = 100},
    {.weights = FloatType::bf16, .rows = 1},
    {.weights = FloatType::bf16, .rows = 1, .precision = Precision::i8},
};

// Those that this machine runs at the level in use.
std::vector<const PanelKernelEntry*> kernels_here() {
  std::vector<const PanelKernelEntry*> kernels;
  for (const PanelKernelEntry& entry : panel_kernels())
    if (std::any_of(std::begin(kUses), std::end(kUses),
                    [&](const PanelUse& use) { return entry.decline(use) == nullptr; }))
      kernels.push_back(&entry);
  return kernels;
}

// Weights that 8-bit integers and bf16 hold exactly: multiples of 1/128, the largest of each column
// 127/128.
Matrix random_weights(int64_t k, int64_t n, uint32_t seed) {
  std::mt19937 generator(seed);
  std::uniform_int_distribution<int> steps(-127, 127);
  Matrix m;
  m.f32.resize(static_cast<size_t>(k * n));
  m.bf16.resize(m.f32.size());
  for (float& x : m.f32) x = static_cast<float>(steps(generator)) / 128;
  for (int64_t j = 0; j < n; ++j)
    m.f32[static_cast<size_t>(j)] = j % 2 == 0 ? 127.0F / 128 : -127.0F / 128;
  from_f32(FloatType::bf16, m.f32.data(), m.bf16.data(), m.f32.size());
  return m;
}

// Rows of A as a layout's kernels read them, zeros beyond k.
struct KernelRows {
  KernelRows(const PanelLayout& layout, int64_t m, int64_t k, uint32_t seed)
      : stride(layout.padded(k)), values(random_matrix(m, stride, seed)) {
    for (int64_t i = 0; i < m; ++i)
      for (int64_t q = k; q < stride; ++q) {
        values.f32[static_cast<size_t>(i * stride + q)] = 0;
        values.bf16[static_cast<size_t>(i * stride + q)] = 0;
      }
    if (layout.quantise_rows == nullptr) {
      data = layout.rows == FloatType::f32 ? static_cast<const void*>(values.f32.data())
                                           : values.bf16.data();
      return;
    }
    steps.resize(values.f32.size());
    scales.resize(static_cast<size_t>(m));
    layout.quantise_rows(values.f32.data(), stride, m, k, stride, steps.data(), stride,
                         scales.data());
    data = steps.data();
  }

  int64_t stride;
  Matrix values;
  std::vector<float> steps;
  std::vector<float> scales;
  const void* data = nullptr;
};

double largest(const std::vector<float>& values) {
  double most = 0;
  for (const float x : values) most = std::max(most, std::abs(double{x}));
  return most;
}

struct ProductCase {
  Sizes sizes;
  int parts;
  bool transposed;
};

// All rows of A through all panels, twice over.
void expect_product(const PanelKernelEntry& entry, const ProductCase& c) {
  const PanelKernel& kernel = entry.kernel();
  const auto [m, k, n] = c.sizes;
  const KernelRows a(kernel.layout, m, k, 1);
  std::vector<Matrix> weights;
  std::vector<PackedPart> operands;
  for (int p = 0; p < c.parts; ++p)
    weights.push_back(c.transposed ? random_matrix(n, k, 2 + static_cast<uint32_t>(p))
                                   : random_weights(k, n, 2 + static_cast<uint32_t>(p)));
  if (c.transposed && kernel.layout.has_scales) return;  // exact by columns only
  for (const Matrix& w : weights)
    operands.push_back({c.transposed ? GemmOperand{w.bf16.data(), FloatType::bf16, 1, k}
                                     : GemmOperand{w.bf16.data(), FloatType::bf16, n, 1},
                        k});
  const PackedWeights packed(operands, n, kernel.layout);
  const int64_t each = packed.columns_per_panel();
  std::vector<float> sums[2];
  for (auto& s : sums) s.resize(static_cast<size_t>(m * kernel.layout.width));
  // What rows of 16-bit integers may be off by.
  const double step = kernel.layout.quantise_rows == nullptr ? 0 : largest(a.values.f32) / 65000;
  for (int64_t panel = 0; panel < packed.panels(); ++panel) {
    PanelArgs args;
    args.m = m;
    args.k = a.stride;
    args.a = a.data;
    args.a_stride = a.stride;
    args.panel = packed.panel(panel, 0);
    args.scales = packed.scales(panel);
    args.row_scales = a.scales.data();
    args.sums[0] = sums[0].data();
    args.sums[1] = c.parts == 2 ? sums[1].data() : nullptr;
    const PanelFunction function = c.parts == 2 ? kernel.two : kernel.one;
    function(args);
    args.accumulate = true;  // once more on top: twice the product
    function(args);
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < std::min(each, n - panel * each); ++j)
        for (int p = 0; p < c.parts; ++p) {
          const int64_t column = panel * each + j;
          double expected = 0;
          double bound = 1e-12;
          for (int64_t q = 0; q < k; ++q) {
            const double w =
                weights[static_cast<size_t>(p)]
                    .f32[static_cast<size_t>(c.transposed ? column * k + q : q * n + column)];
            const double term = 2.0 * a.values.f32[static_cast<size_t>(i * a.stride + q)] * w;
            expected += term;
            bound += 1e-6 * std::abs(term) + 2 * step * std::abs(w);
          }
          ASSERT_NEAR(sums[p][static_cast<size_t>(i * each + j)], expected, bound)
              << entry.name << ": " << m << "x" << k << "x" << n << " parts " << c.parts << " at "
              << i << ", " << column << " of part " << p;
        }
  }
}

TEST_P(PanelKernels, EqualSumsInDouble) {
  const LevelScope level(GetParam());
  for (const PanelKernelEntry* entry : kernels_here())
    for (const Sizes& sizes : kSizes)
      for (const int parts : {1, 2})
        for (const bool transposed : {false, true})
          expect_product(*entry, {sizes, parts, transposed});
}

struct StoreCase {
  FloatType out;
  bool has_bias, relu, accumulate;
};

// One panel's results, finished in registers, against the same sums finished one by one.
void expect_finished(const PanelKernelEntry& entry, const Sizes& c, const StoreCase& s) {
  const PanelKernel& kernel = entry.kernel();
  if (!kernel.stores) return;
  const int64_t width = kernel.layout.width;
  const int64_t depth = kernel.layout.padded(c.k);
  KernelRows a(kernel.layout, c.m, depth, 1);
  a.values.bf16[0] = 0x7fc0;  // the first row's results are NaN
  a.values.f32[0] = NAN;
  if (!a.scales.empty()) a.scales[0] = NAN;
  const Matrix w = random_weights(depth, width, 2);
  const PackedPart part = {{w.bf16.data(), FloatType::bf16, width, 1}, depth};
  const PackedWeights packed({&part, 1}, width, kernel.layout);
  const Matrix bias = random_matrix(1, width, 3);
  std::vector<float> sums(static_cast<size_t>(c.m * width), 0.25F);
  PanelArgs args;
  args.m = c.m;
  args.k = depth;
  args.a = a.data;
  args.a_stride = a.stride;
  args.row_scales = a.scales.data();
  args.panel = packed.panel(0, 0);
  args.scales = packed.scales(0);
  args.accumulate = s.accumulate;
  std::vector<float> expected = sums;
  args.sums[0] = expected.data();
  kernel.one(args);
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
  kernel.one(args);
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
          << entry.name << ": " << got << ", not " << value << " at " << i << ", " << j << " bias "
          << s.has_bias << " relu " << s.relu << " accumulate " << s.accumulate;
    }
  EXPECT_TRUE(std::isnan(out[0]));
  EXPECT_EQ(sums, std::vector<float>(sums.size(), 0.25F)) << "sums were written";
}

TEST_P(PanelKernels, ResultsFinishedInRegistersAreThoseOfTheSums) {
  const LevelScope level(GetParam());
  for (const PanelKernelEntry* entry : kernels_here())
    for (const Sizes& c : kSizes)
      for (const FloatType out : {FloatType::f32, FloatType::bf16})
        for (int flags = 0; flags < 8; ++flags)
          expect_finished(*entry, c, {out, (flags & 1) != 0, (flags & 2) != 0, (flags & 4) != 0});
}

struct StripCase {
  Sizes sizes;
  int parts;
  int64_t depth;
  bool accumulate, stores;
};

// The sums of rows in strips, to the bit those of the same rows in their places.
void expect_strips(const PanelKernel& kernel, const StripCase& c) {
  const auto [m, k, n] = c.sizes;
  const int64_t width = kernel.layout.width;
  const Matrix rows = random_matrix(m, k + 3, 1);
  const Matrix w = random_matrix(k, c.parts * width, 2);
  std::vector<PackedPart> parts;
  for (int p = 0; p < c.parts; ++p)
    parts.push_back({{w.f32.data() + p * width, FloatType::f32, c.parts * width, 1}, k});
  const PackedWeights packed(parts, width, kernel.layout);
  // One strip more than there is room for would be seen.
  const int64_t strips = (m + kernel.mr - 1) / kernel.mr;
  std::vector<float> memory(static_cast<size_t>(strips * kernel.mr * k + 1), -7);
  const int64_t most = kernel.strips.by_sums && c.depth > 0 ? c.depth : k;
  for (int64_t begin = 0; begin < k; begin += most)
    kernel.strips.pack(rows.f32.data() + begin, k + 3, m, std::min(most, k - begin),
                       memory.data() + begin * strips * kernel.mr);
  EXPECT_EQ(memory.back(), -7);

  std::vector<float> in_place(static_cast<size_t>(m * width * 2), 0.25F);
  std::vector<float> in_strips = in_place;
  std::vector<float> out_in_place(static_cast<size_t>(m * n), -7);
  std::vector<float> out_in_strips = out_in_place;
  PanelStore store = {out_in_place.data(), n, FloatType::f32, std::min(n, width), w.f32.data()};
  PanelArgs args;
  args.m = m;
  args.k = k;
  args.depth = c.depth;
  args.a = rows.f32.data();
  args.a_stride = k + 3;
  args.panel = packed.panel(0, 0);
  args.next = packed.panels() > 1 ? packed.panel(1, 0) : nullptr;
  args.sums[0] = in_place.data();
  args.sums[1] = c.parts == 2 ? in_place.data() + m * width : nullptr;
  args.accumulate = c.accumulate;
  args.store = c.stores ? &store : nullptr;
  (c.parts == 2 ? kernel.two : kernel.one)(args);

  args.a = memory.data();
  args.a_stride = strips * kernel.mr;
  args.sums[0] = in_strips.data();
  args.sums[1] = c.parts == 2 ? in_strips.data() + m * width : nullptr;
  store.out = out_in_strips.data();
  kernel.strips.product(args);
  const std::string what = std::to_string(m) + "x" + std::to_string(k) + "x" + std::to_string(n) +
                           " parts " + std::to_string(c.parts) + " depth " +
                           std::to_string(c.depth);
  EXPECT_EQ(in_strips, in_place) << what;
  EXPECT_EQ(out_in_strips, out_in_place) << what;
  if (c.stores) {
    EXPECT_NE(out_in_strips[0], -7) << what;
  }
}

TEST_P(PanelKernels, StripsGiveTheBitsOfRowsInTheirPlaces) {
  const LevelScope level(GetParam());
  int64_t kernels = 0;
  for (const PanelKernelEntry* entry : kernels_here()) {
    const PanelKernel& kernel = entry->kernel();
    if (kernel.strips.product == nullptr) continue;
    ++kernels;
    for (const Sizes& sizes : kSizes)
      for (const int64_t rows : {sizes.m, sizes.m + 47, sizes.m + 107})
        for (const int64_t depth : {0, 8, 40})
          for (int flags = 0; flags < 8; ++flags) {
            const bool is_double = (flags & 4) != 0;
            const bool stores = (flags & 1) != 0 && !is_double;
            expect_strips(
                kernel,
                {{rows, sizes.k, sizes.n}, is_double ? 2 : 1, depth, (flags & 2) != 0, stores});
          }
  }
  const bool is_wide = kernels_here().front()->kernel().lanes >= 8;
  EXPECT_EQ(kernels > 0, is_wide) << "vectors of at least 256 bits have strips";
}

// Two totals in turn, of few rows, finished or not, beside products in double. The deepest sums
// have several pieces at each level.
TEST_P(PanelKernels, TwoTotalsAddUpToTheSums) {
  const LevelScope level(GetParam());
  // The one of f32 weights is the one that eager products use, too.
  const std::vector<const PanelKernelEntry*> kernels = kernels_here();
  const auto entry = std::ranges::find_if(
      kernels, [](const PanelKernelEntry* e) { return e->kernel().block != nullptr; });
  ASSERT_NE(entry, kernels.end());
  const PanelKernel& kernel = (*entry)->kernel();
  const int64_t width = kernel.layout.width;
  for (const int64_t m : {2, 3, 5, 6, 7, 8, 13, 15})
    for (const int64_t k : {33, 200, 1030})
      for (const int64_t depth : {8, 40, 264})
        for (const bool stores : {false, true})
          for (const bool accumulates : {false, true}) {
            const Matrix rows = random_matrix(m, k + 3, 1);
            const Matrix w = random_matrix(k, width, 2);
            const std::vector<PackedPart> parts = {{{w.f32.data(), FloatType::f32, width, 1}, k}};
            const PackedWeights packed(parts, width, kernel.layout);
            constexpr float before = 0.25F;
            std::vector<float> sums(static_cast<size_t>(m * width), before);
            std::vector<float> out(static_cast<size_t>(m * width), -7);
            const PanelStore store = {out.data(), width, FloatType::f32, width, w.f32.data()};
            PanelArgs args;
            args.m = m;
            args.k = k;
            args.depth = depth;
            args.two_totals = true;
            args.a = rows.f32.data();
            args.a_stride = k + 3;
            args.panel = packed.panel(0, 0);
            args.sums[0] = sums.data();
            args.accumulate = accumulates;
            args.store = stores ? &store : nullptr;
            kernel.one(args);
            for (int64_t i = 0; i < m; ++i)
              for (int64_t j = 0; j < width; ++j) {
                double want = accumulates ? before : 0;
                for (int64_t c = 0; c < k; ++c)
                  want += static_cast<double>(rows.f32[static_cast<size_t>(i * (k + 3) + c)]) *
                          w.f32[static_cast<size_t>(c * width + j)];
                if (stores) want += w.f32[static_cast<size_t>(j)];
                const std::vector<float>& got = stores ? out : sums;
                ASSERT_NEAR(got[static_cast<size_t>(i * width + j)], want, 2e-5 * std::sqrt(k))
                    << m << " x " << k << " depth " << depth << " row " << i << " column " << j;
              }
          }
}

TEST_P(PanelKernels, TheListChoosesByLevelWeightsAndRows) {
  const LevelScope level(GetParam());
  const bool has_dots = cpu_has(CpuFeature::avx512_bf16);
  const auto chosen = [](const PanelUse& use) {
    return std::string(choose_panel_kernel(use).name);
  };
  const bool has_tiles = cpu_has(CpuFeature::amx_bf16);
  const std::string pairs = has_tiles ? "amx_tiled" : "bf16_pairs";
  EXPECT_EQ(chosen({.weights = FloatType::bf16, .rows = 17}), has_dots ? pairs : "f32");
  EXPECT_EQ(chosen({.weights = FloatType::bf16, .rows = 16}), has_dots ? pairs : "bf16");
  EXPECT_EQ(chosen({.weights = FloatType::bf16, .rows = 16, .widens = true}), "f32");
  EXPECT_EQ(chosen({.weights = FloatType::bf16, .rows = 9, .packs_once = true}), has_tiles ? "amx"
                                                                                 : has_dots
                                                                                     ? pairs
                                                                                     : "f32");
  EXPECT_EQ(chosen({.weights = FloatType::f32, .rows = 1}), "f32");
  EXPECT_EQ(chosen({.weights = FloatType::f16, .rows = 1}), "f32");
  const bool has_integer_dots = cpu_has(CpuFeature::avx512_vnni);
  const auto chosen_for_i8 = [&](FloatType weights, int64_t rows) {
    return chosen({.weights = weights, .rows = rows, .precision = Precision::i8});
  };
  const std::string few = has_integer_dots ? "i8_pairs" : "i8";
  EXPECT_EQ(chosen_for_i8(FloatType::f32, 12), few);
  EXPECT_EQ(chosen_for_i8(FloatType::f32, 13), "i8");
  EXPECT_EQ(chosen_for_i8(FloatType::bf16, 6), few);
  EXPECT_EQ(chosen_for_i8(FloatType::bf16, 7), has_dots ? pairs : "i8");
  EXPECT_EQ(chosen_for_i8(FloatType::bf16, 4096), has_dots ? pairs : "i8");
}

TEST_P(PanelKernels, SayWhyTheyDecline) {
  const LevelScope level(GetParam());
  for (const PanelUse& use : kUses)
    for (const PanelKernelEntry& entry : panel_kernels()) {
      const char* const reason = entry.decline(use);
      if (reason == nullptr) continue;
      EXPECT_EQ(std::string(reason).rfind("needs ", 0), 0U) << entry.name << ": " << reason;
    }
}

TEST_P(PanelKernels, ColumnsBeyondTheLastAreZero) {
  const LevelScope level(GetParam());
  const Matrix w = random_matrix(4, 3, 5);
  const PackedPart part = {{w.f32.data(), FloatType::f32, 3, 1}, 4};
  const PackedWeights packed({&part, 1}, 3, choose_panel_kernel({}).kernel().layout);
  const auto* panel = static_cast<const float*>(packed.panel(0, 0));
  for (int64_t k = 0; k < 4; ++k)
    for (int64_t j = 3; j < packed.columns_per_panel(); ++j)
      EXPECT_EQ(panel[k * packed.columns_per_panel() + j], 0.0F);
}

INSTANTIATE_TEST_SUITE_P(Levels, PanelKernels, testing::ValuesIn(kIsas),
                         [](const auto& level) { return std::string(isa_name(level.param)); });

}  // namespace epilogue::simd::panel_kernels_test
