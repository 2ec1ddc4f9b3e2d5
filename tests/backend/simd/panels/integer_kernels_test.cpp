// SPDX-License-Identifier: Apache-2.0
// Kernels of integers: 8-bit weights times 8-bit rows, whose sums are exact, and 4-bit weights.

#include "backend/cpu/simd/panels/amx_i8_tiles.h"
#include "backend/cpu/simd/panels/group_panel.h"
#include "backend/cpu/simd/panels/kernel_list.h"
#include "backend/cpu/simd/panels/packed_weights.h"
#include "backend/cpu/simd/panels/quantise_groups.h"
#include "backend/cpu/simd/panels/row_tiles.h"
#include "backend/cpu/simd/panels/w8a8.h"
#include "backend/simd/panels/integer_products.h"
#include "backend/simd/panels/plain_bytes.h"
#include "backend/simd/panels/plain_tile_unit.h"
#include "base/cpu_features.h"

namespace epilogue::simd::integer_kernels_test {

class LevelScope {
 public:
  explicit LevelScope(Isa isa) : before_(active_isa()) { set_active_isa(isa); }
  ~LevelScope() { set_active_isa(before_); }
  LevelScope(const LevelScope&) = delete;
  LevelScope& operator=(const LevelScope&) = delete;

 private:
  Isa before_;
};

class IntegerKernels : public testing::TestWithParam<Isa> {
 protected:
  void SetUp() override {
    if (!is_available(GetParam()))
      GTEST_SKIP() << isa_name(GetParam()) << " is not on this machine";
  }
};

constexpr PanelUse kW8a8 = {
    .weights = FloatType::f32, .rows = 100, .precision = Precision::i8, .integer_rows = true};

TEST_P(IntegerKernels, SumsOf8BitsAreExact) {
  const LevelScope level(GetParam());
  int kernels = 0;
  for (const PanelKernelEntry& entry : panel_kernels()) {
    if (decline_others_than_w8a8(kW8a8) != nullptr || entry.decline(kW8a8) != nullptr) continue;
    if (!entry.kernel().layout.has_scales) continue;  // the floats' kernels take what is left
    ++kernels;
    for (const int64_t m : kIntegerRows)
      for (const int64_t k : kIntegerDepths)
        for (const int parts : {1, 2}) {
          SCOPED_TRACE(entry.name);
          expect_integer_product(entry.kernel().layout, m, k, parts,
                                 [&](const PanelArgs& args, int p) {
                                   (p == 2 ? entry.kernel().two : entry.kernel().one)(args);
                                 });
        }
  }
  EXPECT_GE(kernels, 1);
}

// The loops of VNNI's kernels over an instruction in plain code: u8 times s8, four at a time.
namespace plain_dots {

constexpr int64_t kDotRows = 6;

struct Unit {
  static constexpr int64_t kLanes = 16;
  using V = std::array<int32_t, kLanes>;
  using F = std::array<float, kLanes>;
  template <class Function>
  static auto each(const Function& f) {
    std::array<decltype(f(size_t{0})), kLanes> out;
    for (size_t i = 0; i < kLanes; ++i) out[i] = f(i);
    return out;
  }
  static V set(int32_t x) {
    return each([&](size_t) { return x; });
  }
  static V load_weights(const int8_t* p) {
    V v;
    std::memcpy(v.data(), p, sizeof v);
    return each(
        [&](size_t i) { return static_cast<int32_t>(static_cast<uint32_t>(v[i]) ^ 0x80808080U); });
  }
  static V dot(V sum, V weights, V rows) {
    return each([&](size_t i) {
      auto total = static_cast<uint32_t>(sum[i]);
      for (int b = 0; b < 4; ++b) {
        const int32_t w = static_cast<uint8_t>(static_cast<uint32_t>(weights[i]) >> (8 * b));
        const int32_t x = static_cast<int8_t>(static_cast<uint32_t>(rows[i]) >> (8 * b));
        total += static_cast<uint32_t>(w * x);
      }
      return static_cast<int32_t>(total);
    });
  }
  static F to_float(V v) {
    return each([&](size_t i) { return static_cast<float>(v[i]); });
  }
  static F scale_of(float x) {
    return each([&](size_t) { return x; });
  }
  static F mul(F a, F b) {
    return each([&](size_t i) { return a[i] * b[i]; });
  }
  static F add(F a, F b) {
    return each([&](size_t i) { return a[i] + b[i]; });
  }
  static F load(const float* p) {
    return each([&](size_t i) { return p[i]; });
  }
  static void store(float* p, F v) { std::copy(v.begin(), v.end(), p); }
};

#include "backend/cpu/simd/panels/w8a8_dots-inl.h"
#include "support/test.h"

}  // namespace plain_dots

TEST(IntegerLoops, OfDotProductsOverAPlainUnit) {
  for (const int64_t m : kIntegerRows)
    for (const int64_t k : kIntegerDepths)
      for (const int parts : {1, 2})
        expect_integer_product(w8a8_quads_layout(kPairsWidth), m, k, parts,
                               [](const PanelArgs& args, int p) {
                                 p == 2 ? plain_dots::dots_product<plain_dots::Unit, 4, 2>(args)
                                        : plain_dots::dots_product<plain_dots::Unit, 4, 1>(args);
                               });
}

TEST(IntegerLoops, OfTilesOverAPlainUnit) {
  for (const int64_t m : kIntegerRows)
    for (const int64_t k : kIntegerDepths)
      for (const int parts : {1, 2})
        expect_integer_product(
            w8a8_quads_layout(kTilesWidth), m, k, parts,
            [](const PanelArgs& args, int p) { IntegerTileProduct<PlainUnit>(args, p).run(); });
}

// Weights of 4 bits as a file may have them.
struct GroupedWeights {
  GroupedWeights(int64_t n, int64_t k, const GroupFormat& f, uint32_t seed) : rows(n), depth(k) {
    std::mt19937 generator(seed);
    std::uniform_int_distribution<int> bytes(0, 255);
    std::uniform_int_distribution<int> sixteenths(0, 16);
    std::uniform_real_distribution<float> values(-2, 2);
    steps.resize(static_cast<size_t>(n * k / 2));
    for (uint8_t& b : steps) b = static_cast<uint8_t>(bytes(generator));
    const auto groups = static_cast<size_t>(n * k / f.size);
    std::vector<float> wide(groups);
    for (float& s : wide) s = values(generator);
    scales.resize(groups);
    zeros.resize(groups);
    for (uint8_t& z : zeros) z = static_cast<uint8_t>(sixteenths(generator));
    from_f32(f.scales, wide.data(), scales.data(), groups);
    part = {steps.data(), scales.data(), f.has_zeros ? zeros.data() : nullptr, f.size};
  }
  int step(int64_t row, int64_t k) const {
    const auto at = static_cast<size_t>(row * depth + k);
    return steps[at / 2] >> (at % 2 * 4) & 15;
  }
  float scale(const GroupFormat& f, int64_t row, int64_t group) const {
    float s = 0;
    to_f32(f.scales, &scales[static_cast<size_t>(row * (depth / f.size) + group)], &s, 1);
    return s;
  }
  int zero(const GroupFormat& f, int64_t row, int64_t group) const {
    return f.has_zeros ? zeros[static_cast<size_t>(row * (depth / f.size) + group)] : kMiddleStep;
  }
  double value(const GroupFormat& f, int64_t row, int64_t k) const {
    return double{scale(f, row, k / f.size)} * (step(row, k) - zero(f, row, k / f.size));
  }
  PlainBytes bytes(const GroupFormat& f, int64_t row) const {
    return plain_bytes(
        depth, f.size, [&](int64_t k) { return step(row, k); },
        [&](int64_t g) { return scale(f, row, g); }, [&](int64_t g) { return zero(f, row, g); });
  }

