// SPDX-License-Identifier: Apache-2.0
// Mistakes with views and copies.
#include "errors/mistakes.h"

namespace epilogue::test::view_messages_test {

TEST(ViewMessages, Transposes) {
  EXPECT_ERROR(t(f32({2, 3, 4})), "[aten::t] expected at most 2 dimensions, got f32[2, 3, 4]");
  EXPECT_ERROR(t({}), "[aten::t] expected a tensor for 'self', got undefined");
  EXPECT_ERROR(transpose(f32({2, 3}), 0, 2),
               "[aten::transpose] expected a dimension in [-2, 1], got 2");
  EXPECT_ERROR(transpose(f32({2, 3}), -3, 0),
               "[aten::transpose] expected a dimension in [-2, 1], got -3");
  EXPECT_ERROR(transpose(f32({}), 1, 0),
               "[aten::transpose] expected a dimension in [-1, 0], got 1");
}

TEST(ViewMessages, SizesOfViews) {
  const std::string six = " expected sizes with 6 elements, at most one of them -1, got ";
  EXPECT_ERROR(view(f32({2, 3}), {4}), "[aten::view]" + six + "[4]");
  EXPECT_ERROR(view(f32({2, 3}), {-1, -1}), "[aten::view]" + six + "[-1, -1]");
  EXPECT_ERROR(view(f32({2, 3}), {-1, 4}), "[aten::view]" + six + "[-1, 4]");
  EXPECT_ERROR(view(f32({2, 3}), {-2, -3}), "[aten::view]" + six + "[-2, -3]");
  EXPECT_ERROR(view(f32({2, 3}), {-1, 0}), "[aten::view]" + six + "[-1, 0]");
  EXPECT_ERROR(reshape(f32({2, 3}), {INT64_MAX, 2}),
               "[aten::reshape]" + six + "[9223372036854775807, 2]");
  EXPECT_ERROR(unsafe_view(f32({2, 3}), {7}), "[aten::_unsafe_view]" + six + "[7]");
  EXPECT_ERROR(view(f32({0, 3}), {-1, 0}),
               "[aten::view] expected sizes with 0 elements, at most one of them -1, got [-1, 0]");
  EXPECT_ERROR(
      view(t(f32({2, 3})), {6}),
      "[aten::view] expected sizes that the strides allow without a copy (reshape copies), got "
      "[6] of f32[3, 2] with strides [1, 3]");
}

TEST(ViewMessages, Expand) {
  EXPECT_ERROR(expand(f32({2, 3}), {4, 3}),
               "[aten::expand] expected sizes that [2, 3] broadcasts to, got [4, 3]");
  EXPECT_ERROR(expand(f32({2, 3}), {3}),
               "[aten::expand] expected sizes that [2, 3] broadcasts to, got [3]");
  EXPECT_ERROR(expand(f32({3}), {-1, 3}),
               "[aten::expand] expected sizes that [3] broadcasts to, got [-1, 3]");
  EXPECT_ERROR(sum_to_size(f32({2, 3}), {2}),
               "[sum_to_size] expected sizes that broadcast to [2, 3], got [2]");
}

TEST(ViewMessages, Slice) {
  EXPECT_ERROR(slice(f32({}), 0, 0, 1), "[aten::slice] expected at least one dimension, got []");
  EXPECT_ERROR(slice(f32({4}), 1, 0, 1), "[aten::slice] expected a dimension in [-1, 0], got 1");
  EXPECT_ERROR(slice(f32({4}), 0, 0, 4, 0), "[aten::slice] expected a step of 1 or more, got 0");
  EXPECT_ERROR(slice(f32({4}), 0, 4, 0, -1), "[aten::slice] expected a step of 1 or more, got -1");
  EXPECT_EQ(slice(f32({4}), 0, -100, 100).numel(), 4);  // clamped, as in Python
}

// Reaching outside of the storage must be impossible.
TEST(ViewMessages, AsStridedStaysInside) {
  const std::string inside =
      "[aten::as_strided] expected a view inside the storage of 6 elements, got sizes ";
  EXPECT_ERROR(as_strided(f32({6}), {7}, {1}), inside + "[7], strides [1], offset 0");
  EXPECT_ERROR(as_strided(f32({6}), {2}, {1}, 5), inside + "[2], strides [1], offset 5");
  EXPECT_ERROR(as_strided(f32({6}), {2}, {1}, -1), inside + "[2], strides [1], offset -1");
  EXPECT_ERROR(as_strided(f32({6}), {2}, {-1}, 5), inside + "[2], strides [-1], offset 5");
  EXPECT_ERROR(as_strided(f32({6}), {-2}, {1}), inside + "[-2], strides [1], offset 0");
  EXPECT_ERROR(as_strided(f32({6}), {3, 3}, {INT64_MAX, INT64_MAX}),
               inside + "[3, 3], strides [9223372036854775807, 9223372036854775807], offset 0");
  EXPECT_ERROR(as_strided(f32({6}), {0}, {1}, 7), inside + "[0], strides [1], offset 7");
  EXPECT_ERROR(as_strided(f32({6}), {2, 3}, {1}),
               "[aten::as_strided] expected one stride per size, got [2, 3] and [1]");
}

TEST(ViewMessages, Cat) {
  EXPECT_ERROR(cat(std::span<const Tensor>()),
               "[aten::cat] expected at least one tensor, got none");
  EXPECT_ERROR(cat({f32({}), f32({})}),
               "[aten::cat] expected tensors with at least one dimension, got f32[]");
  EXPECT_ERROR(
      cat({f32({2, 3}), f32({2, 4})}),
      "[aten::cat] expected sizes that agree with [2, 3] except in dimension 0, got [2, 4]");
  EXPECT_ERROR(cat({f32({2, 3}), f32({2})}, 1),
               "[aten::cat] expected sizes that agree with [2, 3] except in dimension 1, got [2]");
  EXPECT_ERROR(cat({f32({2, 3})}, 2), "[aten::cat] expected a dimension in [-2, 1], got 2");
  EXPECT_ERROR(cat({f32({2}), Tensor()}),
               "[aten::cat] expected a tensor for 'tensors', got undefined");
  EXPECT_ERROR(
      cat({f32({2}), on_cuda({2})}),
      "[aten::cat] expected tensors on one device, got f32[2] on cpu and f32[2] on cuda:0");
}

TEST(ViewMessages, CopyIntoPlace) {
  EXPECT_ERROR(copy_(f32({2, 3}), f32({2})),
               "[aten::copy_] expected shapes that broadcast, got [2, 3] and [2]");
  EXPECT_ERROR(copy_(f32({3}), f32({2, 3})),
               "[aten::copy_] expected a source that broadcasts to [3], got f32[2, 3]");
  EXPECT_ERROR(
      copy_(expand(f32({1}), {3}), f32({3})),
      "[aten::copy_] expected a tensor to write whose elements do not share memory (clone it "
      "first), got f32[3] with strides [0]");
  EXPECT_EQ(
      message_of([] {
        const Tensor x = f32({3, 3});
        copy_(x, t(x));
      }),
      "[aten::copy_] expected a source that does not share memory with what is written (clone it "
      "first), got f32[3, 3] with strides [1, 3]");
  EXPECT_ERROR(copy_({}, f32({3})), "[aten::copy_] expected a tensor for 'self', got undefined");
  EXPECT_ERROR(zero_({}), "[aten::zero_] expected a tensor for 'self', got undefined");
}

TEST(ViewMessages, TooManyDimensions) {
  EXPECT_ERROR(view(f32({1}), {1, 1, 1, 1, 1, 1, 1, 1, 1}),
               "[Dims] expected at most 8 dimensions, got more");
}

}  // namespace epilogue::test::view_messages_test
