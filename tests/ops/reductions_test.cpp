// SPDX-License-Identifier: Apache-2.0
// sum, mean, softmax and log_softmax beyond the op table: sizes past the kernels' tiles, any
// strides, accuracy, thread counts, special values, messages.
#include "base/cpu_features.h"
#include "base/thread_pool.h"
#include "core/tensor_impl.h"
#include "epilogue/ops.h"
#include "errors/message_of.h"
#include "ops/ops.h"
#include "ops/run_op.h"
#include "ops/table_support.h"
#include "support/test.h"

namespace epilogue::test::reductions_test {

constexpr double kInf = std::numeric_limits<double>::infinity();
const double kNaN = std::numeric_limits<double>::quiet_NaN();

void expect_sum(const Tensor& x, const Dims& dims) {
  const Attr attrs[] = {dims, false, Attr()};
  for (const OpDef* op : {&kSum, &kMean}) {
    const Outputs out = run_op(*op, {&x, 1}, attrs);
    const Tensor expected = reference_results(*op, {&x, 1}, attrs, out.span())[0];
    EXPECT_EQ(difference(out[0], expected, tolerance_for(*op, {&x, 1}, expected)), "")
        << op->name << " " << to_string(x) << " strides " << to_string(x.strides()) << " over "
        << to_string(dims);
  }
}

// Every subset of dimensions in every order of memory, with sizes on both sides of the tiles.
TEST(Reductions, AnyDimsOfAnyStrides) {
  for (const Dims& sizes : {Dims{4097, 3}, Dims{3, 4097}, Dims{5, 1, 1025}, Dims{1025, 2, 3},
                            Dims{2, 3, 2, 65}, Dims{300, 17}}) {
    const Tensor x = numbers(sizes);
    for (int from = 0; from < sizes.rank(); ++from) {
      const Tensor turned = transpose(x, from, sizes.rank() - 1);
      for (int mask = 1; mask < 1 << sizes.rank(); ++mask) {
        Dims dims;
        for (int d = 0; d < sizes.rank(); ++d)
          if ((mask >> d & 1) != 0) dims.push_back(d);
        expect_sum(turned, dims);
        expect_sum(slice(turned, 0, 1, 1000, 2), dims);
      }
    }
  }
}

TEST(Reductions, BroadcastInputs) {
  const Tensor x = expand(numbers({1, 33, 1}), {70, 33, 9});
  for (const Dims& dims : {Dims{}, Dims{0}, Dims{1}, Dims{2}, Dims{0, 2}, Dims{0, 1}})
    expect_sum(x, dims);
  expect_sum(expand(full({}, 0.5), {2000}), {});
}

TEST(Reductions, SixteenBitSumsAreAccumulatedInF32) {
  for (const DType dtype : {DType::bf16, DType::f16}) {
    // 4096 ones: bf16 arithmetic would stop at 256.
    EXPECT_EQ(sum(ones({4096}, dtype)).item(), 4096);
    EXPECT_EQ(sum(ones({4096, 3}, dtype), {0}).to_vector(), std::vector<double>(3, 4096));
    EXPECT_EQ(sum(ones({3, 4096}, dtype), {1}).to_vector(), std::vector<double>(3, 4096));
  }
}

TEST(Reductions, LongSumsStayAccurateAtEveryLevel) {
  const test::IsaScope scope;
  for (const Isa level : available_isas()) {
    set_active_isa(level);
    const int64_t n = 3'000'000;
    const Tensor tenth = full({n}, 0.1);
    const double exact = static_cast<double>(n) * static_cast<double>(0.1F);
    EXPECT_NEAR(sum(tenth).item(), exact, 1e-6 * exact);
    EXPECT_NEAR(mean(tenth).item(), static_cast<double>(0.1F), 1e-7);
    const Tensor columns = sum(view(tenth, {n / 3, 3}), {0});
    for (const double s : columns.to_vector()) EXPECT_NEAR(s, exact / 3, 1e-5 * exact);
  }
}

TEST(Reductions, ThreadsDoNotChangeABit) {
  const Tensor x = numbers({3000, 130});
  const Tensor wide = numbers({70, 9000});
  auto all = [&] {
    std::vector<std::vector<double>> r;
    for (const Tensor& t : {x, wide, transpose(x, 0, 1)})
      for (const Dims& dims : {Dims{}, Dims{0}, Dims{1}}) r.push_back(sum(t, dims).to_vector());
    return r;
  };
  const ThreadScope one(1);
  const auto expected = all();
  for (const int threads : {2, 3, 5}) {
    const ThreadScope several(threads);
    EXPECT_EQ(all(), expected) << threads << " threads";
  }
}

TEST(Reductions, IntegersSumToI64) {
  const Tensor big = full({3}, 9007199254740992.0, DType::i64);  // 2^53: f64 ends here
  const Tensor s = sum(add(big, full({3}, 1, DType::i64)));
  EXPECT_EQ(s.dtype(), DType::i64);
  EXPECT_EQ(s.data_as<int64_t>()[0], 3 * 9007199254740993LL);
  EXPECT_EQ(sum(ones({300}, DType::u8)).item(), 300);
  EXPECT_EQ(sum(ones({300}, DType::boolean)).dtype(), DType::i64);
  EXPECT_EQ(sum(ones({4}, DType::i64), {}, false, DType::f64).dtype(), DType::f64);
}

TEST(Reductions, EmptyAndSpecialValues) {
  EXPECT_EQ(sum(zeros({0})).item(), 0);
  EXPECT_TRUE(std::isnan(mean(zeros({0})).item()));
  EXPECT_EQ(sum(zeros({0, 3}), {0}).to_vector(), std::vector<double>(3, 0));
  EXPECT_EQ(sum(zeros({0, 3}), {1}).sizes(), Dims{0});
  EXPECT_EQ(sum(from_values({1, kInf}, {2})).item(), kInf);
  EXPECT_TRUE(std::isnan(sum(from_values({kInf, -kInf}, {2})).item()));
  EXPECT_TRUE(std::isnan(sum(from_values({1, kNaN}, {2})).item()));
  EXPECT_EQ(mean(full({}, 3), {-1}).item(), 3);
}

TEST(Reductions, Messages) {
  EXPECT_ERROR(sum(ones({2, 3}), {2}), "[aten::sum] expected a dimension in [-2, 1], got 2");
  EXPECT_ERROR(sum(ones({2, 3}), {0, -2}), "[aten::sum] expected each dimension once, got [0, -2]");
  EXPECT_ERROR(mean(ones({3}, DType::i64)),
               "[aten::mean] expected a floating input or dtype, got i64[3] and dtype i64");
  EXPECT_ERROR(softmax(ones({3}, DType::i64), 0),
               "[aten::_softmax] expected a floating tensor, got i64[3]");
  EXPECT_ERROR(log_softmax(ones({3}), 1),
               "[aten::_log_softmax] expected a dimension in [-1, 0], got 1");
}

TEST(Softmax, EveryDimensionOfLargerTensors) {
  const IsaScope restore;
  for (const Isa isa : available_isas()) {
    set_active_isa(isa);
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const Tensor x = numbers({19, 65, 33}, dtype);
      for (const Tensor& t : {x, transpose(x, 0, 2), slice(x, 2, 0, 33, 3)}) {
        for (int64_t dim = 0; dim < 3; ++dim) {
          const Attr attrs[] = {dim, false};
          for (const OpDef* op : {&kSoftmaxUnit, &kLogSoftmaxUnit}) {
            const Outputs out = run_op(*op, {&t, 1}, attrs);
            const Tensor expected = reference_results(*op, {&t, 1}, attrs, out.span())[0];
            EXPECT_EQ(difference(out[0], expected, {dtype == DType::bf16 ? 0x1p-7 : 1e-5, 1e-6}),
                      "")
                << op->name << " dim " << dim << " of strides " << to_string(t.strides());
          }
        }
      }
    }
  }
}

