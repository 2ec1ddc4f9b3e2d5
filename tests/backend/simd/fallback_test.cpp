// SPDX-License-Identifier: Apache-2.0
// This executable holds no target but the fallback; its other tests then exercise just that.
#include "backend/cpu/simd/convert.h"
#include "backend/cpu/simd/gemm/gemv.h"
#include "backend/cpu/simd/panels/pack.h"
#include "backend/cpu/simd/panels/write_back.h"
#include "backend/cpu/simd/pointwise.h"
#include "backend/cpu/simd/reduce.h"
#include "backend/simd/simd_testing.h"

namespace epilogue::simd::fallback_test {

TEST(Fallback, IsAllThereIs) {
  for_each_isa([](Isa) {
    EXPECT_STREQ(convert_kernels().target, "SCALAR");
    EXPECT_STREQ(pointwise_kernels().target, "SCALAR");
    EXPECT_STREQ(row_kernels().target, "SCALAR");
    EXPECT_STREQ(pack_kernels().target, "SCALAR");
    EXPECT_STREQ(write_back_kernels().target, "SCALAR");
    EXPECT_STREQ(gemv_kernels().target, "SCALAR");
  });
}

}  // namespace epilogue::simd::fallback_test
