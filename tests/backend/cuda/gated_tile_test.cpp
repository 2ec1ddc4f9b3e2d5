// SPDX-License-Identifier: Apache-2.0
// The Hopper kernel's walk over tiles, and the calls it takes.
#include "backend/cuda/kernels/gated_sm90.h"
#include "support/test.h"

namespace epilogue::cuda::gated_tile_test {

TEST(GatedTile, EveryTileIsVisitedOnce) {
  for (const int64_t rows : {1, 3, 7, 8, 9, 16, 31, 64})
    for (const int64_t columns : {1, 2, 5, 24}) {
      std::set<std::pair<int64_t, int64_t>> seen;
      for (int64_t i = 0; i < rows * columns; ++i) {
        const GatedTile t = gated_tile(i, rows, columns);
        EXPECT_TRUE(t.row >= 0 && t.row < rows && t.column >= 0 && t.column < columns);
        EXPECT_TRUE(seen.emplace(t.row, t.column).second) << rows << " x " << columns << ": " << i;
      }
    }
}

TEST(GatedTile, NeighboursShareAColumnOfWeights) {
  for (int64_t i = 0; i < 8; ++i) EXPECT_EQ(gated_tile(i, 64, 24).column, 0);
  EXPECT_EQ(gated_tile(8, 64, 24).column, 1);
  EXPECT_EQ(gated_tile(8, 64, 24).row, 0);
}

GatedCall call() {
  GatedCall c;
  c.rows = 5;
  c.hidden = 24;
  c.k = 40;
  c.x = c.gate = c.up = c.out = reinterpret_cast<void*>(uintptr_t{4096});
  c.x_stride = c.gate_stride = c.up_stride = 40;
  c.out_stride = 24;
  return c;
}

std::string reason(const GatedCall& c) {
  const char* const why = decline_gated_sm90(c);
  return why != nullptr ? why : "";
}

TEST(GatedCall, SaysWhatItNeeds) {
  EXPECT_EQ(reason(call()), "");
  GatedCall f32 = call();
  f32.dtype = DType::f32;
  EXPECT_EQ(reason(f32), "needs bf16 or f16");
  GatedCall exact = call();
  exact.activation = PointwiseFn::gelu_erf;
  EXPECT_EQ(reason(exact), "needs gelu_tanh, silu or relu");
  const std::string kRows = "needs rows of multiples of 16 bytes";
  GatedCall odd_hidden = call();
  odd_hidden.hidden = 23;
  EXPECT_EQ(reason(odd_hidden), kRows);
  GatedCall odd_stride = call();
  odd_stride.x_stride = 41;
  EXPECT_EQ(reason(odd_stride), kRows);
  GatedCall odd_start = call();
  odd_start.up = reinterpret_cast<void*>(uintptr_t{4098});
  EXPECT_EQ(reason(odd_start), kRows);
  GatedCall empty = call();
  empty.k = 0;
  EXPECT_EQ(reason(empty), kRows);
  GatedCall huge = call();
  huge.rows = int64_t{1} << 31;
  EXPECT_EQ(reason(huge), "needs sizes below 2^30");
}

}  // namespace epilogue::cuda::gated_tile_test