  int64_t rows;
  int64_t depth;
  std::vector<uint8_t> steps;
  std::vector<uint16_t> scales;
  std::vector<uint8_t> zeros;
  GroupedPart part;
};

void expect_grouped_product(const PanelKernelEntry& entry, const GroupFormat& f, int64_t m,
                            int64_t k, int64_t n, int parts, double relative) {
  const PanelKernel& kernel = entry.kernel();
  std::vector<GroupedWeights> weights;
  std::vector<PackedPart> operands;
  for (int p = 0; p < parts; ++p) weights.emplace_back(n, k, f, 2 + static_cast<uint32_t>(p));
  for (const GroupedWeights& w : weights) operands.push_back({{}, k, &w.part});
  const PackedWeights packed(operands, n, kernel.layout, Join::columns, {Precision::i4, f});
  ASSERT_EQ(packed.padded_k(), k);
  std::mt19937 generator(1);
  std::uniform_real_distribution<float> values(-1, 1);
  std::vector<float> a(static_cast<size_t>(m * k));
  for (float& x : a) x = values(generator);
  std::vector<uint16_t> halves(a.size());
  from_f32(FloatType::bf16, a.data(), halves.data(), a.size());
  to_f32(FloatType::bf16, halves.data(), a.data(), a.size());
  std::vector<int16_t> rows(a.size());
  std::vector<float> row_scales(static_cast<size_t>(m));
  std::vector<int32_t> row_sums(static_cast<size_t>(m * (k / f.size + 1)));
  const bool is_integer = kernel.layout.quantise_rows != nullptr;
  PanelArgs args;
  args.m = m;
  args.k = k;
  args.a =
      kernel.layout.rows == FloatType::f32 ? static_cast<const void*>(a.data()) : halves.data();
  if (is_integer) {
    kernel.layout.quantise_rows(a.data(), k, m, k, k, rows.data(), k, row_scales.data());
    running_sums(rows.data(), k, m, k, f.size, row_sums.data());
    if (kernel.layout.arrange_rows != nullptr)
      kernel.layout.arrange_rows(rows.data(), static_cast<int64_t>(rows.size()));
    args.a = rows.data();
  }
  args.a_stride = k;
  args.row_scales = row_scales.data();
  args.row_sums = row_sums.data();
  args.row_sums_stride = k / f.size + 1;
  args.groups = &packed.groups();
  const int64_t each = packed.columns_per_panel();
  std::vector<float> sums[2];
  for (auto& s : sums) s.resize(static_cast<size_t>(m * kernel.layout.width));
  args.sums[0] = sums[0].data();
  args.sums[1] = parts == 2 ? sums[1].data() : nullptr;
  for (int64_t panel = 0; panel < packed.panels(); ++panel) {
    args.panel = packed.panel(panel, 0);
    args.accumulate = false;
    const PanelFunction function = parts == 2 ? kernel.two : kernel.one;
    function(args);
    args.accumulate = true;  // once more on top: twice the product
    function(args);
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < std::min(each, n - panel * each); ++j)
        for (int p = 0; p < parts; ++p) {
          double expected = 0;
          double bound = 1e-6;
          for (int64_t q = 0; q < k; ++q) {
            const double w = weights[static_cast<size_t>(p)].value(f, panel * each + j, q);
            const double x = a[static_cast<size_t>(i * k + q)];
            expected += 2 * x * w;
            bound += 2 * (relative * std::abs(x * w) + (is_integer ? std::abs(w) / 65000 : 0));
          }
          ASSERT_NEAR(sums[p][static_cast<size_t>(i * each + j)], expected, bound)
              << entry.name << ": " << m << " x " << k << " x " << n << " groups of " << f.size
              << (f.has_zeros ? " with zeros" : "") << ", part " << p << " of " << parts << " at "
              << i << ", " << j;
        }
  }
}

