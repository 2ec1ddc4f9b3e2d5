// SPDX-License-Identifier: Apache-2.0
// Pointwise programs and row chains as backends run them, against plain loops in double.
#include "backend/cpu/tile_program.h"
#include "backend/kernel_testing.h"
#include "base/cpu_features.h"
#include "core/backend.h"
#include "ops/op_testing.h"
#include "ops/table_support.h"
#include "support/test.h"

namespace epilogue::testing::fused_kernels_test {

// v3 = gelu_erf(v0); v4 = v3 * v1; v5 = v4 + 2 v2; v6 = 1 - v5.
PointwiseProgram example() {
  return {3,
          {{PointwiseFn::gelu_erf, 0},
           {PointwiseFn::mul, 3, 1},
           {PointwiseFn::add, 4, 2, 0, 2},
           {PointwiseFn::sub, kConstantOperand, 5, 1}},
          {6, 3}};
}
double gelu_of(double x) { return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0))); }

TEST(PointwiseProgram, TextNamesEveryStep) {
  EXPECT_EQ(to_string(example()),
            "v3 = gelu_erf(v0); v4 = mul(v3, v1); v5 = add(v4, v2, alpha=2.0); "
            "v6 = sub(1.0, v5); store v6 v3");
}

TEST(PointwiseProgram, VerifyRefusesWhatDoesNotExistYet) {
  verify(example());
  PointwiseProgram late = example();
  late.steps[0].operands[0] = 4;
  EXPECT_HAS(error_of([&] { verify(late); }), "computed before");
  PointwiseProgram output = example();
  output.outputs = {7};
  EXPECT_HAS(error_of([&] { verify(output); }), "outputs that exist");
  EXPECT_HAS(error_of([] { verify({1, {}, {}}); }), "at least one output");
  EXPECT_HAS(error_of([] {
               verify({1, {{PointwiseFn::add, kConstantOperand, kConstantOperand}}, {1}});
             }),
             "no constant");
}

TEST(TileProgram, ValuesThatDieLendTheirBuffers) {
  PointwiseProgram chain{1, {}, {}};
  for (int i = 0; i < 10; ++i) chain.steps.push_back({PointwiseFn::neg, i});
  chain.outputs = {10};
  EXPECT_EQ(cpu::TileProgram(chain).buffers(), 1);
  // v0 is read by the last step: it cannot be written over before.
  chain.steps.push_back({PointwiseFn::mul, 10, 0});
  chain.outputs = {11};
  EXPECT_EQ(cpu::TileProgram(chain).buffers(), 2);
}

TEST(TileProgram, OutputsKeepTheirBuffersToTheEnd) {
  // v1 is stored, and read by the next step only: its buffer must not be lent.
  const cpu::TileProgram program(
      {1, {{PointwiseFn::neg, 0}, {PointwiseFn::exp, 1}, {PointwiseFn::neg, 2}}, {1, 3}});
  EXPECT_NE(program.output(0).buffer, program.output(1).buffer);
}

void expect_program(int64_t rows, int64_t cols, DType dtype) {
  const std::string what =
      std::to_string(rows) + " x " + std::to_string(cols) + " " + std::string(dtype_name(dtype));
  const Tensor a = make_tensor({rows, cols}, dtype, Layout::contiguous);
  const Tensor b = make_tensor({rows, cols}, dtype, Layout::transposed);
  const Tensor c = make_tensor({cols}, dtype, Layout::stepped);
  const Tensor out = empty({rows, cols}, dtype);
  const Tensor second = empty({rows, cols});
  const MatrixView in[] = {matrix(a), matrix(b), matrix(c)};
  const MatrixView results[] = {matrix(out), matrix(second)};
  cpu_backend().make_program(example())->run(rows, cols, in, results);
  const std::vector<double> va = a.to_vector();
  const std::vector<double> vb = b.to_vector();
  const std::vector<double> vc = c.to_vector();
  std::vector<double> want;
  std::vector<double> want_second;
  for (size_t i = 0; i < va.size(); ++i) {
    want_second.push_back(gelu_of(va[i]));
    want.push_back(1 - (gelu_of(va[i]) * vb[i] + 2 * vc[i % static_cast<size_t>(cols)]));
  }
  expect_close(out, from_values(want, {rows, cols}, dtype), 4e-6, what);
  expect_close(second, from_values(want_second, {rows, cols}), 4e-6, what);
}

