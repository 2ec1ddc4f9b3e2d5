// SPDX-License-Identifier: Apache-2.0
// The AMX kernels' machine code under the emulator, through everything that leads to it. The other
// files of this executable are the tests of kernels and compiled functions, which take AMX for one
// more instruction set here.
#include "backend/amx/amx_emulator.h"
#include "backend/cpu/simd/probe.h"
#include "base/cpu_features.h"
#include "ops/table_support.h"
#include "plan/plan_testing.h"
#include "support/test.h"

namespace epilogue::testing::amx_test {

class Amx : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!is_available(Isa::amx)) GTEST_SKIP() << "needs AVX512-BF16 beside the emulated tiles";
    set_active_isa(Isa::amx);
    manual_seed(1);
  }
};

// Of those who count instructions.
class EmulatedAmx : public Amx {
 protected:
  void SetUp() override {
    Amx::SetUp();
    if (!IsSkipped() && !amx_is_emulated())
      GTEST_SKIP() << "this processor has tiles: nothing counts its instructions";
  }
};

// Instructions carried out while f() runs.
template <class F>
int64_t products_of(F&& f) {
  const int64_t before = emulated_amx_products();
  f();
  return emulated_amx_products() - before;
}

bool same_bits(const Tensor& a, const Tensor& b) {
  return a.sizes() == b.sizes() &&
         std::memcmp(a.data(), b.data(), static_cast<size_t>(a.bytes())) == 0;
}

bool is_listed(const Compiled& compiled, const std::string& text) {
  return compiled.explain().find(text) != std::string::npos;
}

// 70 rows are two blocks of 32 and one of 6, whose lower tiles are left out; 3 steps of 32 along k;
// 64 columns are two halves of two tiles. Each instruction multiplies 16 x 32 by 32 x 16.
TEST_F(EmulatedAmx, ACompiledLinearRunsAsManyTileProductsAsItHasTiles) {
  const NoGrad no_grad;
  const test::ThreadScope one_thread(1);
  const Tensor w = randn({64, 96}, DType::bf16);
  const Tensor x = randn({70, 96}, DType::bf16);
  Compiled linear_of([w](std::span<const Tensor> in) { return std::vector{linear(in[0], w)}; });
  Tensor y;
  EXPECT_EQ(products_of([&] { y = linear_of(x); }), 2 * 3 * (4 + 4 + 2));
  const Tensor exact = mm(to(x, DType::f64), t(to(w, DType::f64)));
  EXPECT_LT(relative_l2(y, exact.to_vector()), 0x1p-8);
}

TEST_F(EmulatedAmx, FourRowsAndFewerAreLeftToDotProducts) {
  const NoGrad no_grad;
  const Tensor w = randn({64, 96}, DType::bf16);
  Compiled linear_of([w](std::span<const Tensor> in) { return std::vector{linear(in[0], w)}; });
  EXPECT_EQ(products_of([&] { linear_of(randn({4, 96}, DType::bf16)); }), 0);
  EXPECT_GT(products_of([&] { linear_of(randn({5, 96}, DType::bf16)); }), 0);
}

// The pass says so, and the bits are those without it.
TEST_F(Amx, OverlappedEpiloguesGiveTheBitsOfThoseThatFollow) {
  const NoGrad no_grad;
  nn::GatedMLP mlp(96, 130);
  mlp.to(DType::bf16);
  Compiled overlapped = compile(mlp);
  Compiled following = compile(mlp, {.skip = {"overlap_epilogues"}});
  for (const int64_t rows : {7, 33, 200}) {
    const Tensor x = randn({rows, 96}, DType::bf16);
    EXPECT_TRUE(same_bits(overlapped(x), following(x))) << rows;
  }
  EXPECT_TRUE(is_listed(overlapped, "beside the next block's products"));
  EXPECT_FALSE(is_listed(following, "beside the next block's products"));
}

TEST_F(EmulatedAmx, SinglePrecisionHasNoTilesAndNoNoteOfThem) {
  const NoGrad no_grad;
  const nn::GatedMLP mlp(32, 48);
  Compiled compiled = compile(mlp);
  EXPECT_EQ(products_of([&] { compiled(randn({40, 32})); }), 0);
  EXPECT_FALSE(is_listed(compiled, "beside the next block's products"));
}

// Eager's product of bf16 matrices runs on tiles too.
TEST_F(EmulatedAmx, EagerProductsUseTiles) {
  const NoGrad no_grad;
  const Tensor a = randn({200, 150}, DType::bf16);
  const Tensor b = randn({150, 130}, DType::bf16);
  Tensor c;
  EXPECT_GT(products_of([&] { c = mm(a, b); }), 0);
  const Tensor exact = mm(to(a, DType::f64), to(b, DType::f64));
  EXPECT_LT(relative_l2(c, exact.to_vector()), 0x1p-8);
}

// What `bench` calls the peak of bf16 is that of tiles where there are tiles.
TEST_F(EmulatedAmx, TheProbeOfThePeakRunsTiles) {
  double gflops = 0;
  EXPECT_GT(products_of([&] { gflops = simd::bf16_gflops(1e-3); }), 0);
  EXPECT_GT(gflops, 0);
}

}  // namespace epilogue::testing::amx_test
