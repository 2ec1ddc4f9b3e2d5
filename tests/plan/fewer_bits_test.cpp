// SPDX-License-Identifier: Apache-2.0
// Weights of 8 and 4 bits and 8-bit rows, through row chains, fused MLPs and compile(): against the
// rounded weights' own products in double, for any number of rows, on every instruction set.
#include "backend/cpu/simd/panels/quantise_groups.h"
#include "backend/kernel_testing.h"
#include "base/cpu_features.h"
#include "core/backend.h"
#include "core/row_chain.h"
#include "epilogue/autograd.h"
#include "epilogue/compile.h"
#include "epilogue/fused.h"
#include "epilogue/memory.h"
#include "epilogue/ops.h"
#include "epilogue/round_weight.h"
#include "ops/op_testing.h"
#include "ops/table_support.h"
#include "support/test.h"

namespace epilogue::testing::fewer_bits_test {

double distance(const Tensor& got, const Tensor& want) {
  const std::vector<double> a = got.to_vector();
  const std::vector<double> b = want.to_vector();
  EXPECT_EQ(a.size(), b.size());
  double off = 0;
  double all = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    off += (a[i] - b[i]) * (a[i] - b[i]);
    all += b[i] * b[i];
  }
  return std::sqrt(off / all);
}

// w [n, k] rounded group by group, in double; a last group that is not whole is filled with zeros.
Tensor rounded_to_int4(const Tensor& w, const Quantisation& bits) {
  const std::vector<double> values = w.to_vector();
  const int64_t n = w.size(0);
  const int64_t k = w.size(1);
  const simd::GroupFormat f = {bits.group, bits.zero_points};
  std::vector<double> out(values.size());
  std::vector<float> group(static_cast<size_t>(f.size));
  std::vector<uint8_t> steps(group.size());
  for (int64_t i = 0; i < n; ++i)
    for (int64_t first = 0; first < k; first += f.size) {
      const int64_t count = std::min(f.size, k - first);
      std::fill(group.begin(), group.end(), 0.0F);
      for (int64_t j = 0; j < count; ++j)
        group[static_cast<size_t>(j)] =
            static_cast<float>(values[static_cast<size_t>(i * k + first + j)]);
      uint16_t scale_bits = 0;
      uint8_t zero = 0;
      simd::round_group(group.data(), 1, f, {steps.data(), &scale_bits, &zero});
      float scale = 0;
      simd::to_f32(f.scales, &scale_bits, &scale, 1);
      for (int64_t j = 0; j < count; ++j)
        out[static_cast<size_t>(i * k + first + j)] =
            double{scale} * (steps[static_cast<size_t>(j)] - zero);
    }
  return from_values(out, {n, k}, DType::f64);
}

// Rows of t rounded to 127 steps of their largest magnitude, in double.
Tensor rounded_to_int8(const Tensor& t) {
  std::vector<double> values = t.to_vector();
  const auto k = static_cast<size_t>(t.size(1));
  for (size_t row = 0; row < values.size(); row += k) {
    double largest = 0;
    for (size_t j = 0; j < k; ++j) largest = std::max(largest, std::abs(values[row + j]));
    const float scale = static_cast<float>(largest) / 127.0F;
    for (size_t j = 0; j < k; ++j)
      values[row + j] =
          scale == 0 ? 0
                     : std::nearbyint(static_cast<float>(values[row + j]) / scale) * double{scale};
  }
  return from_values(values, {t.size(0), t.size(1)}, DType::f64);
}

Tensor run_chain(const Tensor& x, const std::vector<Tensor>& weights, const Quantisation& bits) {
  const Tensor out = zeros({x.size(0), weights[0].size(0)}, x.dtype());
  RowChainSpec spec;
  spec.dtype = x.dtype();
  spec.bits = bits;
  const PointwiseProgram sum = {2, {{PointwiseFn::add, 0, 1}}, {2}};
  spec.stages = {{weights, weights.size() == 2 ? sum : PointwiseProgram{1, {}, {0}}, {}}};
  const MatrixView outputs[] = {matrix(out)};
  backend_of(x.device()).make_row_chain(spec)->run(x.size(0), matrix(x), {}, outputs);
  return out;
}