TEST(Program, EveryShapeDtypeAndLevel) {
  const test::IsaScope scope;
  for (const Isa level : available_isas()) {
    set_active_isa(level);
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      for (const int64_t rows : {1, 2, 37})
        for (const int64_t cols : {1, 15, 16, 17, 1031}) expect_program(rows, cols, dtype);
      expect_program(300, 700, dtype);
    }
  }
}

TEST(Program, MayWriteWhereItReadsAndBroadcastsNumbersAndColumns) {
  const Tensor x = make_tensor({40, 33}, DType::f32, Layout::contiguous);
  const std::vector<double> before = x.to_vector();
  const Tensor column = make_tensor({40, 1}, DType::f32, Layout::contiguous);
  const Tensor number = full({1, 1}, 3.0);
  const PointwiseProgram p{3, {{PointwiseFn::mul, 0, 1}, {PointwiseFn::add, 3, 2}}, {4}};
  const MatrixView in[] = {
      matrix(x), {column.data(), DType::f32, 1, 0}, {number.data(), DType::f32, 0, 0}};
  const MatrixView out[] = {matrix(x)};
  cpu_backend().make_program(p)->run(40, 33, in, out);
  const std::vector<double> factors = column.to_vector();
  const std::vector<double> got = x.to_vector();
  for (size_t i = 0; i < got.size(); ++i)
    ASSERT_NEAR(got[i], before[i] * factors[i / 33] + 3, 1e-5) << i;
}

TEST(Program, MisuseIsNamed) {
  const auto program = cpu_backend().make_program(example());
  EXPECT_ERROR(program->run(1, 1, {}, {}),
               "[program] expected 3 inputs and 2 outputs, got 0 and 0");
  const Tensor t = zeros({2, 2}, DType::f64);
  const MatrixView in[] = {matrix(t), matrix(t), matrix(t)};
  const MatrixView out[] = {matrix(t), matrix(t)};
  EXPECT_ERROR(program->run(2, 2, in, out), "[program] expected f32, bf16 or f16, got f64");
}

enum class Operand { bias, rows, stepped };

// One stage y = x w^T (+ r), relu(y) or not.
struct OneStage {
  int64_t rows, k, n;
  DType dtype;
  std::vector<Operand> added = {Operand::stepped};
  bool relu = true;

  PointwiseProgram epilogue() const {
    PointwiseProgram program{1 + static_cast<int>(added.size()), {}, {}};
    int value = 0;
    const auto then = [&](PointwiseFn fn, auto... operands) {
      program.steps.push_back({fn, operands...});
      value = program.values() - 1;
    };
    for (size_t i = 0; i < added.size(); ++i)
      then(PointwiseFn::add, value, static_cast<int>(i) + 1);
    if (relu) then(PointwiseFn::relu, value);
    program.outputs = {value};
    return program;
  }

  // One value of row `nan_row` of x is NaN, if there is such a row.
  void check(int64_t nan_row = -1) const {
    const Tensor w = make_tensor({n, k}, dtype, Layout::transposed, -0.3, 0.3);
    // A view that begins inside its storage needs elements.
    Tensor x = make_tensor({rows, k}, dtype, rows > 0 ? Layout::offset : Layout::contiguous);
    if (nan_row >= 0) {
      std::vector<double> values = x.to_vector();
      values[static_cast<size_t>(nan_row * k)] = std::nan("");
      x = from_values(values, {rows, k}, dtype);
    }
    RowChainSpec spec = {.dtype = dtype, .stages = {{{w}, epilogue(), {}}}};
    const Tensor out = full({rows, n}, -1, dtype);
    Tensor want = mm(to(x, DType::f64), t(to(w, DType::f64)));
    std::vector<Tensor> kept;
    std::vector<MatrixView> operands;
    for (const Operand operand : added) {
      const Layout layout =
          operand == Operand::stepped && rows > 0 ? Layout::stepped : Layout::contiguous;
      kept.push_back(operand == Operand::bias ? make_tensor({n}, dtype, Layout::contiguous)
                                              : make_tensor({rows, n}, dtype, layout));
      spec.stages[0].operands.push_back(static_cast<int>(operands.size()));
      operands.push_back(matrix(kept.back()));
      want = add(want, to(kept.back(), DType::f64));
    }
    const MatrixView outputs[] = {matrix(out)};
    cpu_backend().make_row_chain(spec)->run(rows, matrix(x), operands, outputs);
    if (relu) want = epilogue::relu(want);
    const std::string what = std::to_string(rows) + " x " + std::to_string(k) + " x " +
                             std::to_string(n) + " " + std::string(dtype_name(dtype));
    if (nan_row >= 0) {
      const std::vector<double> got = out.to_vector();
      for (size_t i = 0; i < got.size(); ++i)
        ASSERT_EQ(std::isnan(got[i]), static_cast<int64_t>(i) / n == nan_row) << what << ", " << i;
    } else {
      expect_close(out, to(want, dtype), 1e-5 * static_cast<double>(k), what);
    }
  }
};

