// SPDX-License-Identifier: Apache-2.0
// Products of a few queries against double: every float type, odd sizes, rows apart.
#include "backend/cpu/simd/few_queries.h"

#include "backend/simd/simd_testing.h"

namespace epilogue::simd::few_queries_test {

// Keys or values whose last row ends its memory, and what they are when read as f32.
struct Rows {
  Rows(FloatType type, int64_t rows, int64_t columns, int64_t gap, uint32_t seed)
      : values(static_cast<size_t>(rows * columns)),
        memory((static_cast<size_t>((rows - 1) * (columns + gap) + columns)) * size_of(type)),
        view{memory.data(), columns + gap, rows, columns} {
    const std::vector<float> x = uniform(values.size(), -1, 1, seed);
    for (int64_t r = 0; r < rows; ++r) {
      const auto from = static_cast<size_t>(r * columns);
      const auto at = static_cast<size_t>(r * view.stride) * size_of(type);
      const auto n = static_cast<size_t>(columns);
      from_f32(type, x.data() + from, memory.data() + at, n);
      to_f32(type, memory.data() + at, values.data() + from, n);
    }
  }
  double at(int64_t row, int64_t column) const {
    return values[static_cast<size_t>(row * view.columns + column)];
  }

  std::vector<float> values;
  std::vector<char> memory;
  KeyRows view;
};

int64_t padded(int64_t columns) {
  return (columns + kFewQueriesColumns - 1) / kFewQueriesColumns * kFewQueriesColumns;
}

// Of sums of that many products of numbers in [-1, 1].
double tolerance(int64_t terms) { return 1e-6 * (1 + std::sqrt(static_cast<double>(terms))); }

void expect_scores(FloatType type, int64_t queries, const Rows& k) {
  const int64_t columns = k.view.columns;
  const int64_t stride = padded(columns);
  std::vector<float> q = uniform(static_cast<size_t>(queries * stride), -1, 1, 3);
  for (int64_t i = 0; i < queries; ++i)
    std::fill_n(q.begin() + i * stride + columns, stride - columns, 0.0F);
  Guarded<float> s(static_cast<size_t>(queries * k.view.rows), 1);
  few_queries_kernels().scores[static_cast<size_t>(type)]({q.data(), stride}, queries, k.view,
                                                          {s.data(), k.view.rows});
  s.expect_guards_intact();
  for (int64_t i = 0; i < queries; ++i)
    for (int64_t j = 0; j < k.view.rows; ++j) {
      double want = 0;
      for (int64_t c = 0; c < columns; ++c)
        want += static_cast<double>(q[static_cast<size_t>(i * stride + c)]) * k.at(j, c);
      ASSERT_NEAR(s[static_cast<size_t>(i * k.view.rows + j)], want, tolerance(columns))
          << "query " << i << " of " << queries << ", key " << j << " of " << k.view.rows << ", "
          << columns << " columns";
    }
}

void expect_sums(FloatType type, int64_t queries, const Rows& v) {
  const int64_t rows = v.view.rows;
  const int64_t stride = padded(v.view.columns);
  std::vector<float> p = uniform(static_cast<size_t>(queries * rows), 0, 1, 4);
  Guarded<float> o(static_cast<size_t>(queries * stride), 1);
  std::fill_n(o.data(), o.size(), 0.5F);
  few_queries_kernels().add[static_cast<size_t>(type)]({p.data(), rows}, queries, v.view,
                                                       {o.data(), stride});
  o.expect_guards_intact();
  for (int64_t i = 0; i < queries; ++i)
    for (int64_t c = 0; c < v.view.columns; ++c) {
      double want = 0.5;
      for (int64_t j = 0; j < rows; ++j)
        want += static_cast<double>(p[static_cast<size_t>(i * rows + j)]) * v.at(j, c);
      ASSERT_NEAR(o[static_cast<size_t>(i * stride + c)], want, tolerance(rows))
          << "query " << i << " of " << queries << ", column " << c << " of " << v.view.columns
          << ", " << rows << " rows";
    }
}

TEST(FewQueries, AreExactAtEveryLevel) {
  for_each_isa([](Isa) {
    for (const FloatType type : {FloatType::f32, FloatType::bf16, FloatType::f16})
      for (const int64_t rows : {1, 2, 3, 4, 5, 7, 31, 33, 64, 129})
        for (const int64_t columns : {1, 3, 4, 7, 8, 15, 16, 17, 31, 33, 64, 65, 80, 130})
          for (const int64_t gap : {0, 5}) {
            const Rows keys(type, rows, columns, gap, 1);
            for (const int64_t queries : {1, 2, 3, 4, 5, 7, 9}) {
              expect_scores(type, queries, keys);
              expect_sums(type, queries, keys);
            }
          }
  });
}

TEST(FewQueries, GiveEachQueryTheBitsThatItHasAlone) {
  for_each_isa([](Isa) {
    const Rows keys(FloatType::f32, 70, 50, 3, 1);
    const int64_t stride = padded(50);
    std::vector<float> q = uniform(static_cast<size_t>(9 * stride), -1, 1, 3);
    for (int64_t i = 0; i < 9; ++i) std::fill_n(q.begin() + i * stride + 50, stride - 50, 0.0F);
    std::vector<float> together(9 * 70);
    std::vector<float> alone(9 * 70);
    const auto scores = few_queries_kernels().scores[0];
    scores({q.data(), stride}, 9, keys.view, {together.data(), 70});
    for (int64_t i = 0; i < 9; ++i)
      scores({q.data() + i * stride, stride}, 1, keys.view, {alone.data() + i * 70, 70});
    EXPECT_EQ(together, alone);
    std::vector<float> sums(static_cast<size_t>(9 * stride));
    std::vector<float> each(static_cast<size_t>(9 * stride));
    const auto add = few_queries_kernels().add[0];
    add({together.data(), 70}, 9, keys.view, {sums.data(), stride});
    for (int64_t i = 0; i < 9; ++i)
      add({together.data() + i * 70, 70}, 1, keys.view, {each.data() + i * stride, stride});
    EXPECT_EQ(sums, each);
  });
}

}  // namespace epilogue::simd::few_queries_test
