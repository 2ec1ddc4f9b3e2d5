// SPDX-License-Identifier: Apache-2.0
// The tile loops on a tile unit in plain code: so their index maps are proven on machines without
// AMX.
#include "backend/cpu/simd/panels/amx_tiles.h"

#include "backend/cpu/simd/panels/bf16_pairs.h"
#include "backend/cpu/simd/panels/pack.h"
#include "backend/cpu/simd/panels/packed_weights.h"
#include "backend/simd/panels/plain_tile_unit.h"
#include "support/test.h"

namespace epilogue::simd::amx_tiles_test {

const PanelLayout kLayout = bf16_pairs_layout(kTileK);
constexpr float kUntouched = -77;

// Rows of A lie `gap` elements further apart than they are long; sums have a row to spare.
void expect_product(int64_t m, int64_t k, int64_t n, int parts) {
  constexpr int64_t gap = 3;
  const int64_t depth = kLayout.padded(k);
  std::vector<uint16_t> a = random_bf16(m * (depth + gap), 1);
  for (int64_t i = 0; i < m; ++i)
    std::fill_n(a.begin() + i * (depth + gap) + k, depth - k, uint16_t{0});
  std::vector<std::vector<uint16_t>> weights;
  std::vector<PackedPart> packed_parts;
  for (int p = 0; p < parts; ++p)
    weights.push_back(random_bf16(k * n, 2 + static_cast<uint32_t>(p)));
  for (const auto& w : weights) packed_parts.push_back({{w.data(), FloatType::bf16, n, 1}, k});
  const PackedWeights packed(packed_parts, n, kLayout);
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
    args.sums[1] = parts == 2 ? sums[1].data() : nullptr;
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
class AmxTiles : public testing::Test {
 protected:
  void SetUp() override {
    if (pack_kernels().width != kTilesWidth) GTEST_SKIP() << "needs panels of AVX-512";
  }
};

TEST_F(AmxTiles, EqualsSumsInDouble) {
  for (const int parts : {1, 2})
    for (const int64_t m : {1, 15, 16, 17, 31, 32, 33, 49, 96})
      for (const int64_t k : {1, 32, 33, 96})
        for (const int64_t n : {1, 32, 65}) expect_product(m, k, n, parts);
}

TEST_F(AmxTiles, ConfiguresOncePerShapeAndReleasesAtTheEnd) {
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

// Two pieces per block, done on the block before; sums of each block in memory of its own.
class CountingWork final : public PanelWork {
 public:
  explicit CountingWork(int64_t width) : width_(width) {}

  std::array<float*, 2> begin(int64_t row, int64_t rows) override {
    EXPECT_EQ(left_, 0) << "pieces left over at row " << row;
    EXPECT_EQ(row, next_row_);
    EXPECT_LE(rows, kBlockRows);
    left_ = row == 0 ? 0 : 2;
    next_row_ += rows;
    auto& sums = blocks_.emplace_back();
    for (auto& s : sums) s.assign(static_cast<size_t>(rows * width_), kUntouched);
    return {sums[0].data(), sums[1].data()};
  }
  int64_t pieces() const override { return left_; }
  void do_piece() override {
    --left_;
    ++done_;
    // The block before is stored, this one is not.
    const size_t last_part = width_ == kTilesWidth ? 0 : 1;
    EXPECT_NE(blocks_[blocks_.size() - 2][last_part].back(), kUntouched);
    EXPECT_EQ(blocks_.back()[last_part].back(), kUntouched);
  }

  int64_t rows() const { return next_row_; }
  int done() const { return done_; }
  float sum(int part, int64_t row, int64_t column) const {
    const auto& block = blocks_[static_cast<size_t>(row / kBlockRows)][static_cast<size_t>(part)];
    return block[static_cast<size_t>(row % kBlockRows * width_ + column)];
  }

 private:
  int64_t width_;
  int64_t next_row_ = 0;
  int64_t left_ = 0;
  int done_ = 0;
  std::vector<std::array<std::vector<float>, 2>> blocks_;
};

// Later chunks of k too: they add to what `sums` has.
TEST_F(AmxTiles, WorkRunsBetweenProductsAndGetsTheSameSums) {
  constexpr int64_t k = 96;
  const std::vector<uint16_t> w = random_bf16(k * 64, 2);
  for (const int parts : {1, 2}) {
    const int64_t each = kTilesWidth / parts;
    const std::vector<PackedPart> list(static_cast<size_t>(parts),
                                       {{w.data(), FloatType::bf16, 64, 1}, k});
    const PackedWeights packed(list, each, kLayout);
    for (const int64_t m : {5, 32, 40, 64, 131})
      for (const bool accumulates : {false, true}) {
        const std::vector<uint16_t> a = random_bf16(m * k, 1);
        std::vector<float> sums(static_cast<size_t>(2 * m * each));
        for (size_t i = 0; i < sums.size(); ++i) sums[i] = static_cast<float>(i % 7);
        const std::vector<float> before = sums;
        PanelArgs args;
        args.m = m;
        args.k = k;
        args.a = a.data();
        args.a_stride = k;
        args.panel = packed.panel(0, 0);
        args.sums[0] = sums.data();
        args.sums[1] = parts == 2 ? sums.data() + m * each : nullptr;
        args.accumulate = accumulates;
        CountingWork work(each);
        args.work = &work;
        TileProduct<PlainUnit>(args, parts).run();
        EXPECT_EQ(sums, before) << "sums are read only";
        EXPECT_EQ(work.rows(), m);
        EXPECT_EQ(work.done(), 2 * ((m - 1) / 32));
        args.work = nullptr;
        TileProduct<PlainUnit>(args, parts).run();
        for (int p = 0; p < parts; ++p)
          for (int64_t i = 0; i < m; ++i)
            for (int64_t j = 0; j < each; ++j)
              ASSERT_EQ(work.sum(p, i, j), args.sums[p][i * each + j])
                  << m << " rows, part " << p << " at " << i << ", " << j;
      }
  }
}

}  // namespace epilogue::simd::amx_tiles_test