TEST_P(IntegerKernels, FourBitWeightsGiveTheirProducts) {
  const LevelScope level(GetParam());
  int kernels = 0;
  for (const PanelKernelEntry& entry : panel_kernels())
    for (const FloatType weights : {FloatType::f32, FloatType::bf16})
      for (const int64_t about : {1, 100}) {
        const PanelUse use = {.weights = weights, .rows = about, .precision = Precision::i4};
        if (&choose_panel_kernel(use) != &entry) continue;
        ++kernels;
        // Weights are rounded once more where they become bf16.
        const double relative = entry.kernel().layout.rows == FloatType::bf16 ? 4e-3 : 2e-6;
        for (const int64_t size : {32, 128})
          for (const bool has_zeros : {false, true})
            for (const FloatType scales : {FloatType::bf16, FloatType::f16}) {
              const GroupFormat f = {size, has_zeros, scales};
              for (const int64_t m : {1, 2, 3, 4, 5, 8, 13, 33})
                for (const int parts : {1, 2}) {
                  expect_grouped_product(entry, f, m, 128, 65, parts, relative);
                  expect_grouped_product(entry, f, m, 384, 3, parts, relative);
                }
            }
      }
  EXPECT_GE(kernels, 4);
}

TEST_P(IntegerKernels, FourBitWeightsOfNoGroupGiveZero) {
  const LevelScope level(GetParam());
  const PanelKernel& kernel = choose_panel_kernel({.rows = 1, .precision = Precision::i4}).kernel();
  const GroupFormat f = {32, true};
  const std::vector<char> panel(static_cast<size_t>(group_bytes(f, kernel.layout.width)));
  std::vector<float> sums(static_cast<size_t>(kernel.layout.width), 7);
  const int16_t row = 1;
  const int32_t row_sum = 0;
  const float row_scale = 1;
  PanelArgs args;
  args.m = 1;
  args.a = &row;
  args.panel = panel.data();
  args.row_scales = &row_scale;
  args.row_sums = &row_sum;
  args.row_sums_stride = 1;
  args.groups = &f;
  args.sums[0] = sums.data();
  kernel.one(args);
  for (const float sum : sums) EXPECT_EQ(sum, 0);
}

