// SPDX-License-Identifier: Apache-2.0
// Row-major products with any strides as cuBLASLt's column-major ones. Each case computes the
// product both ways on the host.
#include "backend/cuda/products/gemm.h"
#include "support/test.h"

namespace epilogue::cuda::gemm_layout_test {

constexpr int64_t kM = 3;
constexpr int64_t kN = 4;
constexpr int64_t kK = 5;

struct Strides {
  int64_t row;
  int64_t col;
};

double element(const std::vector<double>& data, int64_t i, int64_t j, Strides s) {
  return data.at(static_cast<size_t>(i * s.row + j * s.col));
}

// As cuBLASLt reads a column-major matrix of leading dimension ld.
double column_major(const std::vector<double>& data, int64_t i, int64_t j, int64_t ld,
                    bool transposed) {
  return transposed ? data.at(static_cast<size_t>(j + i * ld))
                    : data.at(static_cast<size_t>(i + j * ld));
}

void expect_same_product(Strides a, Strides b) {
  std::vector<double> a_data(200);
  std::vector<double> b_data(200);
  for (size_t i = 0; i < a_data.size(); ++i) {
    a_data[i] = static_cast<double>(i % 17) - 8;
    b_data[i] = static_cast<double>(i % 13) - 6;
  }
  GemmCall call = {.m = kM,
                   .n = kN,
                   .k = kK,
                   .a = {a_data.data(), a.row, a.col},
                   .b = {b_data.data(), b.row, b.col}};
  const auto layout = gemm_layout(call).value();
  for (int64_t i = 0; i < kM; ++i)
    for (int64_t j = 0; j < kN; ++j) {
      double want = 0;
      double got = 0;  // element (j, i) of the column-major result
      for (int64_t p = 0; p < kK; ++p) {
        want += element(a_data, i, p, a) * element(b_data, p, j, b);
        got += column_major(b_data, j, p, layout.first_ld, layout.first_transposed) *
               column_major(a_data, p, i, layout.second_ld, layout.second_transposed);
      }
      EXPECT_EQ(got, want);
    }
}

TEST(GemmLayout, ContiguousAndTransposedOperands) {
  const Strides a_rows{kK, 1};
  const Strides a_columns{1, kM};
  const Strides b_rows{kN, 1};
  const Strides b_columns{1, kK};  // nn.Linear's weight, transposed
  for (const Strides a : {a_rows, a_columns})
    for (const Strides b : {b_rows, b_columns}) expect_same_product(a, b);
}

TEST(GemmLayout, RowsWithGaps) {
  expect_same_product({kK + 3, 1}, {kN + 2, 1});
  expect_same_product({1, kM + 1}, {1, kK + 4});
}

std::optional<GemmLayout> layout_of(GemmMatrix a, GemmMatrix b, int64_t m, int64_t n, int64_t k) {
  return gemm_layout({.m = m, .n = n, .k = k, .a = a, .b = b});
}

TEST(GemmLayout, OperandsWithoutAUnitStrideMustBeCopied) {
  EXPECT_FALSE(layout_of({nullptr, 10, 2}, {nullptr, kN, 1}, kM, kN, kK));
  EXPECT_FALSE(layout_of({nullptr, 0, 1}, {nullptr, kN, 1}, kM, kN, kK));  // expanded rows
}

TEST(GemmLayout, LeadingDimensionsAreNeverTooSmall) {
  // One row or one column: its stride says nothing.
  const auto row = layout_of({nullptr, 1, 1}, {nullptr, kN, 1}, 1, kN, kK).value();
  EXPECT_GE(row.second_ld, kK);
  const auto column = layout_of({nullptr, kK, 1}, {nullptr, 1, 1}, kM, 1, kK).value();
  EXPECT_GE(column.first_ld, column.first_transposed ? kK : 1);
}

}  // namespace epilogue::cuda::gemm_layout_test
