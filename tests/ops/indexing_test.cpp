// SPDX-License-Identifier: Apache-2.0
// embedding, gather, index_select and their gradients, masked_fill, tril and triu beyond what the
// op table checks: range errors, duplicates on any thread, larger shapes.
#include "epilogue/autograd.h"
#include "epilogue/ops.h"
#include "epilogue/runtime.h"
#include "errors/message_of.h"
#include "ops/ops.h"
#include "ops/run_op.h"
#include "ops/table_support.h"
#include "support/test.h"

namespace epilogue::test::indexing_test {

using Values = std::vector<double>;

Tensor indices(std::initializer_list<int64_t> values) { return from_values(values, DType::i64); }

TEST(Indexing, AnIndexOutOfRangeIsNamedWithTheSize) {
  const Tensor w = zeros({5, 3});
  EXPECT_ERROR(embedding(w, indices({0, 5})),
               "[aten::embedding] expected indices in [0, 5), got 5");
  EXPECT_ERROR(index_select(w, 1, indices({-1})),
               "[aten::index_select] expected indices in [0, 3), got -1");
  EXPECT_ERROR(gather(w, 0, from_values({{7, 0, 0}}, DType::i64)),
               "[aten::gather] expected indices in [0, 5), got 7");
  EXPECT_ERROR(index_add(w, 0, indices({9}), zeros({1, 3})),
               "[aten::index_add] expected indices in [0, 5), got 9");
  EXPECT_ERROR(scatter_add(w, 1, full({1, 1}, 3, DType::i64), zeros({1, 1})),
               "[aten::scatter_add] expected indices in [0, 3), got 3");
  // For f64 and i64 too, and by the reference.
  EXPECT_ERROR(embedding(zeros({5, 3}, DType::f64), indices({6})),
               "[aten::embedding] expected indices in [0, 5), got 6");
}

TEST(Indexing, Messages) {
  const Tensor w = zeros({5, 3});
  EXPECT_ERROR(embedding(w, ones({2})),
               "[aten::embedding] expected indices of dtype i64, got f32[2]");
  EXPECT_ERROR(embedding(zeros({5}), indices({0})),
               "[aten::embedding] expected a weight [rows, columns], got f32[5]");
  EXPECT_ERROR(index_select(w, 0, zeros({1, 1}, DType::i64)),
               "[aten::index_select] expected an index of at most 1 dimension, got i64[1, 1]");
  EXPECT_ERROR(gather(w, 0, indices({0})),
               "[aten::gather] expected an index of as many dimensions that is no larger than "
               "f32[5, 3], got i64[1]");
  EXPECT_ERROR(index_add(w, 0, indices({0}), zeros({2, 3})),
               "[aten::index_add] expected a source of sizes [1, 3], got f32[2, 3]");
  EXPECT_ERROR(masked_fill(w, w, 1),
               "[aten::masked_fill] expected a mask of booleans, got f32[5, 3]");
  EXPECT_ERROR(masked_fill(arange(3), gt(arange(3), 1), 0.5),
               "[aten::masked_fill] expected a whole number as the value of integers, got f64[]");
  EXPECT_ERROR(tril(zeros({3})), "[aten::tril] expected at least 2 dimensions, got f32[3]");
}

TEST(Embedding, ThePaddingRowGetsNoGradient) {
  Tensor w = view(arange(6, DType::f32), {3, 2});
  w.set_requires_grad(true);
  const Tensor y = embedding(w, from_values({{2, 1}, {2, 0}}, DType::i64), 2);
  EXPECT_EQ(y.sizes(), (Dims{2, 2, 2}));
  EXPECT_EQ(y.to_vector(), (Values{4, 5, 2, 3, 4, 5, 0, 1}));  // it is read as it is
  sum(y).backward();
  EXPECT_EQ(w.grad().to_vector(), (Values{1, 1, 1, 1, 0, 0}));
}

TEST(Embedding, RowsThatComeTwiceSumUpTheSameOnAnyThread) {
  manual_seed(5);
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Tensor grad_rows = randn({4000, 257}, dtype);
    const Tensor index = randint(0, 9, {4000});
    std::vector<Values> seen;
    for (const int threads : {1, 3, 4}) {
      const ThreadScope scope(threads);
      Tensor w = zeros({9, 257}, dtype);
      w.set_requires_grad(true);
      embedding(w, index).backward(grad_rows);
      seen.push_back(w.grad().to_vector());
      const Tensor zero = zeros({9, 257}, dtype);
      EXPECT_EQ(index_add(zero, 0, index, grad_rows).to_vector(), seen.back());
      const Tensor wide = expand(unsqueeze(index, 1), {4000, 257});
      EXPECT_EQ(scatter_add(zero, 0, wide, grad_rows).to_vector(), seen.back());
    }
    EXPECT_EQ(seen[0], seen[1]);
    EXPECT_EQ(seen[0], seen[2]);
  }
}

TEST(Indexing, LargerOnesAreTheReferences) {
  const Tensor x = numbers({300, 401});
  const Tensor index = randint(0, 300, {777});
  const Tensor wide = randint(0, 401, {300, 130});
  const ThreadScope scope(4);
  const auto expect_reference = [](const OpDef& op, std::vector<Tensor> in,
                                   std::vector<Attr> attrs) {
    const Outputs out = run_op(op, in, attrs);
    const Tensor expected = reference_results(op, in, attrs, out.span())[0];
    EXPECT_EQ(difference(out[0], expected, tolerance_for(op, in, expected)), "")
        << op.name << " " << describe(in, attrs);
  };
  for (const Tensor& t :
       {x, transpose(numbers({401, 300}), 0, 1), to(x, DType::f16), to(x, DType::i64)}) {
    expect_reference(kEmbedding, {t, index}, {int64_t{-1}});
    expect_reference(kIndexSelect, {t, index}, {int64_t{0}});
    expect_reference(kGather, {t, wide}, {int64_t{1}});
    expect_reference(kTril, {t}, {int64_t{20}});
    expect_reference(kTriu, {t}, {int64_t{-20}});
    expect_reference(kScatterAdd, {t, wide, slice(t, 1, 0, 130)}, {int64_t{1}});
  }
}

TEST(Masks, KeepTheDtype) {
  const Tensor mask = from_values({true, false, true}, {3}, DType::boolean);
  EXPECT_EQ(masked_fill(arange(3), mask, -1).to_vector(), (Values{-1, 1, -1}));
  EXPECT_EQ(masked_fill(arange(3), mask, -1).dtype(), DType::i64);
  EXPECT_EQ(masked_fill(ones({3}, DType::bf16), mask, 0.5).dtype(), DType::bf16);
  EXPECT_EQ(masked_fill(ones({2, 1}), mask, 0).sizes(), (Dims{2, 3}));
  EXPECT_EQ(tril(ones({2, 3})).to_vector(), (Values{1, 0, 0, 1, 1, 0}));
  EXPECT_EQ(triu(ones({2, 3}), 1).to_vector(), (Values{0, 1, 1, 0, 0, 1}));
  EXPECT_EQ(tril(ones({2, 2}), INT64_MIN).to_vector(), (Values{0, 0, 0, 0}));
  EXPECT_EQ(triu(ones({2, 2}), INT64_MIN).to_vector(), (Values{1, 1, 1, 1}));
}

}  // namespace epilogue::test::indexing_test