TEST(RowChain, OddSizesOfEveryDtypeAndLevel) {
  const test::IsaScope scope;
  for (const Isa level : available_isas()) {
    set_active_isa(level);
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
      for (const int64_t rows : {0, 1, 2, 13, 97})
        for (const int64_t k : {1, 7, 64, 129})
          for (const int64_t n : {1, 31, 32, 65}) OneStage{rows, k, n, dtype}.check();
  }
}

// Rows of f32 in strips: several chunks of k, groups of panels and blocks of rows.
TEST(RowChain, ManyColumnsOfLongRows) {
  const test::IsaScope scope;
  for (const Isa level : available_isas()) {
    set_active_isa(level);
    for (const std::vector<Operand>& added :
         {std::vector<Operand>{}, {Operand::bias}, {Operand::bias, Operand::rows}})
      OneStage{209, 2050, 1555, DType::f32, added, true}.check();
  }
}

// Stages side by side of the same rows, some of them too small for tiles, and alone for strips:
// each gives the bits that it gives alone.
TEST(RowChain, StagesSideBySide) {
  const test::IsaScope scope;
  for (const Isa level : available_isas()) {
    set_active_isa(level);
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
      for (const int64_t rows : {1, 6, 30, 97, 530})
        for (const Norm norm : {Norm::none, Norm::layer}) {
          const int64_t k = 520;
          const int64_t widths[] = {300, 257, 31, 64, 1000};
          const Tensor x = make_tensor({rows, k}, dtype, Layout::offset);
          RowChainSpec all = {.dtype = dtype, .side_by_side = true};
          all.norm.kind = norm;
          all.norm.eps = 1e-5;
          std::vector<Tensor> outs;
          std::vector<Tensor> biases;
          std::vector<MatrixView> operands;
          std::vector<MatrixView> outputs;
          for (const int64_t n : widths) {
            const Tensor w = make_tensor({n, k}, dtype, Layout::transposed, -0.1, 0.1);
            biases.push_back(make_tensor({n}, dtype, Layout::contiguous));
            operands.push_back(matrix(biases.back()));
            outs.push_back(full({rows, n}, -1, dtype));
            outputs.push_back(matrix(outs.back()));
            add_stage(all, {w}, {2, {{PointwiseFn::add, 0, 1}}, {2}}, 1);
          }
          cpu_backend().make_row_chain(all)->run(rows, matrix(x), operands, outputs);
          for (size_t i = 0; i < outs.size(); ++i) {
            RowChainSpec one = {.dtype = dtype, .stages = {all.stages[i]}};
            one.norm = all.norm;
            one.stages[0].operands = {0};
            const Tensor want = full({rows, widths[i]}, -1, dtype);
            const MatrixView alone[] = {matrix(want)};
            cpu_backend().make_row_chain(one)->run(rows, matrix(x), {&operands[i], 1}, alone);
            expect_close(outs[i], want, 0,
                         std::to_string(rows) + " rows, stage " + std::to_string(i) + ", " +
                             std::string(dtype_name(dtype)));
          }
        }
  }
}

// Kernels store what needs nothing but a bias and relu themselves, of whole and of other panels;
// tiles add rows that lie as the result does.
TEST(RowChain, EveryEndOfOneProduct) {
  const test::IsaScope scope;
  for (const Isa level : available_isas()) {
    set_active_isa(level);
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
      for (const std::vector<Operand>& added : {std::vector<Operand>{},
                                                {Operand::bias},
                                                {Operand::stepped},
                                                {Operand::rows},
                                                {Operand::bias, Operand::rows},
                                                {Operand::bias, Operand::stepped},
                                                {Operand::rows, Operand::bias}})
        for (const bool relu : {false, true})
          for (const int64_t n : {65, 128}) {
            OneStage{97, 64, n, dtype, added, relu}.check();
            OneStage{97, 300, n, dtype, added, relu}.check();
            OneStage{97, 64, n, dtype, added, relu}.check(40);
            // So many weights are multiplied in tiles.
            if (dtype == DType::bf16 && n == 65)
              OneStage{70, 1100, 130, dtype, added, relu}.check();
          }
  }
}