// Rows of 8 bits, as the kernel reads them, times 4-bit weights as bytes: sums of kBytesK are
// integers, and what is made of them is added in the order of k, so that every bit is known.
void expect_grouped_sums(const PanelKernel& kernel, const char* name, const GroupFormat& f,
                         int64_t m, int64_t k, int64_t n, int parts) {
  std::vector<GroupedWeights> weights;
  std::vector<PackedPart> operands;
  for (int p = 0; p < parts; ++p) weights.emplace_back(n, k, f, 12 + static_cast<uint32_t>(p));
  for (const GroupedWeights& w : weights) operands.push_back({{}, k, &w.part});
  const PackedWeights packed(operands, n, kernel.layout, Join::columns, {Precision::i4, f});
  std::mt19937 generator(1);
  std::uniform_real_distribution<float> values(-1, 1);
  std::vector<float> a(static_cast<size_t>(m * k));
  for (float& x : a) x = values(generator);
  std::fill_n(a.begin(), k, 1.0F);  // all at the end of the range
  std::vector<int16_t> memory(a.size());
  std::vector<float> row_scales(static_cast<size_t>(m));
  kernel.layout.quantise_rows(a.data(), k, m, k, k, memory.data(), k, row_scales.data());
  const bool has_bytes = kernel.layout.row_bytes == 1;
  const auto* const bytes = reinterpret_cast<const int8_t*>(memory.data());
  const auto row = [&](int64_t i, int64_t q) {
    return has_bytes ? int32_t{bytes[i * k + q]} : int32_t{memory[static_cast<size_t>(i * k + q)]};
  };
  EXPECT_EQ(row(0, 0), 127);
  const int64_t unit = w4a8_sum_unit(f);
  std::vector<int32_t> row_sums(static_cast<size_t>(m * (k / unit + 1)));
  if (has_bytes) {
    running_sums(bytes, k, m, k, unit, row_sums.data());
  } else {
    running_sums(memory.data(), k, m, k, unit, row_sums.data());
  }
  PanelArgs args;
  args.m = m;
  args.k = k;
  args.a = memory.data();
  args.a_stride = k;
  args.row_scales = row_scales.data();
  args.row_sums = row_sums.data();
  args.row_sums_stride = k / unit + 1;
  args.groups = &packed.groups();
  const int64_t each = packed.columns_per_panel();
  std::vector<float> sums[2];
  for (auto& s : sums) s.resize(static_cast<size_t>(m * kernel.layout.width));
  args.sums[0] = sums[0].data();
  args.sums[1] = parts == 2 ? sums[1].data() : nullptr;
  for (int64_t panel = 0; panel < packed.panels(); ++panel) {
    args.panel = packed.panel(panel, 0);
    const PanelFunction function = parts == 2 ? kernel.two : kernel.one;
    args.accumulate = false;
    function(args);
    args.accumulate = true;
    function(args);
    for (int64_t j = 0; j < std::min(each, n - panel * each); ++j)
      for (int p = 0; p < parts; ++p) {
        const PlainBytes column = weights[static_cast<size_t>(p)].bytes(f, panel * each + j);
        for (int64_t i = 0; i < m; ++i) {
          float expected = 0;
          for (const int64_t begin : {int64_t{0}, k})
            for (int64_t from = 0; from < k; from += kBytesK) {
              int32_t sum = 0;
              for (int64_t q = from; q < std::min(k, from + kBytesK); ++q)
                sum += column.bytes[static_cast<size_t>(q)] * row(i, q);
              const float both = row_scales[static_cast<size_t>(i)] *
                                 column.scales[static_cast<size_t>(from / kBytesK)];
              const float product = static_cast<float>(sum) * both;
              expected = begin + from == 0 ? product : expected + product;
            }
          ASSERT_EQ(sums[p][static_cast<size_t>(i * each + j)], expected)
              << name << ": " << m << " x " << k << " x " << n << " groups of " << f.size
              << (f.has_zeros ? " with zeros" : "") << ", part " << p << " of " << parts << " at "
              << i << ", " << j;
        }
      }
  }
}

