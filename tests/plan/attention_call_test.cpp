// SPDX-License-Identifier: Apache-2.0
// attention() beside the ops that it stands for, in f64.
#include <cmath>

#include "base/cpu_features.h"
#include "epilogue/fused.h"
#include "epilogue/runtime.h"
#include "plan_testing.h"
#include "support/test.h"

namespace epilogue::testing::attention_call_test {

constexpr float kInf = std::numeric_limits<float>::infinity();

struct Sizes {
  int64_t batch, heads, shared, queries, keys, depth, values;
};

// k or v of `shared` heads as one of `heads`.
Tensor repeated(const Tensor& x, int64_t heads) {
  const int64_t each = heads / x.size(1);
  const Tensor wide = expand(unsqueeze(x, 2), {x.size(0), x.size(1), each, x.size(2), x.size(3)});
  return reshape(wide, {x.size(0), heads, x.size(2), x.size(3)});
}

Tensor limits(int64_t queries, int64_t keys) {
  const Tensor mask = zeros({queries, keys});
  for (int64_t i = 0; i + 1 < keys && i < queries; ++i)
    fill_(slice(slice(mask, 0, i, i + 1), 1, i + 1, keys), -kInf);
  return mask;
}

// In the operands' dtype; `added`: the mask as numbers.
Tensor by_ops(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& added) {
  Tensor scores = matmul(q, transpose(repeated(k, q.size(1)), -2, -1)) * (1 / std::sqrt(q.size(3)));
  if (added.defined()) scores = scores + to(added, q.dtype());
  return matmul(softmax(scores, -1), repeated(v, q.size(1)));
}

class AttentionCall : public ::testing::Test {
 protected:
  void TearDown() override { set_active_isa(before_); }
  Isa before_ = active_isa();
  NoGrad no_grad_;
};

TEST_F(AttentionCall, IsExactAtEveryLevelWithMasksAndGroups) {
  for (const Isa isa : available_isas()) {
    set_active_isa(isa);
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
      for (const Sizes& s : {Sizes{2, 4, 2, 33, 129, 40, 24}, Sizes{1, 2, 2, 200, 200, 64, 64},
                             Sizes{1, 3, 1, 70, 1, 5, 7}, Sizes{2, 2, 1, 300, 131, 96, 33},
                             // Few queries: keys in place, in one piece or several.
                             Sizes{1, 2, 2, 1, 1, 64, 64}, Sizes{2, 6, 2, 1, 530, 64, 64},
                             Sizes{1, 9, 1, 1, 1100, 40, 24}, Sizes{1, 4, 2, 3, 257, 17, 5},
                             Sizes{2, 2, 2, 8, 600, 130, 96}, Sizes{1, 71, 1, 1, 300, 64, 64}}) {
        manual_seed(2);
        const Tensor q = randn({s.batch, s.heads, s.queries, s.depth}, dtype);
        const Tensor k = randn({s.batch, s.shared, s.keys, s.depth}, dtype);
        const Tensor v = randn({s.batch, s.shared, s.keys, s.values}, dtype);
        const auto expect = [&](const Tensor& mask, const Tensor& added, bool causal) {
          const auto f64 = [](const Tensor& t) { return to(t, DType::f64); };
          const Tensor got = attention(q, k, v, mask, {.causal = causal});
          const Tensor eager = by_ops(q, k, v, added);
          const std::vector<double> exact = by_ops(f64(q), f64(k), f64(v), added).to_vector();
          const std::string what = std::string(isa_name(isa)) + " " + to_string(q) + to_string(k) +
                                   (causal ? " causal" : "");
          if (dtype != DType::f32 || s.queries > 8)
            return expect_no_less_accurate(got, eager, exact, what);
          // The order of sums decides: eager products of few rows have one of their own.
          expect_same_kind(got, eager, what);
          EXPECT_LE(relative_l2(got, exact), 1.25 * relative_l2(eager, exact) + 1e-8) << what;
        };
        expect({}, {}, false);
        expect({}, limits(s.queries, s.keys), true);
        const Tensor numbers = randn({s.batch, 1, s.queries, s.keys});
        expect(numbers, numbers, false);
        const Tensor seen = zeros({s.queries, s.keys}, DType::boolean);
        const Tensor added = zeros({s.queries, s.keys});
        for (int64_t i = 0; i < s.queries; ++i)
          for (int64_t j = 0; j < s.keys; ++j) {
            const bool is_seen = j == 0 || (i * 7 + j) % 3 != 0 || j / 128 < i / 128;
            seen.data_as<bool>()[i * s.keys + j] = is_seen;
            added.data_as<float>()[i * s.keys + j] = is_seen ? 0 : -kInf;
          }
        expect(seen, added, false);
      }
  }
}

TEST_F(AttentionCall, AQueryThatSeesNothingGetsZero) {
  for (const Isa isa : available_isas()) {
    set_active_isa(isa);
    for (const DType dtype : {DType::f32, DType::bf16})
      for (const int64_t keys : {100, 700})
        for (const int64_t queries : {80, 7}) {
          const Tensor q = randn({1, 2, queries, 32}, dtype);
          const Tensor k = randn({1, 2, keys, 32}, dtype);
          const Tensor seen = zeros({queries, keys}, DType::boolean);
          seen.data_as<bool>()[5 * keys + 3] = true;
          const std::vector<double> got = attention(q, k, k, seen).to_vector();
          const std::vector<double> row = slice(slice(k, 1, 0, 1), 2, 3, 4).to_vector();
          for (size_t i = 0; i < static_cast<size_t>(queries) * 32; ++i) {
            if (i / 32 == 5) {
              EXPECT_NEAR(got[i], row[i % 32], 0.01 * std::abs(row[i % 32])) << isa_name(isa);
            } else {
              ASSERT_EQ(got[i], 0) << isa_name(isa) << " at " << i << " of " << queries;
            }
          }
        }
  }
}

TEST_F(AttentionCall, ReadsFewQueriesKeysWhereverTheyLie) {
  const Tensor q = randn({1, 4, 2, 40});
  const Tensor k = randn({1, 2, 600, 40});
  const Tensor v = randn({1, 2, 600, 24});
  const std::vector<double> want = attention(q, k, v).to_vector();
  // In rows of all heads, in a buffer of more rows, with columns apart.
  const auto as_rows = [](const Tensor& x) {
    return transpose(contiguous(transpose(x, 1, 2)), 1, 2);
  };
  const auto in_buffer = [](const Tensor& x) {
    const Tensor buffer = zeros({1, 2, 1000, x.size(3)});
    fill_(buffer, std::numeric_limits<double>::quiet_NaN());
    const Tensor rows = slice(buffer, 2, 7, 607);
    copy_(rows, x);
    return rows;
  };
  const auto apart = [](const Tensor& x) {
    return transpose(contiguous(transpose(x, 2, 3)), 2, 3);
  };
  EXPECT_EQ(attention(as_rows(q), as_rows(k), as_rows(v)).to_vector(), want);
  EXPECT_EQ(attention(q, in_buffer(k), in_buffer(v)).to_vector(), want);
  EXPECT_EQ(attention(apart(q), apart(k), apart(v)).to_vector(), want);
  EXPECT_EQ(attention(q, k, apart(v)).to_vector(), want);
}

TEST_F(AttentionCall, WritesWhereItIsAsked) {
  const Tensor q = randn({2, 3, 40, 32}, DType::bf16);
  const Tensor rows = zeros({2, 40, 3, 32}, DType::bf16);
  attention_into(q, q, q, {}, {.scale = 0.5}, transpose(rows, 1, 2));
  EXPECT_EQ(contiguous(transpose(rows, 1, 2)).to_vector(),
            attention(q, q, q, {}, {.scale = 0.5}).to_vector());
}

TEST_F(AttentionCall, SaysWhatDoesNotFit) {
  const Tensor q = randn({2, 4, 8, 16});
  const Tensor three = randn({2, 3, 8, 16});
  EXPECT_HAS(error_of([&] { attention(slice(q, 0, 0, 1), q, q); }), "k of q's batch and columns");
  EXPECT_HAS(error_of([&] { attention(q, three, three); }), "heads that divide q's 4");
  EXPECT_HAS(error_of([&] { attention(q, q, three); }), "v of k's batch, heads and rows");
  EXPECT_HAS(error_of([&] { attention(q, q, to(q, DType::bf16)); }), "v of q's dtype f32");
  EXPECT_HAS(error_of([&] { attention(q, q, q, randn({3, 8})); }), "a mask that broadcasts");
  EXPECT_HAS(error_of([&] { attention(q, q, q, {}, {.scale = kInf}); }), "a finite scale");
  EXPECT_HAS(error_of([&] { attention_into(q, q, q, {}, {}, q); }),
             "an out apart from the operands");
  EXPECT_HAS(error_of([&] { attention_into(q, q, q, {}, {}, three); }),
             "an out of q's dtype and sizes");
}

}  // namespace epilogue::testing::attention_call_test
