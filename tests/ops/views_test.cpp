// SPDX-License-Identifier: Apache-2.0
// Views: shared storage, agreement with their references, bounds, messages, call trees.
#include "op_testing.h"

namespace epilogue::views_test {

using namespace testing;

const OpDef* const kViews[] = {&kAsStrided,  &kT,      &kTranspose, &kView,
                               &kUnsafeView, &kExpand, &kSlice};

TEST(Views, EqualTheirReferencesAndShareStorage) {
  for (const OpDef* op : kViews) {
    for (const Sample& sample : op->samples()) {
      for (const DType dtype : kDTypes) {
        const Tensor self = make_tensor(sample.in[0].sizes, dtype, Layout::contiguous);
        const std::vector<Tensor> in = {self};
        const Tensor got = run_op(*op, in, sample.attrs)[0];
        expect_equal(got, reference_of(*op, in, sample.attrs, got), std::string(op->name));
        EXPECT_EQ(got.impl()->storage.get(), self.impl()->storage.get()) << op->name;
      }
    }
  }
}

TEST(Views, ComposeOverStridedInputs) {
  for (const Layout layout : kLayouts) {
    const Tensor self = make_tensor({4, 6}, DType::f32, layout);
    auto check = [&](const OpDef& op, std::vector<Attr> attrs) {
      const std::vector<Tensor> in = {self};
      const Tensor got = run_op(op, in, attrs)[0];
      expect_equal(got, reference_of(op, in, attrs, got), std::string(op.name));
    };
    check(kT, {});
    check(kTranspose, {int64_t{-2}, int64_t{1}});
    check(kExpand, {Dims{3, -1, 6}});
    check(kSlice, {int64_t{1}, int64_t{1}, int64_t{-1}, int64_t{3}});
    check(kView, {Dims{4, 6, 1}});
    check(kView, {Dims{1, 4, 1, 6}});
  }
}

TEST(Views, WritesThroughAViewShowInTheBase) {
  const Tensor base = zeros({3, 4});
  fill_(slice(t(base), 0, 1, 2), 5);
  EXPECT_EQ(base.to_vector(), (std::vector<double>{0, 5, 0, 0, 0, 5, 0, 0, 0, 5, 0, 0}));
}

TEST(Views, SliceClampsAsPythonDoes) {
  const Tensor a = arange(5);
  auto sliced = [&](int64_t start, int64_t end, int64_t step) {
    return slice(a, 0, start, end, step).to_vector();
  };
  using V = std::vector<double>;
  EXPECT_EQ(sliced(-2, INT64_MAX, 1), (V{3, 4}));
  EXPECT_EQ(sliced(-100, -3, 1), (V{0, 1}));
  EXPECT_EQ(sliced(0, 5, 2), (V{0, 2, 4}));
  EXPECT_EQ(sliced(1, 100, INT64_MAX), (V{1}));
  EXPECT_EQ(sliced(4, 2, 1), V{});
  EXPECT_EQ(sliced(INT64_MIN, INT64_MAX, 4), (V{0, 4}));
  EXPECT_EQ(sliced(100, 200, 1), V{});
}

// PyTorch's computeStride: a view may split and merge within contiguous chunks only.
TEST(Views, ViewOfStridedTensors) {
  const Tensor base = reshape(arange(24), {2, 3, 4});
  EXPECT_EQ(view(slice(base, 0, 1, 2), {12}).to_vector().front(), 12);
  const Tensor rows = slice(base, 1, 0, 2);  // [2, 2, 4], strides [12, 4, 1]
  EXPECT_EQ(view(rows, {2, 8}).strides(), (Dims{12, 1}));
  EXPECT_EQ(view(rows, {2, 2, 2, 2}).strides(), (Dims{12, 4, 2, 1}));
  EXPECT_EQ(view(transpose(base, 0, 1), {3, 2, 2, 2}).strides(), (Dims{4, 12, 2, 1}));
  EXPECT_EQ(view(expand(ones({1, 3}), {4, 3}), {2, 2, 3}).strides(), (Dims{0, 0, 1}));
  EXPECT_EQ(view(expand(ones({}), {4}), {2, 2}).strides(), (Dims{0, 0}));
  EXPECT_ERROR(
      view(rows, {16}),
      "[aten::view] expected sizes that the strides allow without a copy (reshape copies), got "
      "[16] of i64[2, 2, 4] with strides [12, 4, 1]");
}

TEST(Views, ReshapeCopiesOnlyWhenItMust) {
  const Tensor base = reshape(arange(24), {2, 3, 4});
  const Tensor rows = slice(base, 1, 0, 2);
  EXPECT_EQ(reshape(rows, {2, 8}).data(), rows.data());
  const Tensor flat = reshape(rows, {-1});
  EXPECT_NE(flat.data(), rows.data());
  EXPECT_EQ(flat.to_vector(), rows.to_vector());
}

TEST(Views, CallTreesAreThoseOfPyTorchAndLaunchNothing) {
  const Tensor m = ones({2, 3});
  auto tree = [](auto&& f) {
    CallTree calls;
    f();
    return calls.text;
  };
  EXPECT_EQ(tree([&] { t(m); }), "aten::t(aten::transpose(aten::as_strided))");
  EXPECT_EQ(tree([&] { expand(m, {4, 2, 3}); }), "aten::expand(aten::as_strided)");
  EXPECT_EQ(tree([&] { slice(m, 0, 0, 1); }), "aten::slice(aten::as_strided)");
  EXPECT_EQ(tree([&] { reshape(m, {6}); }), "aten::reshape(aten::view)");
  EXPECT_EQ(tree([&] { reshape(t(m), {6}); }),
            "aten::t(aten::transpose(aten::as_strided)) "
            "aten::reshape(aten::clone(*) aten::_unsafe_view)");
}

TEST(Views, OffsetsOfAsStridedCountFromTheStorage) {
  const Tensor a = arange(6);
  const Tensor tail = slice(a, 0, 2, 6);
  EXPECT_EQ(as_strided(tail, {2}, {1}, 0).to_vector(), (std::vector<double>{0, 1}));
  const Tensor in_place = run_op(kAsStrided, {tail}, {Dims{2}, Dims{1}, Attr{}});
  EXPECT_EQ(in_place.to_vector(), (std::vector<double>{2, 3}));
}

TEST(Views, AsStridedStaysInsideTheStorage) {
  const Tensor a = zeros({3, 4});
  EXPECT_NO_THROW(as_strided(a, {2}, {1}, 10));
  EXPECT_NO_THROW(as_strided(a, {0, 5}, {1, 1}, 12));
  EXPECT_NO_THROW(as_strided(a, {1000}, {0}, 11));
  auto error = [&](Dims sizes, Dims strides, int64_t offset) {
    return error_of([&] { as_strided(a, sizes, strides, offset); });
  };
  EXPECT_EQ(error({2}, {1}, 11),
            "[aten::as_strided] expected a view inside the storage of 12 elements, got sizes [2], "
            "strides [1], offset 11");
  EXPECT_EQ(error({2}, {1, 1}, 0),
            "[aten::as_strided] expected one stride per size, got [2] and [1, 1]");
  EXPECT_NE(error({0}, {1}, 13), "");
  EXPECT_NE(error({1}, {1}, -1), "");
  EXPECT_NE(error({2}, {-1}, 1), "");
  EXPECT_NE(error({-1}, {1}, 0), "");
  EXPECT_NE(error({INT64_MIN}, {INT64_MAX}, 0), "");
  EXPECT_NE(error({INT64_MAX, 2}, {INT64_MAX, 1}, 0), "");
  EXPECT_NE(error({2, 2}, {INT64_MAX, INT64_MAX}, 0), "");
}

TEST(Views, SayWhatIsWrong) {
  const Tensor m = zeros({3, 4});
  EXPECT_ERROR(t(zeros({2, 3, 4})), "[aten::t] expected at most 2 dimensions, got f32[2, 3, 4]");
  EXPECT_ERROR(transpose(m, 0, 2), "[aten::transpose] expected a dimension in [-2, 1], got 2");
  EXPECT_ERROR(view(m, {5, -1}),
               "[aten::view] expected sizes with 12 elements, at most one of them -1, got [5, -1]");
  EXPECT_ERROR(
      reshape(m, {-1, -1}),
      "[aten::reshape] expected sizes with 12 elements, at most one of them -1, got [-1, -1]");
  EXPECT_NE(error_of([&] { view(m, {INT64_MAX, 3}); }), "");
  EXPECT_NE(error_of([&] { view(zeros({0}), {0, -1}); }), "");
  EXPECT_ERROR(expand(m, {3, 5}),
               "[aten::expand] expected sizes that [3, 4] broadcasts to, got [3, 5]");
  EXPECT_NE(error_of([&] { expand(m, {4}); }), "");
  EXPECT_NE(error_of([&] { expand(m, {-1, 3, 4}); }), "");
  EXPECT_ERROR(slice(m, 0, 0, 1, 0), "[aten::slice] expected a step of 1 or more, got 0");
  EXPECT_ERROR(slice(zeros({}), 0, 0, 1), "[aten::slice] expected at least one dimension, got []");
}

}  // namespace epilogue::views_test