TEST(Softmax, SpecialValues) {
  // Subtracting the maximum: no overflow.
  EXPECT_EQ(softmax(from_values({1000, 1000}, {2}), 0).to_vector(), std::vector<double>(2, 0.5));
  EXPECT_EQ(softmax(from_values({-kInf, 0}, {2}), 0).to_vector(), (std::vector<double>{0, 1}));
  EXPECT_EQ(log_softmax(from_values({-kInf, 0}, {2}), 0).to_vector(),
            (std::vector<double>{-kInf, 0}));
  for (const double v : softmax(from_values({-kInf, -kInf}, {2}), 0).to_vector())
    EXPECT_TRUE(std::isnan(v));
  for (const double v : softmax(from_values({1, kNaN, 2}, {3}), 0).to_vector())
    EXPECT_TRUE(std::isnan(v));
  EXPECT_EQ(softmax(full({}, 7), -1).item(), 1);
}

TEST(Softmax, ConvertsBeforeItComputes) {
  const Tensor x = numbers({4, 9}, DType::bf16);
  const Tensor y = softmax(x, 1, DType::f32);
  EXPECT_EQ(y.dtype(), DType::f32);
  EXPECT_EQ(y.to_vector(), softmax(to(x, DType::f32), 1).to_vector());
  EXPECT_EQ(softmax(ones({2, 2}, DType::i64), 0, DType::f64).to_vector(),
            std::vector<double>(4, 0.5));
}

}  // namespace epilogue::test::reductions_test