// The backward pass of a gated layer as one chain:
//   dh = dy w^T;  dg = dh u,  du = dh g  (stored, and the rows of what follows);  h = g u (stored)
//   dx = [dg du] [a; b]
struct GatedBackward {
  int64_t rows, k, hidden;
  DType dtype;
  Tensor dy = make_tensor({rows, k}, dtype, Layout::contiguous);
  Tensor w = make_tensor({hidden, k}, dtype, Layout::transposed, -0.3, 0.3);
  Tensor a = make_tensor({k, hidden}, dtype, Layout::contiguous, -0.3, 0.3);
  Tensor b = make_tensor({k, hidden}, dtype, Layout::transposed, -0.3, 0.3);
  Tensor g = make_tensor({rows, hidden}, dtype, Layout::contiguous);
  Tensor u = make_tensor({rows, hidden}, dtype, Layout::stepped);
  Tensor dx = full({rows, k}, -1, dtype);
  Tensor dg = full({rows, hidden}, -1, dtype);
  Tensor du = full({rows, hidden}, -1, dtype);
  Tensor h = full({rows, hidden}, -1, dtype);

  RowChainSpec spec() const {
    const PointwiseProgram products = {
        3,
        {{PointwiseFn::mul, 0, 2}, {PointwiseFn::mul, 0, 1}, {PointwiseFn::mul, 1, 2}},
        {3, 4, 3, 4, 5}};
    RowChainSpec spec;
    spec.dtype = dtype;
    spec.stages.push_back({{w}, products, {0, 1}, false, 2, {1, 2, 3}});
    spec.stages.push_back({{a, b}, {1, {}, {0}}, {}, true});
    return spec;
  }
  void run() const {
    const MatrixView operands[] = {matrix(g), matrix(u)};
    const MatrixView outputs[] = {matrix(dx), matrix(dg), matrix(du), matrix(h)};
    cpu_backend().make_row_chain(spec())->run(rows, matrix(dy), operands, outputs);
  }
  void check() const {
    const auto f64 = [](const Tensor& t) { return to(t, DType::f64); };
    const Tensor dh = mm(f64(dy), t(f64(w)));
    const Tensor want_dg = mul(dh, f64(u));
    const Tensor want_du = mul(dh, f64(g));
    const Tensor want_dx = add(mm(want_dg, t(f64(a))), mm(want_du, t(f64(b))));
    const double size = static_cast<double>(k) * static_cast<double>(hidden);
    const std::string what = std::to_string(rows) + " x " + std::to_string(k) + " x " +
                             std::to_string(hidden) + " " + std::string(dtype_name(dtype));
    const auto same = [&](const Tensor& got, const Tensor& want, double tolerance) {
      expect_close(got, to(want, dtype), tolerance, what);
    };
    same(dg, want_dg, 1e-5 * static_cast<double>(k));
    same(du, want_du, 1e-5 * static_cast<double>(k));
    same(h, mul(f64(g), f64(u)), 1e-6);
    // What flows is rounded where the next product reads bf16 rows.
    same(dx, want_dx, (dtype == DType::bf16 ? 3e-3 : 1e-5) * std::sqrt(size));
  }
};

TEST(RowChain, StagesMayStoreAndFlowSideBySideIntoAStackedProduct) {
  const test::IsaScope scope;
  for (const Isa level : available_isas()) {
    set_active_isa(level);
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
      for (const int64_t rows : {1, 2, 97, 200})
        for (const int64_t hidden : {1, 33, 96}) {
          const GatedBackward backward{rows, 17, hidden, dtype};
          backward.run();
          backward.check();
        }
  }
}

