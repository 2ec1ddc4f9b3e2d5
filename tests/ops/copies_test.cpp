// SPDX-License-Identifier: Apache-2.0
// Copies: every dtype pair and layout against the references; cat, fill and in-place writes.
#include "op_testing.h"
#include "support/test.h"

namespace epilogue::copies_test {

using namespace testing;

// Around the tile, around the transposing block, and long enough for two threads.
const std::vector<Dims> kShapes = {{},       {1},      {7},         {1023},    {1025},    {33, 31},
                                   {64, 64}, {3, 200}, {2, 33, 65}, {5, 3, 2}, {300, 257}};

TEST(Copies, EveryDTypePairAndLayoutEqualsTheReference) {
  for (const Dims& sizes : kShapes) {
    for (const Layout layout : kLayouts) {
      for (const DType from : kDTypes) {
        const Tensor self = make_tensor(sizes, from, layout, 0, 50);
        for (const DType dtype : kDTypes) {
          if (element_count(sizes) > 10000 && dtype_bytes(from) + dtype_bytes(dtype) > 6) continue;
          const Tensor got = run_op(kToCopy, {self}, {dtype});
          const std::string what = to_string(self) + " to " + std::string(dtype_name(dtype));
          expect_equal(got, reference_of(kToCopy, {self}, {dtype}, got), what);
          EXPECT_TRUE(got.is_contiguous());
        }
      }
    }
  }
}

// The target is a view too: what lies between its elements must not change.
TEST(Copies, IntoStridedTargets) {
  Random random(1);
  for (const Dims& sizes : kShapes) {
    for (const Layout layout : {Layout::contiguous, Layout::transposed, Layout::stepped}) {
      for (const DType dtype : {DType::f32, DType::bf16, DType::i64, DType::u8}) {
        const Tensor target = make_tensor(sizes, dtype, layout, 0, 50);
        const size_t bytes = target.impl()->storage->bytes();
        const auto elements = static_cast<int64_t>(bytes / dtype_bytes(dtype));
        const Tensor storage = as_strided(target, {elements}, {1}, 0);
        const std::vector<double> before = storage.to_vector();
        const Layout source_layout = kLayouts[pick(random, 0, 4)];
        const Tensor source = make_tensor(sizes, DType::f32, source_layout, 0, 50);
        copy_(target, source);
        expect_equal(target, reference_of(kCopy_, {target, source}, {}, target), to_string(target));
        if (layout != Layout::stepped || sizes.empty()) continue;
        const std::vector<double> after = storage.to_vector();
        for (size_t i = 0; i < after.size(); i += 2) ASSERT_EQ(before[i], after[i]);
      }
    }
  }
}

TEST(Copies, FloatsBecomeIntegersAsInPyTorch) {
  const double inf = std::numeric_limits<double>::infinity();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const DType from : {DType::f32, DType::f64}) {
    const Tensor x = from_values({-1.9, 1.9, 300.5, nan, inf, -inf}, {6}, from);
    const Tensor i = to(x, DType::i64);
    const int64_t* p = i.data_as<int64_t>();
    EXPECT_EQ(p[0], -1);
    EXPECT_EQ(p[1], 1);
    EXPECT_EQ(p[3], INT64_MIN);
    EXPECT_EQ(p[4], INT64_MIN);
    EXPECT_EQ(p[5], INT64_MIN);
    EXPECT_EQ(to(x, DType::u8).to_vector(), (std::vector<double>{255, 1, 44, 0, 0, 0}));
    EXPECT_EQ(to(x, DType::boolean).to_vector(), (std::vector<double>{1, 1, 1, 1, 1, 1}));
  }
  const Tensor big = full({1}, 0x1p62, DType::i64);
  EXPECT_EQ(clone(big).data_as<int64_t>()[0], int64_t{1} << 62);
}

TEST(Copies, NarrowingRoundsToNearestEven) {
  const Tensor x = from_values({1 + 0x1p-8, 1 + 0x1.8p-7, 1 + 0x1p-8 + 0x1p-20, 3.4e38}, {4});
  EXPECT_EQ(to(x, DType::bf16).to_vector(),
            (std::vector<double>{1, 1 + 0x1p-6, 1 + 0x1p-7, HUGE_VAL}));
  EXPECT_EQ(to(from_values({1 + 0x1p-11, 65520, 0x1p-24}, {3}), DType::f16).to_vector(),
            (std::vector<double>{1, HUGE_VAL, 0x1p-24}));
}

TEST(Copies, ToAndContiguousReturnSelfWhereNothingChanges) {
  const Tensor x = ones({2, 3});
  EXPECT_TRUE(to(x, DType::f32).is_same(x));
  EXPECT_TRUE(contiguous(x).is_same(x));
  EXPECT_FALSE(clone(x).is_same(x));
  EXPECT_TRUE(contiguous(t(x)).is_contiguous());
}

TEST(Copies, FillReachesExactlyTheView) {
  const Tensor base = zeros({300, 8}, DType::f16);
  fill_(slice(base, 1, 1, 8, 2), 1.5);
  for (size_t i = 0; const double v : base.to_vector()) ASSERT_EQ(v, i++ % 2 == 1 ? 1.5 : 0);
  const Tensor big = ones({100000}, DType::i64);
  fill_(big, -3);
  EXPECT_EQ(sum(big).item(), -300000);
  zero_(big);
  EXPECT_EQ(big.to_vector(), std::vector<double>(100000, 0.0));
  EXPECT_EQ(fill_(zeros({0, 3}), 1).numel(), 0);
}

