// SPDX-License-Identifier: Apache-2.0
// What a trace says about a GEMM.
#include "backend/cpu/simd/gemm/plan.h"

#include "backend/simd/simd_testing.h"
#include "base/thread_pool.h"

namespace epilogue::simd::plan_test {

// y = x W^T: W is [n, k] row-major.
GemmCall linear(int64_t m, int64_t k, int64_t n, FloatType type) {
  GemmCall call = {m, n, k, {nullptr, type, k, 1}, {nullptr, type, 1, k}};
  call.c_type = type;
  call.c_row_stride = n;
  return call;
}

const char* name_of(const GemmCall& call) { return kernel_name(call, plan_gemm(call)); }

TEST(GemmPlan, NamesSayIsaTypesTileLayoutAndBias) {
  const Isa before = active_isa();
  const std::string isa = is_available(Isa::avx512) ? "avx512" : "avx2";
  const std::string tile = is_available(Isa::avx512) ? "6x64" : "6x16";
  if (detected_isa() == Isa::baseline) GTEST_SKIP() << "no wide vectors here";
  set_active_isa(isa == "avx512" ? Isa::avx512 : Isa::avx2);
  const float row = 0.0F;
  GemmCall call = linear(64, 128, 256, FloatType::f32);
  EXPECT_EQ(name_of(call), "epi_" + isa + "_gemm_f32_" + tile + "_tn");
  call.bias = {&row, FloatType::f32, 0, 1};
  EXPECT_EQ(name_of(call), "epi_" + isa + "_gemm_f32_" + tile + "_tn_bias");
  call.bias.row_stride = 256;
  EXPECT_EQ(name_of(call), "epi_" + isa + "_gemm_f32_" + tile + "_tn_add");
  call.beta = 0.0F;
  call.b = {nullptr, FloatType::f32, 256, 1};
  EXPECT_EQ(name_of(call), "epi_" + isa + "_gemm_f32_" + tile + "_nn");
  call.a = {nullptr, FloatType::f32, 1, 64};
  EXPECT_EQ(name_of(call), "epi_" + isa + "_gemm_f32_" + tile + "_nt");
  const GemmCall half = linear(64, 128, 256, FloatType::bf16);
  EXPECT_EQ(name_of(half), "epi_" + isa + "_gemm_bf16_" + tile + "_tn");
  GemmCall mixed = half;
  mixed.c_type = FloatType::f32;
  EXPECT_EQ(name_of(mixed), "epi_" + isa + "_gemm_bf16bf16f32_" + tile + "_tn");
  EXPECT_EQ(name_of(linear(1, 128, 256, FloatType::f32)), "epi_" + isa + "_gemv_f32_8x512_tn");
  set_active_isa(before);
}

TEST(GemmPlan, NamesLiveForEver) {
  const GemmCall call = linear(64, 128, 256, FloatType::f32);
  EXPECT_EQ(name_of(call), name_of(call)) << "the same pointer";
}

TEST(GemmPlan, GridTimesBlockCoversTheProblem) {
  for_each_isa([](Isa) {
    for (int64_t m : {1, 8, 9, 300})
      for (int64_t n : {1, 70, 3072})
        for (int64_t k : {1, 768, 5000}) {
          const GemmCall call = linear(m, k, n, FloatType::f32);
          const GemmPlan plan = plan_gemm(call);
          const auto [grid, block] = grid_of(call, plan);
          EXPECT_GE(grid[0] * block[0], n);
          EXPECT_GE(grid[1] * block[1], m);
          EXPECT_GE(grid[2] * block[2], k);
          EXPECT_GE(plan.threads(), 1);
          EXPECT_LE(plan.threads(), num_threads());
        }
  });
}

TEST(GemmPlan, SmallWorkStaysOnOneThread) {
  const int before = num_threads();
  set_num_threads(2);
  EXPECT_EQ(plan_gemm(linear(32, 32, 32, FloatType::f32)).threads(), 1);
  EXPECT_EQ(plan_gemm(linear(1, 768, 64, FloatType::f32)).threads(), 1);
  EXPECT_EQ(plan_gemm(linear(64, 64, 64, FloatType::f32)).threads(), 2);
  EXPECT_EQ(plan_gemm(linear(512, 512, 512, FloatType::f32)).threads(), 2);
  set_num_threads(before);
}

TEST(GemmPlan, AnEmptyProblemHasAnEmptyGrid) {
  const GemmCall call = linear(0, 5, 7, FloatType::f32);
  const GemmGrid grid = grid_of(call, plan_gemm(call));
  EXPECT_EQ(grid.grid[0] * grid.grid[1] * grid.grid[2], 0);
}

TEST(GemmPlan, ChunksAreEvenAndCover) {
  for (int64_t total : {1, 7, 64, 1000, 1025, 5000})
    for (int64_t most : {64, 256, 1024}) {
      const int64_t chunk = even_chunk(total, most, 8);
      EXPECT_EQ(chunk % 8, 0);
      EXPECT_LE(chunk, most);
      const int64_t chunks = (total + chunk - 1) / chunk;
      EXPECT_EQ(chunks, (total + most - 1) / most) << total << " in " << most;
    }
}

}  // namespace epilogue::simd::plan_test
