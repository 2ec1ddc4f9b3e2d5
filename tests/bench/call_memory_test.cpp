// SPDX-License-Identifier: Apache-2.0
#include "bench/call_memory.h"

#include <gtest/gtest.h>

#include "epilogue/autograd.h"
#include "epilogue/ops.h"

namespace epilogue::bench {
namespace {

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

}  // namespace
}  // namespace epilogue::bench
