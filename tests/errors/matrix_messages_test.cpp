// SPDX-License-Identifier: Apache-2.0
// Mistakes with matrix products and linear layers.
#include "errors/mistakes.h"

namespace epilogue::test::matrix_messages_test {

TEST(MatrixMessages, Mm) {
  EXPECT_ERROR(
      mm(f32({2, 3}), f32({4, 5})),
      "[aten::mm] expected columns of the first equal to rows of the second, got f32[2, 3] and "
      "f32[4, 5]");
  EXPECT_ERROR(mm(f32({3}), f32({3, 5})),
               "[aten::mm] expected two matrices, got f32[3] and f32[3, 5]");
  EXPECT_ERROR(mm(f32({2, 3}), bf16({3, 5})),
               "[aten::mm] expected tensors of one dtype, got f32[2, 3] and bf16[3, 5]");
  EXPECT_ERROR(mm(f32({2, 3}), {}), "[aten::mm] expected a tensor for 'mat2', got undefined");
  EXPECT_ERROR(mm({}, f32({2, 3})), "[aten::mm] expected a tensor for 'self', got undefined");
  EXPECT_ERROR(
      mm(f32({2, 3}), on_cuda({3, 5})),
      "[aten::mm] expected tensors on one device, got f32[2, 3] on cpu and f32[3, 5] on cuda:0");
}

TEST(MatrixMessages, Addmm) {
  EXPECT_ERROR(addmm(f32({4}), f32({2, 3}), f32({3, 5})),
               "[aten::addmm] expected shapes that broadcast, got [4] and [2, 5]");
  EXPECT_ERROR(addmm(f32({3, 5}), f32({1, 3}), f32({3, 5})),
               "[aten::addmm] expected a bias that broadcasts to [1, 5], got f32[3, 5]");
  EXPECT_ERROR(addmm(f32({1, 2, 5}), f32({2, 3}), f32({3, 5})),
               "[aten::addmm] expected a bias that broadcasts to [2, 5], got f32[1, 2, 5]");
  EXPECT_ERROR(addmm(bf16({5}), f32({2, 3}), f32({3, 5})),
               "[aten::addmm] expected tensors of one dtype, got bf16[5] and f32[2, 3]");
  EXPECT_ERROR(addmm({}, f32({2, 3}), f32({3, 5})),
               "[aten::addmm] expected a tensor for 'self', got undefined");
}

TEST(MatrixMessages, Bmm) {
  EXPECT_ERROR(bmm(f32({2, 3, 4}), f32({3, 4, 5})),
               "[aten::bmm] expected equal batch sizes, got f32[2, 3, 4] and f32[3, 4, 5]");
  EXPECT_ERROR(bmm(f32({2, 3, 4}), f32({4, 5})),
               "[aten::bmm] expected two batches of matrices, got f32[2, 3, 4] and f32[4, 5]");
  EXPECT_ERROR(
      bmm(f32({2, 3, 4}), f32({2, 3, 4})),
      "[aten::bmm] expected columns of the first equal to rows of the second, got f32[2, 3, 4] "
      "and f32[2, 3, 4]");
}

TEST(MatrixMessages, Matmul) {
  EXPECT_ERROR(matmul(f32({}), f32({2})),
               "[aten::matmul] expected tensors with dimensions, got f32[] and f32[2]");
  EXPECT_ERROR(matmul(f32({2}), f32({3})),
               "[aten::matmul] expected inner sizes that agree, got f32[2] and f32[3]");
  EXPECT_ERROR(matmul(f32({2, 3, 4}), f32({3, 5})),
               "[aten::matmul] expected inner sizes that agree, got f32[2, 3, 4] and f32[3, 5]");
  EXPECT_ERROR(matmul(f32({2, 3, 4}), f32({3, 4, 5})),
               "[aten::matmul] expected shapes that broadcast, got [2] and [3]");
  EXPECT_ERROR(matmul(f32({2, 2}), i64({2, 2})),
               "[aten::matmul] expected tensors of one dtype, got f32[2, 2] and i64[2, 2]");
  EXPECT_ERROR(matmul({}, f32({2})), "[aten::matmul] expected a tensor for 'self', got undefined");
}

TEST(MatrixMessages, Linear) {
  EXPECT_ERROR(
      linear(f32({8, 16}), f32({32, 64})),
      "[aten::linear] expected an input [..., 64] for the weight f32[32, 64], got f32[8, 16]");
  EXPECT_ERROR(linear(f32({}), f32({3, 4})),
               "[aten::linear] expected an input [..., 4] for the weight f32[3, 4], got f32[]");
  EXPECT_ERROR(linear(f32({8, 64}), f32({64})),
               "[aten::linear] expected a weight [out_features, in_features], got f32[64]");
  EXPECT_ERROR(linear(f32({8, 64}), f32({32, 64}), f32({64})),
               "[aten::linear] expected a bias [32] for the weight f32[32, 64], got f32[64]");
  EXPECT_ERROR(linear(f32({8, 64}), f32({32, 64}), f32({1, 32})),
               "[aten::linear] expected a bias [32] for the weight f32[32, 64], got f32[1, 32]");
  EXPECT_ERROR(linear(bf16({8, 64}), f32({32, 64}), f32({32})),
               "[aten::addmm] expected tensors of one dtype, got bf16[8, 64] and f32[64, 32]");
  EXPECT_ERROR(linear(f32({8, 64}), {}),
               "[aten::linear] expected a tensor for 'weight', got undefined");
  EXPECT_ERROR(linear({}, f32({3, 4})),
               "[aten::linear] expected a tensor for 'input', got undefined");
}

}  // namespace epilogue::test::matrix_messages_test
