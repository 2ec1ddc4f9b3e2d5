// SPDX-License-Identifier: Apache-2.0
// The GEMM against double sums: shapes, strides, types, bias kinds, scales, threads, every ISA.
#include "backend/cpu/simd/gemm/gemm.h"

#include "backend/simd/gemm/gemm_testing.h"
#include "backend/simd/simd_testing.h"
#include "base/thread_pool.h"
#include "support/test.h"

namespace epilogue::simd::gemm_test {

enum class Layout { row_major, column_major, strided };

Matrix make(int64_t rows, int64_t cols, FloatType type, Layout layout, uint32_t seed) {
  switch (layout) {
    case Layout::row_major: return {rows, cols, type, cols + 3, 1, seed};
    case Layout::column_major: return {rows, cols, type, 1, rows + 1, seed};
    case Layout::strided: break;
  }
  return {rows, cols, type, 2 * cols + 1, 2, seed};
}

struct Case {
  int64_t m;
  int64_t n;
  int64_t k;
  Layout a = Layout::row_major;
  Layout b = Layout::row_major;
  FloatType a_type = FloatType::f32;
  FloatType b_type = FloatType::f32;
  FloatType c_type = FloatType::f32;
  char bias = '0';  // 0 none, r row vector, c column vector, s scalar, m matrix
  FloatType bias_type = FloatType::f32;
  float alpha = 1.0F;
  float beta = 1.0F;
};

std::string describe(const Case& c) {
  const auto number = [](auto v) { return std::to_string(v); };
  return "m " + number(c.m) + " n " + number(c.n) + " k " + number(c.k) + " layouts " +
         number(static_cast<int>(c.a)) + number(static_cast<int>(c.b)) + " types " +
         number(static_cast<int>(c.a_type)) + number(static_cast<int>(c.b_type)) +
         number(static_cast<int>(c.c_type)) + " bias " + c.bias +
         number(static_cast<int>(c.bias_type)) + " alpha " + number(c.alpha) + " beta " +
         number(c.beta);
}

Matrix make_bias(const Case& c, uint32_t seed) {
  Matrix bias(c.m, c.n, c.bias_type, c.n + 2, 1, seed);
  if (c.bias == 'r' || c.bias == 's') bias.row_stride = 0;
  if (c.bias == 'c') bias.row_stride = 1;
  if (c.bias == 'c' || c.bias == 's') bias.col_stride = 0;
  return bias;
}

// A row's products and their magnitudes, added to a row of sums.
EPI_OPTIMIZED void add_products(double a, const double* b, int64_t n, double* sums,
                                double* magnitudes) {
  for (int64_t j = 0; j < n; ++j) {
    const double product = a * b[j];
    sums[j] += product;
    magnitudes[j] += product < 0 ? -product : product;
  }
}

// |error| <= what f32 sums of k terms in any order may lose, plus one rounding to C's type.
void expect_close(const Case& c, const Matrix& a, const Matrix& b, const Matrix& bias,
                  const std::vector<float>& got) {
  double worst = 0.0;
  int64_t worst_i = 0;
  int64_t worst_j = 0;
  const auto width = static_cast<size_t>(c.n);
  std::vector<std::vector<double>> b_rows;
  for (int64_t k = 0; k < c.k; ++k) b_rows.push_back(b.row(k));
  for (int64_t i = 0; i < c.m; ++i) {
    const std::vector<double> a_row = a.row(i);
    std::vector<double> sums(width);
    std::vector<double> magnitudes(width);
    for (size_t k = 0; k < a_row.size(); ++k)
      add_products(a_row[k], b_rows[k].data(), c.n, sums.data(), magnitudes.data());
    for (int64_t j = 0; j < c.n; ++j) {
      double want = c.alpha * sums[static_cast<size_t>(j)];
      double magnitude = std::abs(c.alpha) * magnitudes[static_cast<size_t>(j)];
      if (c.bias != '0' && c.beta != 0.0F) {
        want += c.beta * bias.at(i, j);
        magnitude += std::abs(c.beta * bias.at(i, j));
      }
      const double terms = 4.0 + static_cast<double>(c.k);
      const double bound = terms * 0x1p-24 * magnitude +
                           unit_roundoff(c.c_type) * (std::abs(want) + magnitude * 0x1p-10) + 1e-7;
      const double error = std::abs(got[static_cast<size_t>(i * c.n + j)] - want) / bound;
      if (!(error <= worst)) {
        worst = error;
        worst_i = i;
        worst_j = j;
      }
    }
  }
  EXPECT_LE(worst, 1.0) << describe(c) << ": worst element (" << worst_i << ", " << worst_j
                        << ") at " << worst << " times the bound";
}

template <class T>
std::vector<float> run_into(const Case& c, GemmCall call) {
  const int64_t stride = c.n + 5;
  const auto size = static_cast<size_t>(c.m == 0 ? 0 : (c.m - 1) * stride + c.n);
  Guarded<T> out(size, 1);
  call.c = out.data();
  call.c_type = c.c_type;
  call.c_row_stride = stride;
  const std::vector<T> before(out.data(), out.data() + size);
  gemm(call);
  out.expect_guards_intact();
  std::vector<float> dense(static_cast<size_t>(c.m * c.n));
  for (int64_t i = 0; i < c.m; ++i) {
    to_f32(c.c_type, out.data() + i * stride, dense.data() + i * c.n, static_cast<size_t>(c.n));
    if (i + 1 == c.m) break;
    const size_t gap = static_cast<size_t>(i * stride + c.n);
    EXPECT_EQ(std::memcmp(out.data() + gap, before.data() + gap, 5 * sizeof(T)), 0)
        << describe(c) << ": wrote between rows at row " << i;
  }
  return dense;
}

GemmCall call_of(const Case& c, const Matrix& a, const Matrix& b, const Matrix& bias) {
  GemmCall call = {.m = c.m, .n = c.n, .k = c.k, .a = a.operand(), .b = b.operand()};
  if (c.bias != '0') call.bias = bias.operand();
  call.alpha = c.alpha;
  call.beta = c.beta;
  return call;
}

std::vector<float> check(const Case& c) {
  const Matrix a = make(c.m, c.k, c.a_type, c.a, 1);
  const Matrix b = make(c.k, c.n, c.b_type, c.b, 2);
  const Matrix bias = make_bias(c, 3);
  const GemmCall call = call_of(c, a, b, bias);
  const std::vector<float> got =
      c.c_type == FloatType::f32 ? run_into<float>(c, call) : run_into<uint16_t>(c, call);
  expect_close(c, a, b, bias, got);
  return got;
}

class Threads {
 public:
  explicit Threads(int n) : before_(num_threads()) { set_num_threads(n); }
  ~Threads() { set_num_threads(before_); }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

