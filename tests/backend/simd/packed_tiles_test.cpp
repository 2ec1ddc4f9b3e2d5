// SPDX-License-Identifier: Apache-2.0
// The tile loops on a tile unit in plain code, which checks what the processor would: shapes that
// fit, no more rows touched than configured. So their index maps are proven on machines without
// AMX.
#include "backend/cpu/simd/packed_tiles.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

namespace epilogue::simd {
namespace {

float widen(uint16_t bf16) {
  const uint32_t bits = uint32_t{bf16} << 16;
  float value = 0;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

// Eight registers of 16 rows of 64 bytes.
struct PlainUnit {
  inline static unsigned char tile[8][16][64];
  inline static TileRows rows{};
  inline static int configured = 0;
  inline static int released = 0;

  static void configure(const TileRows& r) {
    ++configured;
    rows = r;
    std::memset(tile, 0, sizeof tile);
  }
  static void release() { ++released; }
  template <int t>
  static void zero() {
    std::memset(tile[t], 0, sizeof tile[t]);
  }
  template <int t>
  static void load(const void* p, int64_t stride) {
    ASSERT_GT(rows[t], 0) << "tile " << t;
    for (int i = 0; i < rows[t]; ++i)
      std::memcpy(tile[t][i], static_cast<const char*>(p) + i * stride, 64);
  }
  template <int t>
  static void store(void* p, int64_t stride) {
    ASSERT_GT(rows[t], 0) << "tile " << t;
    for (int i = 0; i < rows[t]; ++i)
      std::memcpy(static_cast<char*>(p) + i * stride, tile[t][i], 64);
  }
  template <int c, int a, int b>
  static void multiply() {
    ASSERT_EQ(rows[c], rows[a]);
    ASSERT_EQ(rows[b], 16);  // as many pairs as a row of `a` has
    for (int i = 0; i < rows[c]; ++i)
      for (int j = 0; j < 16; ++j) {
        float sum = 0;
        std::memcpy(&sum, &tile[c][i][j * 4], sizeof sum);
        for (int p = 0; p < 32; ++p) {
          uint16_t x = 0;
          uint16_t y = 0;
          std::memcpy(&x, &tile[a][i][p * 2], sizeof x);
          std::memcpy(&y, &tile[b][p / 2][(2 * j + p % 2) * 2], sizeof y);
          sum += widen(x) * widen(y);
        }
        std::memcpy(&tile[c][i][j * 4], &sum, sizeof sum);
      }
  }
};

std::vector<uint16_t> random_bf16(int64_t count, uint32_t seed) {
  std::mt19937 generator(seed);
  std::uniform_real_distribution<float> values(-1, 1);
  std::vector<float> f32(static_cast<size_t>(count));
  for (float& x : f32) x = values(generator);
  std::vector<uint16_t> out(f32.size());
  from_f32(FloatType::bf16, f32.data(), out.data(), out.size());
  return out;
}

constexpr PackedLayout kLayout = {.width = kTilesWidth, .pairs_k = kTileK};
constexpr float kUntouched = -77;

// Rows of A lie `gap` elements further apart than they are long; sums have a row to spare.
void expect_product(int64_t m, int64_t k, int64_t n, int parts) {
  constexpr int64_t gap = 3;
  const int64_t depth = padded_depth(k, PanelType::bf16_pairs, kLayout);
  std::vector<uint16_t> a = random_bf16(m * (depth + gap), 1);
  for (int64_t i = 0; i < m; ++i)
    std::fill_n(a.begin() + i * (depth + gap) + k, depth - k, uint16_t{0});
  std::vector<std::vector<uint16_t>> weights;
  std::vector<PackedPart> packed_parts;
  for (int p = 0; p < parts; ++p)
    weights.push_back(random_bf16(k * n, 2 + static_cast<uint32_t>(p)));
  for (const auto& w : weights) packed_parts.push_back({{w.data(), FloatType::bf16, n, 1}, k});
  const PackedWeights packed(packed_parts, n, PanelType::bf16_pairs, kLayout);
  const int64_t each = packed.columns_per_panel();
  std::vector<float> sums[2];
  for (int64_t panel = 0; panel < packed.panels(); ++panel) {
    for (auto& s : sums) s.assign(static_cast<size_t>((m + 1) * each), kUntouched);
    PanelArgs args;
    args.m = m;
    args.k = depth;
    args.a = a.data();
    args.a_stride = depth + gap;
    args.panel = packed.panel(panel, 0);
    args.sums[0] = sums[0].data();
    args.sums[1] = sums[1].data();
    TileProduct<PlainUnit>(args, parts).run();
    args.accumulate = true;  // once more on top: twice the product
    TileProduct<PlainUnit>(args, parts).run();
    for (int p = 0; p < parts; ++p) {
      const auto at = [&](int64_t i, int64_t j) {
        return sums[p][static_cast<size_t>(i * each + j)];
      };
      for (int64_t j = 0; j < each; ++j) ASSERT_EQ(at(m, j), kUntouched) << "beyond the last row";
      for (int64_t i = 0; i < m; ++i)
        for (int64_t j = 0; j < std::min(each, n - panel * each); ++j) {
          const int64_t column = panel * each + j;
          double expected = 0;
          for (int64_t q = 0; q < k; ++q)
            expected += 2.0 * widen(a[static_cast<size_t>(i * (depth + gap) + q)]) *
                        widen(weights[static_cast<size_t>(p)][static_cast<size_t>(q * n + column)]);
          ASSERT_NEAR(at(i, j), expected, 1e-5 * static_cast<double>(k))
              << m << " x " << k << " x " << n << ", part " << p << " of " << parts << " at " << i
              << ", " << column;
        }
    }
  }
}

// Weights are packed with vectors: tiles take panels as wide as those of AVX-512.
class PackedTiles : public testing::Test {
 protected:
  void SetUp() override {
    if (packed_kernels().layout.width != kTilesWidth) GTEST_SKIP() << "needs panels of AVX-512";
  }
};

TEST_F(PackedTiles, EqualsSumsInDouble) {
  for (const int parts : {1, 2})
    for (const int64_t m : {1, 15, 16, 17, 31, 32, 33, 49, 96})
      for (const int64_t k : {1, 32, 33, 96})
        for (const int64_t n : {1, 32, 65}) expect_product(m, k, n, parts);
}

TEST_F(PackedTiles, ConfiguresOncePerShapeAndReleasesAtTheEnd) {
  const auto count = [](int64_t m) {
    PlainUnit::configured = PlainUnit::released = 0;
    expect_product(m, 32, 32, 2);  // one panel, two products
    EXPECT_EQ(PlainUnit::released, 2) << m;
    return PlainUnit::configured;
  };
  EXPECT_EQ(count(64), 2);
  EXPECT_EQ(count(20), 2);
  EXPECT_EQ(count(70), 4);
}

}  // namespace
}  // namespace epilogue::simd