void expect_grouped_sums_of_all_sizes(const PanelKernel& kernel, const char* name) {
  for (const int64_t size : {32, 128})
    for (const bool has_zeros : {false, true})
      for (const FloatType scales : {FloatType::bf16, FloatType::f16})
        for (const int64_t m : {1, 2, 3, 4, 5, 6, 7, 13, 33})
          for (const int parts : {1, 2}) {
            expect_grouped_sums(kernel, name, {size, has_zeros, scales}, m, 128, 65, parts);
            expect_grouped_sums(kernel, name, {size, has_zeros, scales}, m, 1152, 3, parts);
          }
  // Of which kBytesK is no multiple, or none of it; and a last half of a tile.
  for (const auto& [size, k] : {std::array<int64_t, 2>{96, 1152}, {1024, 2048}, {32, 544}})
    for (const int64_t m : {3, 33})
      for (const int parts : {1, 2})
        expect_grouped_sums(kernel, name, {size, true}, m, k, 5, parts);
}

constexpr PanelUse kW4a8 = {
    .weights = FloatType::f32, .rows = 100, .precision = Precision::i4, .integer_rows = true};

TEST_P(IntegerKernels, SumsOf4BitWeightsAnd8BitRowsAreExact) {
  const LevelScope level(GetParam());
  int kernels = 0;
  for (const PanelKernelEntry& entry : panel_kernels()) {
    if (entry.decline(kW4a8) != nullptr || entry.kernel().layout.quantise_rows == nullptr) continue;
    ++kernels;
    expect_grouped_sums_of_all_sizes(entry.kernel(), entry.name);
  }
  EXPECT_GE(kernels, 1);
}

// The second rounding moves a weight by half of what bytes lie apart, and by what the ratio lost.
TEST(BytesOf4Bits, AreNearTheirWeights) {
  for (const int64_t size : {32, 96, 128, 1024})
    for (const bool has_zeros : {false, true}) {
      const GroupFormat f = {size, has_zeros};
      const int64_t k = 3 * std::lcm(size, int64_t{256});
      const GroupedWeights w(3, k, f, 5);
      for (int64_t row = 0; row < 3; ++row) {
        const PlainBytes column = w.bytes(f, row);
        for (int64_t q = 0; q < k; ++q) {
          const double scale = column.scales[static_cast<size_t>(q / kBytesK)];
          const int byte = column.bytes[static_cast<size_t>(q)];
          ASSERT_LE(std::abs(byte), kMostByte);
          ASSERT_NEAR(byte * scale, w.value(f, row, q), 0.51 * scale) << size << " at " << q;
        }
      }
    }
}

