// SPDX-License-Identifier: Apache-2.0
// Promotion: the lattice of types, and how dimensions and numbers take part in it.
#include "epilogue/ops.h"
#include "support/test.h"

namespace epilogue::promotion_test {

using enum DType;

// torch.promote_types, as documented.
TEST(Promotion, LatticeIsPyTorchs) {
  constexpr DType kOrder[] = {f32, bf16, f16, f64, i64, u8, boolean};
  constexpr DType kTable[7][7] = {
      {f32, f32, f32, f64, f32, f32, f32},      // f32
      {f32, bf16, f32, f64, bf16, bf16, bf16},  // bf16
      {f32, f32, f16, f64, f16, f16, f16},      // f16
      {f64, f64, f64, f64, f64, f64, f64},      // f64
      {f32, bf16, f16, f64, i64, i64, i64},     // i64
      {f32, bf16, f16, f64, i64, u8, u8},       // u8
      {f32, bf16, f16, f64, i64, u8, boolean},  // bool
  };
  for (size_t a = 0; a < 7; ++a)
    for (size_t b = 0; b < 7; ++b)
      EXPECT_EQ(promote_types(kOrder[a], kOrder[b]), kTable[a][b])
          << dtype_name(kOrder[a]) << " " << dtype_name(kOrder[b]);
}

Tensor vec(DType dtype) { return ones({2}, dtype); }
Tensor zero_dim(DType dtype) { return ones({}, dtype); }

TEST(Promotion, TensorsWithDimensionsPromoteByTheLattice) {
  EXPECT_EQ(add(vec(bf16), vec(f16)).dtype(), f32);
  EXPECT_EQ(add(vec(i64), vec(bf16)).dtype(), bf16);
  EXPECT_EQ(add(vec(u8), vec(boolean)).dtype(), u8);
  EXPECT_EQ(add(vec(boolean), vec(boolean)).dtype(), boolean);
  EXPECT_EQ(add(vec(f32), vec(f64)).dtype(), f64);
}

TEST(Promotion, ZeroDimensionsCountOnlyForAHigherCategory) {
  EXPECT_EQ(add(zero_dim(f32), vec(bf16)).dtype(), bf16);
  EXPECT_EQ(add(vec(f16), zero_dim(f64)).dtype(), f16);
  EXPECT_EQ(add(vec(u8), zero_dim(i64)).dtype(), u8);
  EXPECT_EQ(add(vec(i64), zero_dim(bf16)).dtype(), bf16);
  EXPECT_EQ(add(vec(i64), zero_dim(f64)).dtype(), f64);
  EXPECT_EQ(add(vec(boolean), zero_dim(i64)).dtype(), i64);
  EXPECT_EQ(add(zero_dim(bf16), zero_dim(f64)).dtype(), f64);
  EXPECT_EQ(add(zero_dim(bf16), zero_dim(f16)).dtype(), f32);
}

TEST(Promotion, NumbersCountOnlyForAHigherCategory) {
  EXPECT_EQ(add(vec(bf16), 2.5).dtype(), bf16);
  EXPECT_EQ(add(zero_dim(f16), 2.5).dtype(), f16);
  EXPECT_EQ(add(vec(f64), 2.5).dtype(), f64);
  EXPECT_EQ(add(vec(i64), 2.5).dtype(), f32);
  EXPECT_EQ(add(zero_dim(i64), 2.5).dtype(), f32);
  EXPECT_EQ(add(vec(boolean), 2.5).dtype(), f32);
  EXPECT_EQ(add(vec(u8), scalar(int64_t{7})).dtype(), u8);
  EXPECT_EQ(add(vec(boolean), scalar(int64_t{7})).dtype(), i64);
  EXPECT_EQ(add(vec(f16), scalar(int64_t{7})).dtype(), f16);
  EXPECT_EQ(add(scalar(1.0), scalar(2.0)).dtype(), f32);
  EXPECT_EQ(add(scalar(int64_t{1}), scalar(int64_t{2})).dtype(), i64);
  EXPECT_EQ(add(scalar(int64_t{1}), scalar(2.5)).dtype(), f32);
}

TEST(Promotion, ThreeKindsAtOnce) {
  const Tensor all[] = {vec(u8), vec(boolean)};
  EXPECT_EQ(cat(all).dtype(), u8);
  EXPECT_EQ(add(add(vec(u8), zero_dim(i64)), 0.5).dtype(), f32);
}

TEST(Promotion, DivisionIsTrueDivision) {
  EXPECT_EQ(div(vec(i64), vec(i64)).dtype(), f32);
  EXPECT_EQ(div(vec(boolean), vec(u8)).dtype(), f32);
  EXPECT_EQ(div(vec(bf16), vec(i64)).dtype(), bf16);
  EXPECT_EQ(div(from_values({7}, {1}, i64), from_values({2}, {1}, i64)).item(), 3.5);
}

TEST(Promotion, InPlaceKeepsTheWrittenType) {
  const Tensor x = vec(bf16);
  EXPECT_EQ(add_(x, vec(f64)).dtype(), bf16);
  EXPECT_EQ(mul_(x, 1.5).to_vector(), (std::vector<double>{3, 3}));
}

}  // namespace epilogue::promotion_test