TEST(FewerBits, Int4GivesTheProductsOfRoundedWeightsForAnyNumberOfRows) {
  const test::IsaScope scope;
  for (const Isa level : available_isas()) {
    set_active_isa(level);
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
      for (const int group : {32, 128})
        for (const bool has_zeros : {false, true}) {
          const Quantisation bits = {
              .weights = WeightBits::int4, .group = group, .zero_points = has_zeros};
          const Tensor w = make_tensor({65, 290}, dtype, Layout::contiguous, -0.3, 0.4);
          const Tensor v = make_tensor({65, 290}, dtype, Layout::transposed, -2, 1);
          const Tensor both = add(rounded_to_int4(w, bits), rounded_to_int4(v, bits));
          for (const int64_t rows : {1, 2, 3, 4, 5, 8, 9, 17, 100}) {
            const Tensor x = make_tensor({rows, 290}, dtype, Layout::contiguous);
            const Tensor want = mm(to(x, DType::f64), t(both));
            // Kernels of bf16 rows round the weights once more.
            const double allowed = dtype == DType::f32 ? 1e-4 : 1e-2;
            EXPECT_LT(distance(run_chain(x, {w, v}, bits), want), allowed)
                << isa_name(level) << " " << rows << " rows " << dtype_name(dtype) << " groups of "
                << group << (has_zeros ? " with zeros" : "");
            EXPECT_LT(distance(run_chain(x, {w}, bits),
                               mm(to(x, DType::f64), t(rounded_to_int4(w, bits)))),
                      allowed)
                << rows << " rows, one product";
          }
        }
  }
}

TEST(FewerBits, Int8RowsGiveTheProductsOfRoundedRowsAndWeights) {
  const test::IsaScope scope;
  const Quantisation bits = {WeightBits::int8, ActivationBits::int8};
  for (const Isa level : available_isas()) {
    set_active_isa(level);
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
      for (const int64_t k : {1, 70, 1500})
        for (const int64_t rows : {1, 2, 5, 6, 7, 100}) {
          const Tensor w = make_tensor({65, k}, dtype, Layout::contiguous, -0.3, 0.4);
          const Tensor v = make_tensor({65, k}, dtype, Layout::transposed, -2, 1);
          const Tensor x = make_tensor({rows, k}, dtype, Layout::contiguous);
          const Tensor want =
              mm(rounded_to_int8(x), t(add(rounded_to_int8(w), rounded_to_int8(v))));
          // A step that lies between two may go either way: the reference divides, kernels
          // multiply.
          EXPECT_LT(distance(run_chain(x, {w, v}, bits), want), dtype == DType::f32 ? 2e-4 : 1e-2)
              << isa_name(level) << " " << rows << " x " << k << " " << dtype_name(dtype);
        }
  }
}

