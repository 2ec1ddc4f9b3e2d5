// SPDX-License-Identifier: Apache-2.0
// Tensors as the kernels see them: joined dimensions, broadcasts, numbers. The kernels' own index
// arithmetic is repeated here and compared with the strides.
#include "backend/cuda/tensor_walk.h"

#include "core/tensor_impl.h"
#include "epilogue/ops.h"
#include "support/test.h"

namespace epilogue::cuda::tensor_walk_test {

// A tensor that says it lies on the device; nothing reads its elements here.
Tensor on_device(Tensor t) {
  t.impl()->device = {DeviceType::cuda, 0};
  return t;
}
Tensor device_f32(Dims sizes) { return on_device(empty(sizes)); }
Tensor device_view(const Tensor& base, Dims sizes, Dims strides) {
  return detail::make_view(base, sizes, strides);
}

// kernels/walk.cuh
int64_t offset(const Walk& walk, int operand, int64_t i) {
  int64_t at = 0;
  for (int d = walk.rank - 1; d >= 0; --d) {
    const auto k = static_cast<size_t>(d);
    const int64_t index = d > 0 ? i % walk.sizes[k] : i;
    i /= walk.sizes[k];
    at += index * walk.operands[static_cast<size_t>(operand)].strides[k];
  }
  return at;
}

TEST(TensorWalk, ContiguousTensorsAreOneLine) {
  const Tensor out = device_f32({2, 3, 4});
  const Tensor in[] = {device_f32({2, 3, 4})};
  const Walk walk = make_walk(out, in);
  EXPECT_EQ(walk.rank, 1);
  EXPECT_EQ(walk.sizes[0], 24);
  EXPECT_EQ(walk.operands[1].strides[0], 1);
}

TEST(TensorWalk, ABiasKeepsTwoDimensions) {
  const Tensor out = device_f32({8, 1, 5});
  const Tensor in[] = {device_f32({8, 1, 5}), device_f32({5})};
  const Walk walk = make_walk(out, in);
  ASSERT_EQ(walk.rank, 2);
  EXPECT_EQ(walk.sizes[0], 8);
  EXPECT_EQ(walk.sizes[1], 5);
  EXPECT_EQ(walk.operands[2].strides[0], 0);
  EXPECT_EQ(walk.operands[2].strides[1], 1);
}

TEST(TensorWalk, OneElementIsOneDimensionOfOne) {
  const Walk walk = make_walk(device_f32({}), {});
  EXPECT_EQ(walk.rank, 1);
  EXPECT_EQ(walk.numel, 1);
}

TEST(TensorWalk, NumbersOfTheHostAreConstants) {
  const Tensor in[] = {device_f32({3}), scalar(2.5)};
  const Walk walk = make_walk(device_f32({3}), in);
  EXPECT_EQ(walk.operands[2].data, nullptr);
  EXPECT_EQ(walk.operands[2].number, 2.5F);
}

TEST(TensorWalk, StridedViewsReadTheRightElements) {
  const Tensor base = device_f32({4, 6, 5});
  const Tensor out = device_f32({4, 5, 6});
  const Tensor in[] = {device_view(base, {4, 5, 6}, {30, 1, 5}),   // last two swapped
                       device_view(base, {4, 1, 6}, {30, 5, 5})};  // broadcast over the second
  const Walk walk = make_walk(out, in);
  int64_t i = 0;
  for (int64_t a = 0; a < 4; ++a)
    for (int64_t b = 0; b < 5; ++b)
      for (int64_t c = 0; c < 6; ++c, ++i) {
        EXPECT_EQ(offset(walk, 0, i), i);
        EXPECT_EQ(offset(walk, 1, i), a * 30 + b + c * 5);
        EXPECT_EQ(offset(walk, 2, i), a * 30 + c * 5);
      }
}

TEST(ReduceShape, KeptAndReducedDimensionsAreApart) {
  const Tensor t = device_f32({4, 5, 6});
  const Dims dims = {0, 2};
  const ReduceShape shape = make_reduce_shape(t.sizes(), dims);
  EXPECT_EQ(shape.outs, 5);
  EXPECT_EQ(shape.count, 24);
  ASSERT_EQ(shape.kept_rank, 1);
  ASSERT_EQ(shape.reduced_rank, 2);
  const ReduceOperand operand = make_reduce_operand(t, t.sizes(), dims);
  EXPECT_EQ(operand.kept_strides[0], 6);
  EXPECT_EQ(operand.reduced_strides[0], 30);
  EXPECT_EQ(operand.reduced_strides[1], 1);
}

TEST(ReduceShape, OperandsBroadcast) {
  const Tensor t = device_f32({6});
  const ReduceOperand operand = make_reduce_operand(t, {4, 6}, {0, 1});
  EXPECT_EQ(operand.reduced_strides[0], 0);
  EXPECT_EQ(operand.reduced_strides[1], 1);
}

TEST(ReduceShape, DimensionsThatAllOperandsWalkThroughAlikeAreOne) {
  const Tensor t = device_f32({4, 5, 6});
  const Dims all = {0, 1, 2};
  ReduceShape shape = make_reduce_shape(t.sizes(), all);
  ReduceOperand a = make_reduce_operand(t, t.sizes(), all);
  ReduceOperand none;
  join_dimensions(shape, a, none);
  EXPECT_EQ(shape.reduced_rank, 1);
  EXPECT_EQ(shape.reduced_sizes[0], 120);
  EXPECT_EQ(a.reduced_strides[0], 1);

  ReduceShape apart = make_reduce_shape(t.sizes(), all);
  ReduceOperand first = make_reduce_operand(t, t.sizes(), all);
  ReduceOperand row = make_reduce_operand(device_f32({6}), t.sizes(), all);  // broadcast
  join_dimensions(apart, first, row);
  ASSERT_EQ(apart.reduced_rank, 2);
  EXPECT_EQ(apart.reduced_sizes[0], 20);
  EXPECT_EQ(first.reduced_strides[0], 6);
  EXPECT_EQ(row.reduced_strides[0], 0);
  EXPECT_EQ(row.reduced_strides[1], 1);
}

TEST(ReduceShape, ASumOverNothingHasNoElements) {
  const ReduceShape shape = make_reduce_shape({0, 3}, {0});
  EXPECT_EQ(shape.outs, 3);
  EXPECT_EQ(shape.count, 0);
}

}  // namespace epilogue::cuda::tensor_walk_test
