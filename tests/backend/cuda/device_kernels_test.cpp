// SPDX-License-Identifier: Apache-2.0
// What is CUDA's own about its ops: which kernel is taken, and what kernels cannot throw.
#include "backend/device/device_testing.h"
#include "ops/ops.h"
#include "ops/run_op.h"
#include "ops/table_support.h"
#include "support/test.h"

namespace epilogue::test::device_kernels_test {

using CudaKernels = OnDevice;

TEST_F(CudaKernels, SaysWhichKernelItTakes) {
  const Tensor x[] = {ones({4, 8}, DType::bf16, kCuda), ones({8, 4}, DType::bf16, kCuda)};
  EXPECT_EQ(explain_kernels(kMm, x), "cublaslt: chosen\n");
  const Tensor whole[] = {ones({4, 8}, DType::i64, kCuda), ones({8, 4}, DType::i64, kCuda)};
  EXPECT_EQ(explain_kernels(kMm, whole),
            "cublaslt: needs f32, bf16 or f16 matrices\nhost: chosen\n");
}

TEST_F(CudaKernels, ATargetThatIsNoClassMakesTheLossNaN) {
  const Tensor logits = on_device(numbers({3, 4}));
  const Tensor target = from_values({0, 9, 1}, {3}, DType::i64).to(kCuda);
  EXPECT_TRUE(std::isnan(cross_entropy(logits, target).item()));
}

}  // namespace epilogue::test::device_kernels_test