// y = (silu(x a^T) * (x b^T)) c^T, or silu(x a^T + bias) c^T: what lies between is rounded again.
TEST(FewerBits, Int8RowsOfMlpsAreRoundedBetweenProducts) {
  const test::IsaScope scope;
  const test::ThreadScope threads;
  for (const Isa level : available_isas()) {
    set_active_isa(level);
    for (const DType dtype : {DType::f32, DType::bf16})
      for (const auto& [rows, k, hidden] :
           {std::array<int64_t, 3>{5, 40, 33}, {7, 70, 515}, {64, 256, 128}, {301, 1030, 90}})
        for (const bool is_gated : {true, false}) {
          set_num_threads(rows % 3 + 1);
          const Tensor x = make_tensor({rows, k}, dtype, Layout::contiguous);
          const Tensor a = make_tensor({hidden, k}, dtype, Layout::contiguous, -0.3, 0.3);
          const Tensor b = make_tensor({hidden, k}, dtype, Layout::transposed, -0.2, 0.3);
          const Tensor c = make_tensor({k, hidden}, dtype, Layout::contiguous, -0.3, 0.2);
          const Tensor bias = make_tensor({hidden}, dtype, Layout::contiguous);
          const Tensor x8 = rounded_to_int8(x);
          const Tensor first = mm(x8, t(rounded_to_int8(a)));
          const Tensor inner = is_gated ? mul(silu(first), mm(x8, t(rounded_to_int8(b))))
                                        : silu(add(first, to(bias, DType::f64)));
          const Tensor want = mm(rounded_to_int8(inner), t(rounded_to_int8(c)));

          RowChainSpec spec;
          spec.dtype = dtype;
          spec.bits = {WeightBits::int8, ActivationBits::int8};
          const PointwiseProgram gate = {
              2, {{PointwiseFn::silu, 0}, {PointwiseFn::mul, 2, 1}}, {3}};
          const PointwiseProgram plain = {
              2, {{PointwiseFn::add, 0, 1}, {PointwiseFn::silu, 2}}, {3}};
          if (is_gated) {
            spec.stages.push_back({{a, b}, gate, {}});
          } else {
            spec.stages.push_back({{a}, plain, {0}});
          }
          spec.stages.push_back({{c}, {1, {}, {0}}, {}});
          const Tensor y = zeros({rows, k}, dtype);
          const MatrixView outputs[] = {matrix(y)};
          const MatrixView operands[] = {{bias.data(), dtype, 0, 1}};
          backend_of(x.device())
              .make_row_chain(spec)
              ->run(rows, matrix(x), is_gated ? std::span<const MatrixView>() : operands, outputs);
          // A step that lies between two may go either way.
          EXPECT_LT(distance(y, want), 1.5e-2)
              << isa_name(level) << " " << rows << " x " << k << " x " << hidden << " "
              << dtype_name(dtype) << (is_gated ? " gated" : " plain");
        }
  }
}

// Both stages on 4-bit weights, with tails of rows, columns and groups, on one and more threads.
TEST(FewerBits, Int4MlpsGiveTheProductsOfRoundedWeights) {
  const test::IsaScope scope;
  const test::ThreadScope threads;
  for (const Isa level : available_isas()) {
    set_active_isa(level);
    for (const int group : {32, 128})
      for (const ActivationBits activations : {ActivationBits::same, ActivationBits::int8})
        for (const auto& [rows, k, hidden] :
             {std::array<int64_t, 3>{5, 40, 33}, {9, 130, 260}, {70, 1030, 390}, {301, 256, 90}})
          for (const int count : {1, 2, 3}) {
            set_num_threads(count);
            const Quantisation bits = {WeightBits::int4, activations, group, rows % 2 == 0};
            const Tensor x = make_tensor({rows, k}, DType::bf16, Layout::contiguous);
            const Tensor a = make_tensor({hidden, k}, DType::bf16, Layout::contiguous, -0.3, 0.3);
            const Tensor b = make_tensor({hidden, k}, DType::bf16, Layout::transposed, -0.2, 0.3);
            const Tensor c = make_tensor({k, hidden}, DType::bf16, Layout::contiguous, -0.3, 0.2);
            const bool has_bytes = activations == ActivationBits::int8 && rows > 8;
            const auto read = [&](const Tensor& t) {
              return has_bytes ? rounded_to_int8(t) : to(t, DType::f64);
            };
            const Tensor in = read(x);
            const Tensor inner =
                mul(silu(mm(in, t(rounded_to_int4(a, bits)))), mm(in, t(rounded_to_int4(b, bits))));
            const Tensor want = mm(read(inner), t(rounded_to_int4(c, bits)));
            const Tensor y = FusedMlp::gated(a, b, c, nn::Activation::swiglu, {.bits = bits})(x);
            EXPECT_LT(distance(y, want), 1.5e-2)
                << isa_name(level) << " " << rows << " x " << k << " x " << hidden << " groups of "
                << group << (has_bytes ? ", rows of 8 bits, " : ", ") << count << " threads";
          }
  }
}