TEST_P(IntegerKernels, BytesOfColumnsThatAreNotFiniteOrVanish) {
  const LevelScope level(GetParam());
  const GroupFormat f = {32, false};
  GroupedWeights w(3, 64, f, 6);
  const float scales[] = {std::numeric_limits<float>::infinity(), 1, 1e-35F, 0, 0, 0};
  from_f32(f.scales, scales, w.scales.data(), 6);
  const std::vector<PackedPart> parts = {{{}, 64, &w.part}};
  const I4Kernels& kernels = i4_kernels();
  const PackedWeights packed(parts, 3, kernels.kernel.layout, Join::columns, {Precision::i4, f});
  const int64_t width = kernels.kernel.layout.width;
  if (width < 3) GTEST_SKIP() << "one column a panel";
  std::vector<int8_t> bytes(static_cast<size_t>(64 * width));
  std::vector<float> block(static_cast<size_t>(width));
  kernels.unpack(f, packed.panel(0, 0), 64, StepOrder::quads, {bytes.data(), block.data()});
  EXPECT_TRUE(std::isnan(block[0])) << "no sum looks finite";
  for (const size_t column : {size_t{1}, size_t{2}}) {
    EXPECT_LT(block[column], 1e-30F);
    EXPECT_EQ(bytes[4 * column], 0);
  }
}

// What AVX-VNNI's kernel does with bytes, over an instruction in plain code.
TEST_P(IntegerKernels, BytesOfDotProductsOverAPlainUnit) {
  const LevelScope level(GetParam());
  constexpr int64_t width = plain_dots::Unit::kLanes;
  if (i4_kernels().kernel.layout.width != width) GTEST_SKIP() << "other panels";
  static const PanelLayout inner = w8a8_quads_layout(width);
  PanelKernel kernel = i4_kernels().kernel;
  kernel.layout.quantise_rows = inner.quantise_rows;
  kernel.layout.row_bytes = inner.row_bytes;
  kernel.one = [](const PanelArgs& args) {
    w4a8_product(args, inner, StepOrder::quads, plain_dots::dots_product<plain_dots::Unit, 1, 1>);
  };
  for (const int64_t size : {32, 128})
    for (const bool has_zeros : {false, true})
      for (const int64_t m : {1, 5, 6, 7, 33})
        expect_grouped_sums(kernel, "plain dots", {size, has_zeros, FloatType::bf16}, m, 640, 65,
                            1);
}

INSTANTIATE_TEST_SUITE_P(Levels, IntegerKernels, testing::ValuesIn(kIsas),
                         [](const auto& level) { return std::string(isa_name(level.param)); });

// One group of some columns, rounded.
struct Rounded {
  Rounded(const std::vector<float>& values, int64_t width, const GroupFormat& format)
      : f(format), steps(values.size()), scales(static_cast<size_t>(width)), zeros(scales.size()) {
    round_group(values.data(), width, f, {steps.data(), scales.data(), zeros.data()});
  }
  float scale(int64_t j) const {
    float s = 0;
    to_f32(f.scales, &scales[static_cast<size_t>(j)], &s, 1);
    return s;
  }
  double value(int64_t k, int64_t j) const {
    const auto width = static_cast<int64_t>(scales.size());
    return double{scale(j)} *
           (steps[static_cast<size_t>(k * width + j)] - zeros[static_cast<size_t>(j)]);
  }

  GroupFormat f;
  std::vector<uint8_t> steps;
  std::vector<uint16_t> scales;
  std::vector<uint8_t> zeros;
};

