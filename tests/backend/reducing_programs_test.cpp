// SPDX-License-Identifier: Apache-2.0
// Programs that reduce rows and columns, alone and at the end of a product, against loops in
// double.
#include "backend/cpu/tile_program.h"
#include "backend/kernel_testing.h"
#include "base/cpu_features.h"
#include "core/backend.h"
#include "epilogue/runtime.h"
#include "ops/op_testing.h"
#include "ops/table_support.h"
#include "support/test.h"

namespace epilogue::testing::reducing_programs_test {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// v0 = x, v1 = r [cols]: softmax(x + r), its rows' log-sums and, over all rows, its column sums.
PointwiseProgram softmax_program() {
  return {2,
          {{PointwiseFn::add, 0, 1},
           {PointwiseFn::row_max, 2},
           {PointwiseFn::sub, 2, 3},
           {PointwiseFn::exp, 4},
           {PointwiseFn::row_sum, 5},
           {PointwiseFn::div, 5, 6},
           {PointwiseFn::log, 6},
           {PointwiseFn::column_sum, 7}},
          {7, 8, 9}};
}

struct SoftmaxResults {
  Tensor y;
  Tensor log_sums;
  Tensor sums;
};

SoftmaxResults run_softmax(const Tensor& x, const Tensor& r, DType dtype) {
  const int64_t rows = x.size(0);
  const int64_t cols = x.size(1);
  const SoftmaxResults results = {full({rows, cols}, -7, dtype), full({rows, 1}, -7),
                                  full({1, cols}, -7)};
  const MatrixView in[] = {matrix(x), matrix(r)};
  const MatrixView out[] = {matrix(results.y), matrix(results.log_sums), matrix(results.sums)};
  cpu_backend().make_program(softmax_program())->run(rows, cols, in, out);
  return results;
}

void expect_softmax(int64_t rows, int64_t cols, DType dtype) {
  const std::string what =
      std::to_string(rows) + " x " + std::to_string(cols) + " " + std::string(dtype_name(dtype));
  const Tensor x = make_tensor({rows, cols}, dtype, Layout::transposed);
  const Tensor r = make_tensor({cols}, dtype, Layout::stepped);
  const SoftmaxResults got = run_softmax(x, r, dtype);
  const std::vector<double> vx = x.to_vector();
  const std::vector<double> vr = r.to_vector();
  std::vector<double> y(vx.size());
  std::vector<double> log_sums;
  std::vector<double> sums(static_cast<size_t>(cols), 0);
  for (int64_t i = 0; i < rows; ++i) {
    const auto at = [&](int64_t j) { return static_cast<size_t>(i * cols + j); };
    double largest = -kInf;
    for (int64_t j = 0; j < cols; ++j)
      largest = std::max(largest, vx[at(j)] + vr[static_cast<size_t>(j)]);
    double sum = 0;
    for (int64_t j = 0; j < cols; ++j)
      sum += y[at(j)] = std::exp(vx[at(j)] + vr[static_cast<size_t>(j)] - largest);
    for (int64_t j = 0; j < cols; ++j) sums[static_cast<size_t>(j)] += y[at(j)] /= sum;
    log_sums.push_back(std::log(sum));
  }
  expect_close(got.y, from_values(y, {rows, cols}, dtype), 2e-6, what);
  expect_close(got.log_sums, from_values(log_sums, {rows, 1}), 2e-6, what);
  expect_close(got.sums, from_values(sums, {1, cols}), 1e-6 * static_cast<double>(rows), what);
}

TEST(ReducingProgram, EveryShapeDtypeAndLevel) {
  const test::IsaScope scope;
  for (const Isa level : available_isas()) {
    set_active_isa(level);
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      for (const int64_t rows : {1, 2, 31, 32, 33, 70})
        for (const int64_t cols : {1, 15, 16, 17, 1031}) expect_softmax(rows, cols, dtype);
      expect_softmax(3, 9001, dtype);  // a row is longer than a tile
    }
  }
}

TEST(ReducingProgram, BitsAreThoseOfOneThreadForAnyNumberOfThreads) {
  const test::ThreadScope scope;
  const Tensor x = randn({515, 301});
  const Tensor r = randn({301});
  set_num_threads(1);
  const SoftmaxResults one = run_softmax(x, r, DType::f32);
  for (const int threads : {2, 3, 8}) {
    set_num_threads(threads);
    const SoftmaxResults got = run_softmax(x, r, DType::f32);
    EXPECT_EQ(got.y.to_vector(), one.y.to_vector()) << threads;
    EXPECT_EQ(got.log_sums.to_vector(), one.log_sums.to_vector()) << threads;
    EXPECT_EQ(got.sums.to_vector(), one.sums.to_vector()) << threads;
  }
}