// Every level's sums are the same integers, and what follows them is the same.
TEST(FewerBits, Int8RowsGiveTheSameBitsOnEveryLevel) {
  const test::IsaScope scope;
  const Tensor w = make_tensor({65, 300}, DType::f32, Layout::contiguous, -0.3, 0.4);
  const Tensor x = make_tensor({7, 300}, DType::f32, Layout::contiguous);
  std::vector<double> first;
  for (const Isa level : available_isas()) {
    set_active_isa(level);
    const std::vector<double> got =
        run_chain(x, {w}, {WeightBits::int8, ActivationBits::int8}).to_vector();
    if (first.empty()) first = got;
    EXPECT_EQ(got, first) << isa_name(level);
  }
}

// Many rows become 8 bits beside 4-bit weights, few become 16. Bytes of many have one scale for 512
// inputs on every level and for any number of rows: the bits of a row depend on neither.
TEST(FewerBits, Int8RowsBeside4BitWeights) {
  const test::IsaScope scope;
  for (const int64_t k : {290, 2300})
    for (const int group : {32, 128})
      for (const bool has_zeros : {false, true}) {
        const Quantisation bits = {WeightBits::int4, ActivationBits::int8, group, has_zeros};
        for (const DType dtype : {DType::f32, DType::bf16}) {
          const Tensor w = make_tensor({65, k}, dtype, Layout::contiguous, -0.3, 0.4);
          const Tensor v = make_tensor({65, k}, dtype, Layout::transposed, -2, 1);
          const Tensor both = t(add(rounded_to_int4(w, bits), rounded_to_int4(v, bits)));
          const Tensor all = make_tensor({130, k}, dtype, Layout::contiguous);
          std::vector<double> first;
          for (const int64_t rows : {130, 1, 8, 9, 12, 17, 96}) {
            const Tensor x = slice(all, 0, 0, rows);
            const Tensor want = mm(rows > 8 ? rounded_to_int8(x) : to(x, DType::f64), both);
            for (const Isa level : available_isas()) {
              set_active_isa(level);
              const Tensor got = run_chain(x, {w, v}, bits);
              // Bytes are rounded once more, and a step that lies between two may go either way.
              EXPECT_LT(distance(got, want), rows > 8 || dtype != DType::f32 ? 1e-2 : 1e-3)
                  << isa_name(level) << " " << rows << " rows, groups of " << group;
              if (rows <= 8) continue;
              std::vector<double> values = got.to_vector();
              if (first.empty()) first = values;
              EXPECT_TRUE(std::equal(values.begin(), values.end(), first.begin()))
                  << isa_name(level) << ", " << rows << " rows of " << k << ": other bits";
            }
          }
        }
      }
}

// Both ways to the same panels: the weights, and what round_weight() makes of them.
TEST(FewerBits, RoundWeightIsWhatKernelsPack) {
  const NoGrad no_grad;
  const test::IsaScope scope;
  const Quantisation choices[] = {{.weights = WeightBits::int8},
                                  {WeightBits::int8, ActivationBits::int8},
                                  {.weights = WeightBits::int4},
                                  {.weights = WeightBits::int4, .group = 32, .zero_points = true},
                                  {WeightBits::int4, ActivationBits::int8, 32}};
  for (const Isa level : available_isas()) {
    set_active_isa(level);
    for (const DType dtype : {DType::f32, DType::bf16})
      for (const Quantisation& bits : choices)
        for (const int64_t k : {1, 37, 290}) {
          const Tensor up = make_tensor({71, k}, dtype, Layout::transposed, -0.3, 0.4);
          const Tensor gate = make_tensor({71, k}, dtype, Layout::contiguous, -0.3, 0.4);
          const Tensor down = make_tensor({65, 71}, dtype, Layout::contiguous, -2, 1);
          const FusedMlp direct =
              FusedMlp::gated(gate, up, down, nn::Activation::swiglu, {.bits = bits});
          const FusedMlp rounded = FusedMlp::gated(
              round_weight(gate, bits), round_weight(up, bits), round_weight(down, bits),
              nn::Activation::swiglu, dtype, {.bits = {.activations = bits.activations}});
          for (const int64_t rows : {1, 5, 40}) {
            const Tensor x = make_tensor({rows, k}, dtype, Layout::contiguous);
            EXPECT_EQ(rounded(x).to_vector(), direct(x).to_vector())
                << isa_name(level) << " " << rows << " x " << k << " " << dtype_name(dtype);
          }
          const Tensor values =
              std::visit([](const auto& w) { return w.dequantised(); }, round_weight(down, bits));
          EXPECT_LT(distance(values, down), bits.weights == WeightBits::int8 ? 0.02 : 0.2);
        }
  }
}

