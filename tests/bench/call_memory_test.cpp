// SPDX-License-Identifier: Apache-2.0
#include "bench/call_memory.h"

#include "epilogue/autograd.h"
#include "epilogue/compile.h"
#include "epilogue/nn.h"
#include "epilogue/ops.h"
#include "support/test.h"

namespace epilogue::bench::call_memory_test {

TEST(CallMemory, TheResultDoesNotCountWheneverItIsMade) {
  const auto before = [] {
    { const Tensor temporary = empty({1000}); }
    return empty({1000});  // likely where the temporary was
  };
  EXPECT_EQ(measure_call_memory(before).peak_intermediate_bytes, 4000);
  const auto after = [] {
    const Tensor result = empty({1000});
    const Tensor temporary = empty({250});
    return result;
  };
  EXPECT_EQ(measure_call_memory(after).peak_intermediate_bytes, 1000);
  EXPECT_EQ(measure_call_memory([] { return empty({7}); }).peak_intermediate_bytes, 0);
}

TEST(CallMemory, AnEagerExpressionHoldsItsTemporaries) {
  const NoGrad no_grad;
  const Tensor x = rand({100});
  // exp(x) and its negative live when the sum is made.
  const CallMemory memory = measure_call_memory([&] { return add(neg(exp(x)), x); });
  EXPECT_EQ(memory.peak_intermediate_bytes, 800);
  EXPECT_EQ(memory.result.numel(), 100);
}

// The claim of docs/compile.md, at its size, with the scratch memory that the compiled kernel
// keeps.
TEST(CallMemory, ACompiledGatedMlpHoldsLessThanATenthOfEagersIntermediates) {
  constexpr int64_t kRows = 8192;
  constexpr int64_t kDim = 768;
  constexpr int64_t kHidden = 3072;
  constexpr int64_t kBytes = 2;
  const NoGrad no_grad;
  nn::GatedMLP mlp(kDim, kHidden);
  mlp.to(DType::bf16);
  const Tensor x = randn({kRows, kDim}, DType::bf16);
  // Gate, its activation and up live at once, then the two that are multiplied and their product.
  const int64_t eager = measure_call_memory([&] { return mlp(x); }).peak_intermediate_bytes;
  EXPECT_EQ(eager, 3 * kRows * kHidden * kBytes);
  Compiled compiled = compile(mlp);
  compiled(x);
  const int64_t held = measure_call_memory([&] { return compiled(x); }).peak_intermediate_bytes +
                       compiled.stats().intermediate_bytes + compiled.stats().scratch_bytes;
  EXPECT_LT(static_cast<double>(held), 0.1 * static_cast<double>(eager));
}

}  // namespace epilogue::bench::call_memory_test