 private:
  int before_;
};

constexpr FloatType kAllTypes[] = {FloatType::f32, FloatType::bf16, FloatType::f16};
constexpr Layout kLayouts[] = {Layout::row_major, Layout::column_major, Layout::strided};

TEST(Gemm, ShapesInEveryLayout) {
  for_each_isa([](Isa) {
    for (Layout a : kLayouts)
      for (Layout b : kLayouts)
        for (int64_t m : {0, 1, 3, 8, 13})
          for (int64_t n : {0, 1, 3, 17, 65, 131})
            for (int64_t k : {0, 1, 7, 33}) check({m, n, k, a, b});
  });
}

TEST(Gemm, TypesMix) {
  for_each_isa([](Isa) {
    for (FloatType a : kAllTypes)
      for (FloatType b : kAllTypes)
        for (FloatType c : kAllTypes)
          for (Layout layout : kLayouts)
            for (int64_t m : {3, 20}) {
              Case x = {m, 70, 37, layout, layout, a, b, c};
              check(x);
              x.bias = 'r';
              x.bias_type = c;
              check(x);
            }
  });
}

TEST(Gemm, BiasKindsAndScales) {
  for_each_isa([](Isa) {
    for (char bias : {'0', 'r', 'c', 's', 'm'})
      for (FloatType type : kAllTypes)
        for (float alpha : {1.0F, -0.5F})
          for (float beta : {1.0F, 0.25F, 0.0F})
            for (int64_t m : {2, 19})
              for (int64_t k : {0, 11}) {
                Case c = {m, 133, k};
                c.bias = bias;
                c.bias_type = type;
                c.alpha = alpha;
                c.beta = beta;
                check(c);
              }
  });
}

// Beyond every block size: several chunks of k, rows and columns, partial sums of 16-bit C.
TEST(Gemm, ManyBlocks) {
  for_each_isa([](Isa) {
    for (int threads : {1, 2}) {
      const Threads limit(threads);
      for (FloatType type : {FloatType::f32, FloatType::bf16}) {
        Case c = {157, 203, 1100, Layout::row_major, Layout::column_major, type, type, type};
        c.bias = 'r';
        c.bias_type = type;
        check(c);
        c.a = Layout::column_major;
        c.b = Layout::row_major;
        c.bias = 'm';
        c.beta = 0.5F;
        check(c);
      }
      check({2, 1500, 300, Layout::row_major, Layout::row_major});
      check({7, 1500, 300, Layout::row_major, Layout::column_major});
    }
  });
}

TEST(Gemm, ManyColumnAndRowChunks) {
  const FloatType bf16 = FloatType::bf16;
  check({9, 3300, 1030});
  check({9, 3300, 1030, Layout::row_major, Layout::column_major, bf16, bf16, bf16});
  check({4200, 9, 1030, Layout::row_major, Layout::column_major, bf16, bf16, bf16});
  // Several chunks of pairs, an odd k; both layouts of either operand.
  for (Layout a : kLayouts)
    for (Layout b : kLayouts) check({110, 70, 4129, a, b, bf16, bf16, bf16});
}

// Large enough for tiles, where the level has them: every layout, kind of bias and type of C; rows
// of one block and of several; threads over columns and over rows; odd k and n.
TEST(Gemm, TiledOperands) {
  const FloatType bf16 = FloatType::bf16;
  for (const int threads : {1, 3}) {
    const Threads limit(threads);
    for (const int64_t m : {33, 70, 530})
      for (Layout a : kLayouts)
        for (Layout b : kLayouts) check({m, 331, 411, a, b, bf16, bf16, bf16});
    for (const char bias : {'r', 'c', 's', 'm'})
      for (const FloatType type : {FloatType::f32, bf16})
        for (const float alpha : {1.0F, -0.5F})
          for (const float beta : {1.0F, 0.25F}) {
            Case c = {50, 300, 450, Layout::row_major, Layout::column_major, bf16, bf16, type};
            c.bias = bias;
            c.bias_type = type;
            c.alpha = alpha;
            c.beta = beta;
            check(c);
          }
  }
}

TEST(Gemm, AccumulatesIntoC) {
  for_each_isa([](Isa) {
    for (int64_t k : {40, 2500}) {
      const Matrix a = make(21, k, FloatType::f32, Layout::row_major, 1);
      const Matrix b = make(k, 75, FloatType::f32, Layout::row_major, 2);
      Matrix c(21, 75, FloatType::f32, 75, 1, 3);
      const Matrix before = c;
      GemmCall call = {21, 75, k, a.operand(), b.operand()};
      call.bias = c.operand();
      call.c = c.bytes.data();
      call.c_row_stride = 75;
      gemm(call);
      for (int64_t i = 0; i < 21; ++i)
        for (int64_t j = 0; j < 75; j += 7) {
          double want = before.at(i, j);
          for (int64_t kk = 0; kk < k; ++kk) want += a.at(i, kk) * b.at(kk, j);
          ASSERT_NEAR(c.at(i, j), want, 1e-5 * std::sqrt(static_cast<double>(k)) * 4) << i << j;
        }
    }
  });
}

// |got - a b| / |a b|.
double relative_error(const Matrix& a, const Matrix& b, const std::vector<float>& got) {
  double squares = 0.0;
  double norm = 0.0;
  for (int64_t i = 0; i < a.rows; ++i)
    for (int64_t j = 0; j < b.cols; ++j) {
      double want = 0.0;
      for (int64_t k = 0; k < a.cols; ++k) want += a.at(i, k) * b.at(k, j);
      squares += std::pow(got[static_cast<size_t>(i * b.cols + j)] - want, 2);
      norm += want * want;
    }
  return std::sqrt(squares / norm);
}

// One chain of float sums over k has an error that grows as k does; products are cut into shorter
// sums, which libraries do too: gradients by these products are compared with theirs.
TEST(Gemm, SumsAreShorterThanK) {
  for_each_isa([](Isa isa) {
    for (const int64_t m : {1, 2, 8, 9, 40}) {
      const Case c{m, 70, 1003};
      const Matrix a = make(c.m, c.k, c.a_type, c.a, 1);
      const Matrix b = make(c.k, c.n, c.b_type, c.b, 2);
      std::vector<float> chains;
      for (int64_t i = 0; i < c.m; ++i)
        for (int64_t j = 0; j < c.n; ++j) {
          float chain = 0.0F;
          for (int64_t k = 0; k < c.k; ++k)
            chain = static_cast<float>(static_cast<double>(chain) + a.at(i, k) * b.at(k, j));
          chains.push_back(chain);
        }
      EXPECT_LE(relative_error(a, b, check(c)), 0.75 * relative_error(a, b, chains))
          << "level " << static_cast<int>(isa) << ", " << m << " rows";
    }
  });
}

// Few rows read B where it lies, and their sums are cut as well: the error does not grow with k.
TEST(Gemm, LongSumsOfFewRowsRoundAsLibrariesDo) {
  for_each_isa([](Isa isa) {
    for (const Layout layout : {Layout::row_major, Layout::column_major})
      for (const int64_t m : {1, 4, 8}) {
        Case c{m, 37, 8203};
        c.b = layout;
        const Matrix a = make(c.m, c.k, c.a_type, c.a, 1);
        const Matrix b = make(c.k, c.n, c.b_type, c.b, 2);
        // MKL's is 2.7e-7 on Zen 4. Without FMA, as in the fallback, products are rounded too.
        EXPECT_LE(relative_error(a, b, check(c)), 3.0e-7)
            << "level " << static_cast<int>(isa) << ", " << m << " rows, layout "
            << static_cast<int>(layout);
      }
  });
}

TEST(Gemm, SameBitsFromRunToRun) {
  for_each_isa([](Isa) {
    for (int threads : {1, 2}) {
      const Threads limit(threads);
      const Case c = {120, 130, 1100, Layout::row_major, Layout::column_major};
      const std::vector<float> first = check(c);
      EXPECT_EQ(first, check(c));
    }
  });
}

TEST(Gemm, NanAndInfinityReachExactlyTheirRowsAndColumns) {
  for_each_isa([](Isa) {
    for (int64_t m : {4, 30}) {
      const int64_t n = 70;
      const int64_t k = 20;
      Matrix a(m, k, FloatType::f32, k, 1, 1);
      const Matrix b(k, n, FloatType::f32, n, 1, 2);
      const float nan = std::numeric_limits<float>::quiet_NaN();
      std::memcpy(a.bytes.data() + (1 * k + 7) * 4, &nan, 4);
      const float infinity = std::numeric_limits<float>::infinity();
      std::memcpy(a.bytes.data() + (2 * k + 3) * 4, &infinity, 4);
      std::vector<float> out(static_cast<size_t>(m * n));
      GemmCall call = {m, n, k, a.operand(), b.operand()};
      call.c = out.data();
      call.c_row_stride = n;
      gemm(call);
      for (int64_t i = 0; i < m; ++i)
        for (int64_t j = 0; j < n; ++j) {
          const float v = out[static_cast<size_t>(i * n + j)];
          if (i == 1) {
            EXPECT_TRUE(std::isnan(v)) << i << " " << j;
          } else if (i == 2) {
            EXPECT_TRUE(std::isinf(v)) << i << " " << j;
          } else {
            EXPECT_TRUE(std::isfinite(v)) << i << " " << j;
          }
        }
    }
  });
}

TEST(Gemm, BetaZeroDoesNotReadTheBias) {
  for_each_isa([](Isa) {
    const Matrix a = make(10, 5, FloatType::f32, Layout::row_major, 1);
    const Matrix b = make(5, 9, FloatType::f32, Layout::row_major, 2);
    const std::vector<float> poison(9, std::numeric_limits<float>::quiet_NaN());
    std::vector<float> out(90);
    GemmCall call = {10, 9, 5, a.operand(), b.operand()};
    call.bias = {poison.data(), FloatType::f32, 0, 1};
    call.beta = 0.0F;
    call.c = out.data();
    call.c_row_stride = 9;
    gemm(call);
    for (float v : out) EXPECT_TRUE(std::isfinite(v));
  });
}

// bf16 C of several chunks of k is rounded once: it equals the rounded f32 result.
TEST(Gemm, SixteenBitResultsAreRoundedOnce) {
  for_each_isa([](Isa) {
    const int64_t m = 33;
    const int64_t n = 40;
    const int64_t k = 3000;
    const Matrix a = make(m, k, FloatType::bf16, Layout::row_major, 1);
    const Matrix b = make(k, n, FloatType::bf16, Layout::column_major, 2);
    std::vector<float> wide(static_cast<size_t>(m * n));
    std::vector<uint16_t> narrow(wide.size());
    std::vector<uint16_t> expected(wide.size());
    GemmCall call = {m, n, k, a.operand(), b.operand()};
    call.c = wide.data();
    call.c_row_stride = n;
    gemm(call);
    call.c = narrow.data();
    call.c_type = FloatType::bf16;
    gemm(call);
    from_f32(FloatType::bf16, wide.data(), expected.data(), wide.size());
    EXPECT_EQ(narrow, expected);
  });
}

}  // namespace epilogue::simd::gemm_test