TEST(FewerBits, StepsOfMinus128AreKept) {
  const NoGrad no_grad;
  const test::IsaScope scope;
  Int8Weight w{3, 70, empty({3, 70}, DType::u8), ones({3}, DType::f32)};
  auto* const steps = static_cast<int8_t*>(w.steps.data());
  for (int64_t i = 0; i < 210; ++i) steps[i] = static_cast<int8_t>(i % 256 - 128);
  const RoundedWeight one[] = {w};
  const Tensor x = make_tensor({20, 70}, DType::f32, Layout::contiguous);
  for (const Isa level : available_isas()) {
    set_active_isa(level);
    const FusedMlp mlp = FusedMlp::plain(one, {}, nn::Activation::relu, DType::f32);
    for (const int64_t rows : {1, 20}) {
      const Tensor part = slice(x, 0, 0, rows);
      const Tensor want = mm(to(part, DType::f64), t(to(w.dequantised(), DType::f64)));
      EXPECT_LT(distance(mlp(part), want), 2e-4) << isa_name(level) << " " << rows << " rows";
    }
  }
}

TEST(FewerBits, ExpertsRoundAsTheirMlpsDo) {
  const NoGrad no_grad;
  const test::IsaScope scope;
  manual_seed(9);
  const Tensor up = randn({3, 2 * 72, 100});
  const Tensor down = randn({3, 50, 72});
  const std::vector<Expert> experts = split_experts(up, down);
  const Quantisation choices[] = {{.weights = WeightBits::int8},
                                  {WeightBits::int8, ActivationBits::int8},
                                  {.weights = WeightBits::int4},
                                  {.weights = WeightBits::int4, .group = 32, .zero_points = true},
                                  {WeightBits::int4, ActivationBits::int8, 32}};
  for (const Isa level : available_isas()) {
    set_active_isa(level);
    for (const Quantisation& bits : choices) {
      const FusedExperts fused(experts, nn::Activation::swiglu, {}, bits);
      const FusedExperts exact(experts, nn::Activation::swiglu);
      EXPECT_LT(fused.packed_bytes(), exact.packed_bytes() / 2);
      for (const int64_t tokens : {1, 4, 30, 200}) {
        const Tensor x = randn({tokens, 100});
        const Tensor index = empty({tokens, 1}, DType::i64);
        for (int64_t i = 0; i < tokens; ++i) index.data_as<int64_t>()[i] = i % 3;
        const Tensor y = fused(x, index, ones({tokens, 1}));
        // Steps of rows that lie between two go the same way: the rows are the same.
        for (int64_t i = 0; i < std::min<int64_t>(tokens, 3); ++i) {
          const Expert& e = experts[static_cast<size_t>(i % 3)];
          const FusedMlp mlp =
              FusedMlp::gated(e.gate, e.up, e.down, nn::Activation::swiglu, {.bits = bits});
          // As many rows as the expert has: kernels of few rows round rows in another way.
          const int64_t rows = (tokens - i + 2) / 3;
          const Tensor mine = empty({rows, 100});
          for (int64_t r = 0; r < rows; ++r)
            copy_(slice(mine, 0, r, r + 1), slice(x, 0, i + 3 * r, i + 3 * r + 1));
          EXPECT_LT(distance(slice(y, 0, i, i + 1), slice(mlp(mine), 0, 0, 1)), 5e-3)
              << isa_name(level) << " " << tokens << " tokens, expert " << i;
        }
      }
    }
  }
}

