// SPDX-License-Identifier: Apache-2.0
// The level that is asked for is the one that runs.
#include "backend/cpu/simd/targets.h"

#include "backend/cpu/simd/gemm/gemv.h"
#include "backend/cpu/simd/panels/pack.h"
#include "backend/cpu/simd/panels/write_back.h"
#include "backend/cpu/simd/pointwise.h"
#include "backend/cpu/simd/probe.h"
#include "backend/cpu/simd/reduce.h"
#include "backend/simd/simd_testing.h"
#include "support/test.h"

namespace epilogue::simd::targets_test {

std::string expected_target(Isa isa) {
  if (isa == Isa::baseline) return "SSE4";
  return isa == Isa::avx2 ? "AVX2" : "AVX3";
}

TEST(Targets, EveryTableObeysTheLevel) {
  for_each_isa([](Isa isa) {
    const std::string wanted = expected_target(isa);
    EXPECT_EQ(convert_kernels().target, wanted);
    EXPECT_EQ(pointwise_kernels().target, wanted);
    EXPECT_EQ(row_kernels().target, wanted);
    EXPECT_EQ(pack_kernels().target, wanted);
    EXPECT_EQ(write_back_kernels().target, wanted);
    EXPECT_EQ(gemv_kernels().target, wanted);
  });
}

TEST(Targets, NamesAreThoseOfKernelNames) {
  EXPECT_STREQ(target_name(Target::fallback), "scalar");
  EXPECT_STREQ(target_name(Target::sse4), "sse4");
  EXPECT_STREQ(target_name(Target::avx2), "avx2");
  EXPECT_STREQ(target_name(Target::avx3), "avx512");
}

TEST(Targets, AMissingTargetIsReplaced) {
  const Isa before = active_isa();
  set_active_isa(Isa::baseline);
  const int best = 3;
  EXPECT_EQ(pick<int>({nullptr, nullptr, nullptr, &best}), 3);
  set_active_isa(detected_isa());
  const int only = 0;
  EXPECT_EQ(pick<int>({&only, nullptr, nullptr, nullptr}), 0);
  set_active_isa(before);
}

TEST(Targets, WiderVectorsMultiplyFaster) {
  const Isa before = active_isa();
  set_active_isa(Isa::baseline);
  const double narrow = fma_gflops(0.01);
  set_active_isa(detected_isa());
  const double wide = fma_gflops(0.01);
  set_active_isa(before);
  EXPECT_GT(narrow, 0.1);
  EXPECT_GE(wide, narrow * 0.5) << "the probe measures something else";
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kIsInstrumented = true;
#else
constexpr bool kIsInstrumented = false;
#endif

// Of several short runs: another process may take the processor during one.
double best_of(double (*probe)(double)) {
  double best = 0;
  for (int i = 0; i < 8; ++i) best = std::max(best, probe(0.005));
  return best;
}

TEST(Targets, DotProductsOfBf16AreProbedWhereTheLevelHasThem) {
  const Isa before = active_isa();
  set_active_isa(Isa::baseline);
  EXPECT_EQ(bf16_gflops(0.01), 0);
  if (!is_available(Isa::avx512_bf16)) GTEST_SKIP() << "this machine has none";
  set_active_isa(Isa::avx512_bf16);
  const double fma = best_of(fma_gflops);
  const double dots = best_of(bf16_gflops);
  set_active_isa(detected_isa());
  const double all = best_of(bf16_gflops);
  set_active_isa(before);
  EXPECT_GT(dots, 0);
  if (kIsInstrumented) GTEST_SKIP() << "a sanitizer's code is not as fast as what it checks";
  // Twice the work of an FMA per instruction, issued as often or half as often.
  EXPECT_GT(dots, 0.2 * fma);
  EXPECT_LT(dots, 3 * fma) << "the probe measures something else";
  EXPECT_GT(all, 0.5 * dots);
}

}  // namespace epilogue::simd::targets_test