TEST(Cat, JoinsAnyDimensionLayoutAndDType) {
  for (const Layout layout : kLayouts) {
    for (int64_t dim = 0; dim < 3; ++dim) {
      Dims a = {4, 5, 6};
      Dims b = a;
      b[static_cast<int>(dim)] = 37;
      const std::vector<Tensor> in = {make_tensor(a, DType::f32, layout), zeros({0}),
                                      make_tensor(b, DType::bf16, Layout::transposed)};
      const Tensor got = cat(in, dim);
      expect_equal(got, reference_of(kCat, in, {dim}, got), to_string(got));
    }
  }
  EXPECT_EQ(cat({arange(2), ones({1})}).dtype(), DType::f32);
  EXPECT_EQ(cat({zeros({0}), zeros({0})}).sizes(), Dims{0});
}

TEST(Cat, SaysWhatIsWrong) {
  EXPECT_ERROR(
      cat({zeros({2, 3}), zeros({2, 4})}),
      "[aten::cat] expected sizes that agree with [2, 3] except in dimension 0, got [2, 4]");
  EXPECT_ERROR(cat({zeros({2, 3}), zeros({2})}),
               "[aten::cat] expected sizes that agree with [2, 3] except in dimension 0, got [2]");
  EXPECT_ERROR(cat({zeros({}), zeros({})}),
               "[aten::cat] expected tensors with at least one dimension, got f32[]");
  EXPECT_ERROR(cat(std::span<const Tensor>{}),
               "[aten::cat] expected at least one tensor, got none");
}

TEST(SliceBackward, EqualsTheReference) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f64}) {
    const std::vector<Attr> attrs = {Dims{70, 40}, int64_t{1}, int64_t{-33}, INT64_MAX, int64_t{2}};
    const Tensor grad = make_tensor({70, 17}, dtype, Layout::transposed);
    const std::vector<Tensor> in = {grad};
    const Tensor got = run_op(kSliceBackward, in, attrs)[0];
    expect_equal(got, reference_of(kSliceBackward, in, attrs, got), "slice_backward");
  }
}

TEST(Copy_, RefusesTargetsAndSourcesThatShareMemory) {
  const Tensor square = ones({4, 4});
  EXPECT_ERROR(
      copy_(expand(ones({1, 4}), {3, 4}), ones({4})),
      "[aten::copy_] expected a tensor to write whose elements do not share memory (clone it "
      "first), got f32[3, 4] with strides [0, 1]");
  EXPECT_ERROR(
      copy_(square, t(square)),
      "[aten::copy_] expected a source that does not share memory with what is written (clone "
      "it first), got f32[4, 4] with strides [1, 4]");
  EXPECT_NE(error_of([&] { copy_(slice(square, 0, 0, 3), slice(square, 0, 1, 4)); }), "");
  EXPECT_EQ(error_of([&] { copy_(slice(square, 0, 0, 2), slice(square, 0, 2, 4)); }), "");
  EXPECT_EQ(error_of([&] { copy_(slice(square, 1, 0, 2), slice(square, 1, 2, 4)); }), "");
  EXPECT_EQ(error_of([&] { copy_(square, square); }), "");
  EXPECT_ERROR(copy_(square, ones({2, 4, 4})),
               "[aten::copy_] expected a source that broadcasts to [4, 4], got f32[2, 4, 4]");
}

TEST(SumToSize, UndoesBroadcasting) {
  const Tensor x = ones({2, 3, 4});
  EXPECT_TRUE(sum_to_size(x, {2, 3, 4}).is_same(x));
  EXPECT_EQ(sum_to_size(x, {3, 1}).to_vector(), (std::vector<double>{8, 8, 8}));
  EXPECT_EQ(sum_to_size(x, {}).item(), 24);
  EXPECT_EQ(sum_to_size(x, {1, 1, 4}).sizes(), (Dims{1, 1, 4}));
  EXPECT_ERROR(sum_to_size(x, {2, 4}),
               "[sum_to_size] expected sizes that broadcast to [2, 3, 4], got [2, 4]");
}

TEST(Copies, KernelNamesSayHowTheyRun) {
  auto name_of = [](const OpDef& op, const Tensor& self, std::vector<Attr> attrs) {
    LastKernel last;
    run_op(op, std::span<const Tensor>(&self, 1), attrs);
    return std::string(last.info.name.view());
  };
  EXPECT_TRUE(name_of(kClone, ones({64, 64}), {}).ends_with("_copy_f32"));
  EXPECT_TRUE(name_of(kClone, t(ones({64, 64})), {}).ends_with("_copy_transposed_f32"));
  EXPECT_TRUE(name_of(kClone, slice(ones({64, 64}), 1, 0, 9), {}).ends_with("_copy_strided_f32"));
  EXPECT_TRUE(name_of(kToCopy, ones({64}), {DType::bf16}).ends_with("_cast_f32_bf16"));
}

}  // namespace epilogue::copies_test