TEST(FewerBits, RowsOfZerosAndNotFiniteOnes) {
  const Quantisation w8a8 = {WeightBits::int8, ActivationBits::int8};
  const Tensor w = ones({3, 40}, DType::f32);
  for (const Quantisation& bits : {w8a8, Quantisation{.weights = WeightBits::int4}}) {
    std::vector<double> values(80, 0);
    values[50] = std::numeric_limits<double>::infinity();
    const std::vector<double> got =
        run_chain(from_values(values, {2, 40}, DType::f32), {w}, bits).to_vector();
    for (size_t j = 0; j < 3; ++j) {
      EXPECT_EQ(got[j], 0);
      EXPECT_FALSE(std::isfinite(got[3 + j]));
    }
  }
}

TEST(FewerBits, OneCopyOf4BitWeightsServesFewAndManyRows) {
  const NoGrad no_grad;
  const Tensor w = randn({256, 512}, DType::f32);
  const FusedMlp mlp =
      FusedMlp::plain({&w, 1}, {}, nn::Activation::relu, {.bits = {.weights = WeightBits::int4}});
  const int64_t before = memory_stats().packed_bytes;
  mlp(randn({1, 512}));
  const int64_t one = memory_stats().packed_bytes - before;
  EXPECT_NEAR(static_cast<double>(one), 256 * 512 * (0.5 + 2.0 / 128), 1);
  mlp(randn({100, 512}));
  EXPECT_EQ(memory_stats().packed_bytes - before, one);
}

Int4Weight random_int4(int64_t n, int64_t k, int64_t group, DType scales, bool has_zeros,
                       uint32_t seed) {
  std::mt19937 generator(seed);
  std::uniform_int_distribution<int> bytes(0, 255);
  Int4Weight w = {n, k, group, empty({n, k / 2}, DType::u8), {}, {}, {}};
  for (int64_t i = 0; i < w.steps.numel(); ++i)
    w.steps.data_as<uint8_t>()[i] = static_cast<uint8_t>(bytes(generator));
  w.scales = to(uniform({n, k / group}, 0.001, 0.02), scales);
  if (!has_zeros) return w;
  w.zeros = empty({n, k / group}, DType::u8);
  for (int64_t i = 0; i < w.zeros.numel(); ++i)
    w.zeros.data_as<uint8_t>()[i] = static_cast<uint8_t>(bytes(generator) % 17);
  return w;
}

TEST(FewerBits, WeightsThatAreRoundedAlreadyArePackedAsTheyAre) {
  const NoGrad no_grad;
  const test::IsaScope scope;
  manual_seed(5);
  for (const Isa level : available_isas()) {
    set_active_isa(level);
    for (const int64_t group : {32, 64, 128, 256})
      for (const DType scales : {DType::f16, DType::bf16}) {
        const Int4Weight gate = random_int4(70, 256, group, scales, true, 1);
        const Int4Weight up = random_int4(70, 256, group, scales, false, 2);
        const Int4Weight wide = random_int4(64, 256, group, scales, true, 3);
        // Of two stages: the second reads 256 hidden columns.
        const Int4Weight first = random_int4(256, 256, group, scales, true, 4);
        const Tensor x = randn({50, 256});
        const auto exact = [&](const Tensor& rows) {
          const Tensor hidden =
              relu(mm(to(rows, DType::f64), t(to(first.dequantised(), DType::f64))));
          return mm(hidden, t(to(wide.dequantised(), DType::f64)));
        };
        const RoundedWeight both[] = {first, wide};
        const FusedMlp mlp = FusedMlp::plain(both, {}, nn::Activation::relu, DType::f32);
        for (const int64_t rows : {1, 7, 50}) {
          const Tensor part = slice(x, 0, 0, rows);
          EXPECT_LT(distance(mlp(part), exact(part)), 1e-4)
              << isa_name(level) << " groups of " << group << ", " << rows << " rows";
        }
        EXPECT_EQ(gate.dequantised().size(1), up.dequantised().size(1));
      }
  }
}