TEST(ReducingProgram, NanAndInfinityStayInTheirRowsAndColumns) {
  Tensor x = zeros({4, 20});
  auto* const values = x.data_as<float>();
  values[3] = static_cast<float>(kNan);        // row 0
  values[20 + 5] = static_cast<float>(kInf);   // row 1: inf - inf
  values[40 + 6] = static_cast<float>(-kInf);  // row 2: weight 0
  const SoftmaxResults got = run_softmax(x, zeros({20}), DType::f32);
  const std::vector<double> y = got.y.to_vector();
  for (size_t j = 0; j < 20; ++j) {
    EXPECT_TRUE(std::isnan(y[j])) << j;
    EXPECT_TRUE(std::isnan(y[20 + j])) << j;
    EXPECT_NEAR(y[40 + j], j == 6 ? 0 : 1.0 / 19, 1e-7) << j;
    EXPECT_NEAR(y[60 + j], 0.05, 1e-7) << j;
    EXPECT_TRUE(std::isnan(got.sums.to_vector()[j])) << j;
  }
}

// What rows reduce to may be used in any place: as the first operand, with numbers, alone, as the
// gradient that a derivative takes.
TEST(ReducingProgram, RowsNumbersMeetElementsInAnyPlace) {
  const int64_t rows = 5;
  const int64_t cols = 37;
  const Tensor x = make_tensor({rows, cols}, DType::f32, Layout::contiguous);
  const PointwiseProgram p{1,
                           {{PointwiseFn::row_mean, 0},
                            {PointwiseFn::mul, 1, 1},
                            {PointwiseFn::add, 2, kConstantOperand, 3},
                            {PointwiseFn::rsqrt, 3},
                            {PointwiseFn::sub, 4, 0, 0, 2},      // r - 2 x
                            {PointwiseFn::relu_backward, 1, 5},  // mean where r > 2 x
                            {PointwiseFn::tanh_backward, 6, 4}},
                           {7, 4, 6}};
  const Tensor y = full({rows, cols}, -7);
  const Tensor rstd = full({rows, 1}, -7);
  const Tensor masked = full({rows, cols}, -7);
  const MatrixView in[] = {matrix(x)};
  const MatrixView out[] = {matrix(y), matrix(rstd), matrix(masked)};
  cpu_backend().make_program(p)->run(rows, cols, in, out);
  const std::vector<double> v = x.to_vector();
  for (int64_t i = 0; i < rows; ++i) {
    double mean = 0;
    for (int64_t j = 0; j < cols; ++j) mean += v[static_cast<size_t>(i * cols + j)] / cols;
    const double r = 1 / std::sqrt(mean * mean + 3);
    EXPECT_NEAR(rstd.to_vector()[static_cast<size_t>(i)], r, 1e-6);
    for (int64_t j = 0; j < cols; ++j) {
      const auto at = static_cast<size_t>(i * cols + j);
      const double want = r - 2 * v[at] > 0 ? mean : 0;
      ASSERT_NEAR(masked.to_vector()[at], want, 1e-6) << at;
      ASSERT_NEAR(y.to_vector()[at], want * (1 - r * r), 1e-6) << at;
    }
  }
}

TEST(ReducingProgram, NoRowsSumToZeroAndNoColumnsToo) {
  const PointwiseProgram p{1, {{PointwiseFn::row_sum, 0}, {PointwiseFn::column_sum, 0}}, {1, 2}};
  const Tensor x = zeros({1});
  const auto run = [&](int64_t rows, int64_t cols) {
    const Tensor row_sums = full({std::max<int64_t>(rows, 1), 1}, -7);
    const Tensor column_sums = full({1, std::max<int64_t>(cols, 1)}, -7);
    const MatrixView in[] = {matrix(x)};
    const MatrixView out[] = {matrix(row_sums), matrix(column_sums)};
    cpu_backend().make_program(p)->run(rows, cols, in, out);
    return std::pair(row_sums.to_vector(), column_sums.to_vector());
  };
  EXPECT_EQ(run(0, 3).second, (std::vector<double>{0, 0, 0}));
  EXPECT_EQ(run(2, 0).first, (std::vector<double>{0, 0}));
}

TEST(PointwiseProgram, ExtentsFollowReductions) {
  EXPECT_EQ(extents(softmax_program()),
            (std::vector<Extent>{Extent::element, Extent::element, Extent::element, Extent::row,
                                 Extent::element, Extent::element, Extent::row, Extent::element,
                                 Extent::row, Extent::column}));
  EXPECT_EQ(to_string(PointwiseProgram{1, {{PointwiseFn::row_mean, 0}}, {1}}),
            "v1 = row_mean(v0); store v1");
}

TEST(PointwiseProgram, ReductionsTakeElementsAndColumnSumsAreStoredOnly) {
  EXPECT_ERROR(verify({1, {{PointwiseFn::row_sum, 0}, {PointwiseFn::column_sum, 1}}, {2}}),
               "[pointwise program] expected reductions of elements");
  EXPECT_ERROR(verify({1, {{PointwiseFn::column_sum, 0}, {PointwiseFn::add, 0, 1}}, {2}}),
               "[pointwise program] expected column sums to be stored only");
}