// w rounded to 127 steps of each row's largest magnitude, in double.
Tensor rounded_to_int8(const Tensor& w) {
  std::vector<double> values = w.to_vector();
  const auto k = static_cast<size_t>(w.size(1));
  for (size_t row = 0; row < values.size() / k; ++row) {
    double largest = 0;
    for (size_t i = 0; i < k; ++i) largest = std::max(largest, std::abs(values[row * k + i]));
    const float scale = static_cast<float>(largest) / 127.0F;
    for (size_t i = 0; i < k; ++i) {
      double& v = values[row * k + i];
      v = scale == 0 ? 0 : std::nearbyint(static_cast<float>(v) / scale) * double{scale};
    }
  }
  return from_values(values, {w.size(0), w.size(1)}, DType::f64);
}

TEST(RowChain, Int8WeightsGiveTheProductsOfRoundedWeightsForAnyNumberOfRows) {
  const test::IsaScope scope;
  for (const Isa level : available_isas()) {
    set_active_isa(level);
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
      for (const int64_t rows : {1, 2, 3, 4, 5, 6, 7, 12, 13, 100}) {
        const int64_t k = 70;
        const int64_t n = 65;
        const Tensor w = make_tensor({n, k}, dtype, Layout::contiguous, -0.3, 0.3);
        const Tensor v = make_tensor({n, k}, dtype, Layout::transposed, -2, 2);
        const Tensor x = make_tensor({rows, k}, dtype, Layout::contiguous);
        const Tensor out = zeros({rows, n}, dtype);
        RowChainSpec spec;
        spec.dtype = dtype;
        spec.bits.weights = WeightBits::int8;
        spec.stages = {{{w, v}, {2, {{PointwiseFn::add, 0, 1}}, {2}}, {}}};
        const MatrixView outputs[] = {matrix(out)};
        cpu_backend().make_row_chain(spec)->run(rows, matrix(x), {}, outputs);
        const Tensor x64 = to(x, DType::f64);
        const Tensor want = add(mm(x64, t(rounded_to_int8(w))), mm(x64, t(rounded_to_int8(v))));
        // Pairs of bf16 round the rounded weights once more, integer rows the input to 16 bits.
        const double again = dtype == DType::bf16 ? 2e-2 : 1e-4;
        expect_close(out, to(want, dtype), again * std::sqrt(static_cast<double>(k)),
                     std::to_string(rows) + " rows " + std::string(dtype_name(dtype)));
      }
  }
}

TEST(RowChain, Int8WeightsOfColumnsOfZerosAndNotFiniteOnes) {
  const Tensor w =
      from_values({0, 0, 1, 2, 3, std::numeric_limits<double>::infinity()}, {3, 2}, DType::f32);
  const Tensor x = from_values({1, 1}, {1, 2}, DType::f32);
  const Tensor out = full({1, 3}, -1, DType::f32);
  RowChainSpec spec;
  spec.bits.weights = WeightBits::int8;
  spec.stages = {{{w}, {1, {}, {0}}, {}}};
  const MatrixView outputs[] = {matrix(out)};
  cpu_backend().make_row_chain(spec)->run(1, matrix(x), {}, outputs);
  const std::vector<double> got = out.to_vector();
  EXPECT_EQ(got[0], 0);
  EXPECT_NEAR(got[1], 3, 0.01);
  EXPECT_TRUE(std::isnan(got[2]));
}

TEST(RowChain, MisuseIsNamed) {
  const GatedBackward backward{2, 4, 8, DType::f32};
  const auto with = [&](auto change) {
    RowChainSpec spec = backward.spec();
    change(spec);
    return error_of([&] { cpu_backend().make_row_chain(spec); });
  };
  EXPECT_EQ(with([](RowChainSpec& s) { s.stages.clear(); }),
            "[row chain] expected at least one stage, got none");
  EXPECT_EQ(with([](RowChainSpec& s) { s.stages[1].flows = 2; }),
            "[row chain] expected a program of 1 inputs and 2 outputs, got store v0");
  EXPECT_EQ(with([](RowChainSpec& s) {
              s.stages[0].stores = {1, 2, 4};
            }),
            "[row chain] expected stores among outputs 1 to 3, got 4");
  EXPECT_EQ(with([](RowChainSpec& s) { s.stages[1].weights.pop_back(); }),
            "[row chain] expected a stage of 16 inputs, got f32[4, 8]");
  EXPECT_ERROR(cpu_backend().make_row_chain(backward.spec())->run(1, matrix(backward.dy), {}, {}),
               "[row chain] expected 4 outputs, got 0");
}

}  // namespace epilogue::testing::fused_kernels_test
