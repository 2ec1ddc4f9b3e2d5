// SPDX-License-Identifier: Apache-2.0
#include "bench/ladder_kernels.h"

#include "bench/agreement.h"
#include "bench/ladder_tiles.h"
#include "epilogue/ops.h"
#include "support/test.h"

namespace epilogue::bench::ladder::ladder_kernels_test {

// One rounding of an f32 sum; bf16 rounds to 8 bits.
double allowed(DType dtype) { return dtype == DType::f32 ? 1e-6 : 0x1p-8; }

TEST(LadderKernels, AllRungsComputeTheProductAtOddSizes) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const int64_t m : {1, 3, 4, 5, 9}) {
      for (const int64_t n : {1, 7, 8, 67, 130}) {
        for (const int64_t k : {1, 5, 64}) {
          const Tensor x = randn({m, k}, dtype);
          const Tensor w = randn({n, k}, dtype);
          const Tensor exact = mm(to(x, DType::f64), t(to(w, DType::f64)));
          const Tensor y = full({m, n}, NAN, dtype);
          const auto check = [&](const char* rung) {
            EXPECT_LE(relative_l2(y, exact), allowed(dtype))
                << rung << " " << m << " x " << n << " x " << k << " " << dtype_name(dtype);
            fill_(y, NAN);
          };
          naive_product(x, w, y);
          check("naive");
          blocked_product(x, w, y);
          check("blocked");
          PackedProduct(w).run(x, y);
          check("packed");
        }
      }
    }
  }
}

constexpr TileStep kTileSteps[] = {TileStep::panels, TileStep::tiled, TileStep::overlaps,
                                   TileStep::fetches, TileStep::blocks};

TEST(LadderTiles, AllRungsComputeTheProductAtOddSizes) {
  if (!TiledProduct::is_there()) GTEST_SKIP() << "no tiles of bf16 at this level";
  for (const TileStep step : kTileSteps) {
    for (const int64_t m : {1, 5, 33, 417}) {
      for (const int64_t n : {1, 32, 67, 130}) {
        for (const int64_t k : {1, 32, 71}) {
          const Tensor x = randn({m, k}, DType::bf16);
          const Tensor w = randn({n, k}, DType::bf16);
          const Tensor y = full({m, n}, NAN, DType::bf16);
          TiledProduct(w, step).run(x, y);
          EXPECT_LE(relative_l2(y, mm(to(x, DType::f64), t(to(w, DType::f64)))),
                    allowed(DType::bf16))
              << static_cast<int>(step) << " " << m << " x " << n << " x " << k;
        }
      }
    }
  }
}

TEST(LadderTiles, TheRungsSumInOneOrder) {
  if (!TiledProduct::is_there()) GTEST_SKIP() << "no tiles of bf16 at this level";
  // So deep that L1 does not hold a block of weights: the last rung cuts k.
  const Tensor x = randn({70, 1632}, DType::bf16);
  const Tensor w = randn({40, 1632}, DType::bf16);
  const Tensor first = empty({70, 40}, DType::bf16);
  TiledProduct(w, kTileSteps[0]).run(x, first);
  for (const TileStep step : kTileSteps) {
    const Tensor y = full({70, 40}, NAN, DType::bf16);
    TiledProduct(w, step).run(x, y);
    EXPECT_EQ(y.to_vector(), first.to_vector()) << static_cast<int>(step);
  }
}

TEST(LadderTiles, OtherDtypesAndSizesAreRefused) {
  if (!TiledProduct::is_there()) GTEST_SKIP() << "no tiles of bf16 at this level";
  const Tensor w = empty({3, 4}, DType::bf16);
  const Tensor y = empty({2, 3}, DType::bf16);
  EXPECT_THROW(TiledProduct(empty({3, 4}), TileStep::tiled), Error);
  EXPECT_THROW(TiledProduct(t(w), TileStep::panels), Error);
  EXPECT_THROW(TiledProduct(w, TileStep::panels).run(empty({2, 5}, DType::bf16), y), Error);
  EXPECT_THROW(TiledProduct(w, TileStep::fetches).run(empty({2, 4}), y), Error);
}

TEST(LadderKernels, EmptySizesGiveZerosOrNothing) {
  const Tensor y = full({2, 3}, 7);
  naive_product(empty({2, 0}), empty({3, 0}), y);
  EXPECT_EQ(y.to_vector(), std::vector<double>(6, 0));
  fill_(y, 7);
  blocked_product(empty({2, 0}), empty({3, 0}), y);
  EXPECT_EQ(y.to_vector(), std::vector<double>(6, 0));
  fill_(y, 7);
  PackedProduct(empty({3, 0})).run(empty({2, 0}), y);
  EXPECT_EQ(y.to_vector(), std::vector<double>(6, 0));
  naive_product(empty({0, 4}), empty({3, 4}), empty({0, 3}));
  blocked_product(empty({0, 4}), empty({3, 4}), empty({0, 3}));
}

TEST(LadderKernels, PointwiseLoopsAreTheOps) {
  const Tensor x = from_values({-2, -0.5, 0, 1, 3}, {5});
  const Tensor y = empty({5});
  scalar_gelu(x, y);
  // 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) in double.
  const std::vector<double> expected = {-0.0454023059, -0.1542859952, 0, 0.8411919906,
                                        2.9963627608};
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(y.to_vector()[i], expected[i], 1e-6);
  scalar_mul(x, x, y);
  EXPECT_EQ(y.to_vector(), (std::vector<double>{4, 0.25, 0, 1, 9}));
}

TEST(LadderKernels, OtherDtypesAndSizesAreRefused) {
  const Tensor y = empty({2, 3});
  EXPECT_THROW(naive_product(empty({2, 4}), empty({3, 5}), y), Error);
  EXPECT_THROW(blocked_product(empty({2, 4}), t(empty({4, 3})), y), Error);
  EXPECT_THROW(PackedProduct(empty({3, 4})).run(empty({2, 4}, DType::bf16), y), Error);
  EXPECT_THROW(naive_product(empty({2, 4}, DType::f64), empty({3, 4}, DType::f64),
                             empty({2, 3}, DType::f64)),
               Error);
  EXPECT_THROW(scalar_mul(empty({3}), empty({2}), empty({3})), Error);
}

}  // namespace epilogue::bench::ladder::ladder_kernels_test