double squared_error(const std::vector<float>& values, const Rounded& r, int64_t j) {
  const auto width = static_cast<int64_t>(r.scales.size());
  double error = 0;
  for (int64_t k = 0; k < r.f.size; ++k) {
    const double off = r.value(k, j) - values[static_cast<size_t>(k * width + j)];
    error += off * off;
  }
  return error;
}

// The error of all of the range, symmetric or from least to most, with a scale of f32.
double plain_error(const std::vector<float>& values, const GroupFormat& f, int64_t width,
                   int64_t j) {
  float low = 0;
  float high = 0;
  const auto at = [&](int64_t k) { return values[static_cast<size_t>(k * width + j)]; };
  for (int64_t k = 0; k < f.size; ++k) {
    low = std::min(low, at(k));
    high = std::max(high, at(k));
  }
  const float scale = f.has_zeros ? (high - low) / 15 : std::max(-low, high) / 7;
  const float zero = f.has_zeros ? std::nearbyint(-low / scale) : 8;
  double error = 0;
  for (int64_t k = 0; k < f.size; ++k) {
    const float step = std::clamp(std::nearbyint(at(k) / scale) + zero, 0.0F, 15.0F);
    error += std::pow(double{scale} * (step - zero) - at(k), 2);
  }
  return error;
}

TEST(RoundGroup, LosesLessThanAllOfTheRangeDoes) {
  std::mt19937 generator(3);
  std::normal_distribution<float> normal(0, 0.02F);
  constexpr int64_t width = 70;
  for (const int64_t size : {32, 128})
    for (const bool has_zeros : {false, true}) {
      const GroupFormat f = {size, has_zeros};
      std::vector<float> values(static_cast<size_t>(size * width));
      for (float& v : values) v = normal(generator);
      for (int64_t j = 0; j < width; ++j) values[static_cast<size_t>(j)] += 0.01F;
      const Rounded rounded(values, width, f);
      double ours = 0;
      double plain = 0;
      for (int64_t j = 0; j < width; ++j) {
        ours += squared_error(values, rounded, j);
        plain += plain_error(values, f, width, j);
      }
      EXPECT_LT(ours, 0.95 * plain) << size << " zeros " << has_zeros;
      EXPECT_GT(ours, 0.3 * plain) << "the error is of another size than 4 bits have";
    }
}

TEST(RoundGroup, StepsAreTheNearestAndZerosStayZero) {
  std::mt19937 generator(4);
  std::normal_distribution<float> normal(0, 1);
  for (const bool has_zeros : {false, true}) {
    const GroupFormat f = {32, has_zeros};
    std::vector<float> values(32 * 5);
    for (float& v : values) v = normal(generator);
    for (int64_t k = 0; k < 32; ++k) {
      values[static_cast<size_t>(k * 5)] = 0;                      // a column of zeros
      if (k % 2 == 0) values[static_cast<size_t>(k * 5 + 1)] = 0;  // zeros among others
    }
    const Rounded r(values, 5, f);
    for (int64_t k = 0; k < 32; ++k) {
      EXPECT_EQ(r.value(k, 0), 0);
      if (k % 2 == 0) {
        EXPECT_EQ(r.value(k, 1), 0);
      }
      for (int64_t j = 1; j < 5; ++j) {
        const double v = values[static_cast<size_t>(k * 5 + j)];
        for (int step = 0; step < 16; ++step)
          EXPECT_LE(
              std::abs(r.value(k, j) - v),
              std::abs(double{r.scale(j)} * (step - r.zeros[static_cast<size_t>(j)]) - v) + 1e-6);
      }
    }
  }
}

TEST(RoundGroup, AColumnThatIsNotFiniteIsNaN) {
  for (const float bad : {std::numeric_limits<float>::infinity(), std::nanf("")})
    for (const bool has_zeros : {false, true}) {
      std::vector<float> values(32 * 2, 1);
      values[10] = bad;
      const Rounded r(values, 2, {32, has_zeros});
      EXPECT_TRUE(std::isnan(r.scale(0)));
      EXPECT_FALSE(std::isnan(r.scale(1)));
    }
}

}  // namespace epilogue::simd::integer_kernels_test