TEST(FewerBits, MisuseIsNamed) {
  const Tensor w = ones({8, 64}, DType::f32);
  const Tensor x = ones({1, 64}, DType::f32);
  EXPECT_ERROR(run_chain(x, {w}, {.activations = ActivationBits::int8}),
               "[row chain] expected int8 or int4 weights with int8 activations, got others");
  EXPECT_ERROR(run_chain(x, {w}, {.weights = WeightBits::int4, .group = 64}),
               "[row chain] expected int4 weights in groups of 32 or 128, got 64");
  Int4Weight q = random_int4(8, 64, 32, DType::f16, false, 1);
  const auto make = [&](const FusedOptions& options = {}) {
    return error_of([&] {
      const RoundedWeight one[] = {q};
      FusedMlp::plain(one, {}, nn::Activation::relu, DType::f32, options);
    });
  };
  EXPECT_EQ(make(), "");
  EXPECT_EQ(make({.bits = {.weights = WeightBits::int8}}),
            "[fused_mlp] expected no bits but of activations for weights that are rounded already, "
            "got others");
  q.order = empty({64}, DType::i64);
  for (int64_t j = 0; j < 64; ++j) q.order.data_as<int64_t>()[j] = 63 - j;
  EXPECT_EQ(
      make(),
      "[row chain] expected 4-bit weights of inputs in their order, got an order of their own "
      "(desc_act)");
  q.order.data_as<int64_t>()[1] = 63;
  EXPECT_EQ(make(), "[FusedMlp] expected an order of 64 inputs, each once, got 63 at 1");
  q.order = {};
  q.group = 24;
  EXPECT_EQ(make(),
            "[FusedMlp] expected k in groups of a multiple of 32, got n 8, k 64, groups of 24");
  q.group = 64;
  EXPECT_EQ(make(),
            "[FusedMlp] expected scales f16 or bf16[8, 1], contiguous and on the CPU, got "
            "f16[8, 2]");
}

TEST(FewerBits, CompileRoundsAsTheFusedMlpDoes) {
  const NoGrad no_grad;
  manual_seed(3);
  const nn::GatedMLP mlp(64, 96);
  Compiled exact = compile(mlp);
  struct Case {
    Quantisation bits;
    double least;
    double most;
  };
  const Case cases[] = {
      {{.weights = WeightBits::int8}, 1e-4, 1.5e-2},
      {{WeightBits::int8, ActivationBits::int8}, 1e-3, 3e-2},
      {{.weights = WeightBits::int4}, 3e-2, 0.3},
      {{.weights = WeightBits::int4, .group = 32, .zero_points = true}, 2e-2, 0.2},
      {{WeightBits::int4, ActivationBits::int8, 32}, 2e-2, 0.3},
  };
  for (const Case& c : cases) {
    Compiled rounded = compile(mlp, {.bits = c.bits});
    for (const int64_t rows : {1, 4, 5, 50}) {
      const Tensor x = randn({rows, 64});
      const Tensor y = rounded(x);
      EXPECT_LT(distance(y, exact(x)), c.most) << rows;
      EXPECT_GT(distance(y, exact(x)), c.least) << rows << ": nothing was rounded";
      EXPECT_LT(
          distance(fused_gated_mlp(x, mlp.gate_proj.weight, mlp.up_proj.weight,
                                   mlp.down_proj.weight, nn::Activation::geglu, {.bits = c.bits}),
                   y),
          1e-5);
    }
  }
  clear_fused_cache();
}

}  // namespace epilogue::testing::fewer_bits_test