TEST(TileProgram, ColumnSumsKeepWhatTheySum) {
  // v1 is summed over columns and read by the next step, which must not write over it.
  const cpu::TileProgram program(
      {1, {{PointwiseFn::neg, 0}, {PointwiseFn::column_sum, 1}, {PointwiseFn::exp, 1}}, {2, 3}});
  EXPECT_NE(program.output(0).buffer, program.output(1).buffer);
}

// One stage of a backward pass: dh = (dy w^T) * g, stored, and its column sums.
struct BiasGradient {
  int64_t rows, k, n;
  DType dtype;
  Tensor dy = make_tensor({rows, k}, dtype, Layout::contiguous);
  Tensor w = make_tensor({n, k}, dtype, Layout::transposed, -0.3, 0.3);
  Tensor v = make_tensor({k, n}, dtype, Layout::contiguous, -0.3, 0.3);
  Tensor g = make_tensor({rows, n}, dtype, Layout::contiguous);
  Tensor dx = full({rows, k}, -7, dtype);
  Tensor dh = full({rows, n}, -7, dtype);
  Tensor db = full({1, n}, -7, dtype);

  void run() const {
    RowChainSpec spec;
    spec.dtype = dtype;
    const PointwiseProgram p{
        2, {{PointwiseFn::mul, 0, 1}, {PointwiseFn::column_sum, 2}}, {2, 2, 3}};
    spec.stages.push_back({{w}, p, {0}, false, 1, {1, 2}});
    spec.stages.push_back({{v}, {1, {}, {0}}, {}});
    const MatrixView operands[] = {matrix(g)};
    const MatrixView outputs[] = {matrix(dx), matrix(dh), matrix(db)};
    cpu_backend().make_row_chain(spec)->run(rows, matrix(dy), operands, outputs);
  }
  void check() const {
    const auto f64 = [](const Tensor& t) { return to(t, DType::f64); };
    const Tensor want = mul(mm(f64(dy), t(f64(w))), f64(g));
    const std::string what = std::to_string(rows) + " x " + std::to_string(k) + " x " +
                             std::to_string(n) + " " + std::string(dtype_name(dtype));
    const double each = 1e-5 * static_cast<double>(k);
    expect_close(dh, to(want, dtype), each, what);
    expect_close(db, to(sum(want, {0}, true), dtype), each * static_cast<double>(rows), what);
    expect_close(dx, to(mm(want, t(f64(v))), dtype),
                 (dtype == DType::bf16 ? 3e-3 : 1e-5) * std::sqrt(static_cast<double>(k * n)),
                 what);
  }
};

TEST(RowChain, ColumnSumsOfWhatAStageMakes) {
  const test::IsaScope isa;
  const test::ThreadScope scope;
  for (const Isa level : available_isas()) {
    set_active_isa(level);
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
      for (const int threads : {1, 3})
        for (const int64_t rows : {1, 2, 31, 97, 200})
          for (const int64_t n : {1, 33, 96}) {
            set_num_threads(threads);
            const BiasGradient gradient{rows, 17, n, dtype};
            gradient.run();
            gradient.check();
          }
  }
}

// The same rows have the same sums however they were cut: f32 rows as they were stored.
TEST(RowChain, ColumnSumsHaveTheBitsOfAProgramsForAnyNumberOfThreads) {
  const test::ThreadScope scope;
  const PointwiseProgram sums{1, {{PointwiseFn::column_sum, 0}}, {1}};
  for (const int threads : {1, 2, 3, 5})
    for (const int64_t rows : {20, 64, 200, 700}) {
      set_num_threads(threads);
      const BiasGradient gradient{rows, 40, 65, DType::f32};
      gradient.run();
      const Tensor want = full({1, 65}, -7);
      const MatrixView in[] = {matrix(gradient.dh)};
      const MatrixView out[] = {matrix(want)};
      cpu_backend().make_program(sums)->run(rows, 65, in, out);
      EXPECT_EQ(gradient.db.to_vector(), want.to_vector())
          << rows << " rows, " << threads << " threads";
    }
}

TEST(RowChain, NoRowsHaveColumnSumsOfZero) {
  const BiasGradient none{
      0, 4, 5, DType::f32, zeros({0, 4}), randn({5, 4}), randn({4, 5}), zeros({0, 5})};
  none.run();
  EXPECT_EQ(none.db.to_vector(), std::vector<double>(5, 0));
}

TEST(RowChain, ReductionsThatItCannotDoAreNamed) {
  const auto with = [](PointwiseProgram program) {
    RowChainSpec spec;
    spec.stages.push_back({{zeros({3, 4})}, std::move(program), {}});
    return error_of([&] { cpu_backend().make_row_chain(spec); });
  };
  EXPECT_EQ(with({1, {{PointwiseFn::row_sum, 0}, {PointwiseFn::sub, 0, 1}}, {2}}),
            "[row chain] expected a program that needs no whole rows, got v1 = row_sum(v0); "
            "v2 = sub(v0, v1); store v2");
  EXPECT_EQ(with({1, {{PointwiseFn::column_sum, 0}}, {1}}),
            "[row chain] expected column sums among the stores, got v1 = column_sum(v0); store v1");
}

}  // namespace epilogue::testing::reducing_programs_test
