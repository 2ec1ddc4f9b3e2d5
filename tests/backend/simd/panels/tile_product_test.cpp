// SPDX-License-Identifier: Apache-2.0
// The loops of products in tiles, on a tile unit in plain code: on any machine with panels of
// AVX-512 each index map is proven, whatever the blocks.
#include "backend/cpu/simd/panels/tile_product.h"

#include <bit>
#include <memory>

#include "backend/cpu/simd/panels/bf16_pairs.h"
#include "backend/cpu/simd/panels/pack.h"
#include "backend/cpu/simd/panels/packed_weights.h"
#include "backend/simd/panels/plain_bytes.h"
#include "backend/simd/panels/plain_tile_unit.h"
#include "base/cpu_features.h"
#include "support/test.h"

namespace epilogue::simd::tile_product_test {

PanelLayout tiled_layout() {
  PanelLayout layout = bf16_pairs_layout(kTileK);
  layout.has_tiles = true;
  return layout;
}

constexpr float kUntouched = -77;

// Takes every block as it comes: two pieces, the second of which copies it.
class CopyingWork final : public TileWork {
 public:
  CopyingWork(int64_t first, int64_t panels, bool makes_lines)
      : first_(first), panels_(panels), makes_lines_(makes_lines) {
    line_function = [](const BlockLines& block, int64_t row, int64_t rows) {
      auto* const seen = reinterpret_cast<std::vector<int64_t>*>(block.out);
      for (int64_t i = 0; i < rows; ++i) seen->push_back(row + i);
    };
  }

  float* sums() override { return sums_.data(); }
  int64_t ready(int64_t block, int64_t panel) override {
    EXPECT_EQ(left_, 0) << "pieces left over";
    if (makes_lines_) {
      if (!rows_.empty()) expect_all_rows();
      rows_.clear();
      lines.out = reinterpret_cast<uint16_t*>(&rows_);
      return kTileBlock;
    }
    at_ = (block - first_) * panels_ + panel;
    left_ = 2;
    return 0;
  }
  int64_t pieces() const override { return left_; }
  void do_piece() override {
    if (--left_ > 0) return;
    if (static_cast<size_t>(at_) >= blocks.size()) blocks.resize(static_cast<size_t>(at_) + 1);
    blocks[static_cast<size_t>(at_)] = sums_;
    ++done;
  }
  void expect_all_rows() const {
    ASSERT_EQ(rows_.size(), 32U);
    for (int64_t i = 0; i < kTileBlock; ++i) EXPECT_EQ(rows_[static_cast<size_t>(i)], i);
  }

  std::vector<std::array<float, kBlockSums>> blocks;
  int64_t done = 0;

 private:
  int64_t first_;
  int64_t panels_;
  bool makes_lines_;
  int64_t at_ = 0;
  int64_t left_ = 0;
  std::vector<int64_t> rows_;
  alignas(64) std::array<float, kBlockSums> sums_{};
};

struct Product {
  int64_t m, k, n;
  int products;
};

class TileProducts : public testing::Test {
 protected:
  void SetUp() override {
    if (pack_kernels().width != kPairsWidth) GTEST_SKIP() << "needs panels of AVX-512";
  }

  // Sums of all blocks, by memory of the caller's.
  void expect(const Product& p, int64_t depth, int64_t chunk, int64_t first, bool overlaps) {
    const PanelLayout layout = tiled_layout();
    const std::vector<uint16_t> a = random_bf16(p.m * p.k, 1);
    std::vector<std::vector<uint16_t>> weights;
    std::vector<PackedPart> parts;
    for (int i = 0; i < p.products; ++i)
      weights.push_back(random_bf16(p.n * p.k, 2 + static_cast<uint32_t>(i)));
    for (const auto& w : weights) parts.push_back({{w.data(), FloatType::bf16, 1, p.k}, p.k});
    const PackedWeights packed(parts, p.n, layout);

    TileArgs args;
    args.rows = {nullptr, p.m, packed.padded_k() / kTileK, depth};
    std::vector<uint16_t> rows(
        static_cast<size_t>(TiledRows::bytes_of(p.m, args.rows.steps)) / 2 + 32, 0x7FC0);  // NaN
    args.rows.data = rows.data();
    for (int64_t i = 0; i < p.m; ++i) args.rows.set_row(i, a.data() + i * p.k, p.k);
    const int64_t each = kTileBlock / p.products;
    args.weights = packed.tiles(0);
    args.products = p.products;
    args.first = first;
    args.last = (p.n + each - 1) / each;
    args.chunk = chunk;
    args.resident = 2;
    args.fetches_rows = true;
    const int64_t panels = args.rows.panels();
    std::vector<float> waiting(static_cast<size_t>(chunk * panels * kBlockSums));
    args.waiting = waiting.data();
    args.overlaps = overlaps;
    CopyingWork work(first, panels, false);
    args.work = &work;
    TileLoops<PlainUnit>(args).run();
    ASSERT_EQ(work.done, (args.last - first) * panels);

    std::vector<float> sums(static_cast<size_t>((args.last - first) * panels * kBlockSums),
                            kUntouched);
    args.work = nullptr;
    args.sums = sums.data();
    TileLoops<PlainUnit>(args).run();

    for (int64_t block = first; block < args.last; ++block)
      for (int64_t i = 0; i < p.m; ++i)
        for (int64_t j = 0; j < std::min(each, p.n - block * each); ++j)
          for (int q = 0; q < p.products; ++q) {
            const int64_t column = block * each + j;
            const auto index = static_cast<size_t>((block - first) * panels + i / kTileBlock);
            const auto place = static_cast<size_t>((q * kTileBlock + i % kTileBlock) * each + j);
            double expected = 0;
            for (int64_t s = 0; s < p.k; ++s)
              expected +=
                  static_cast<double>(widen(a[static_cast<size_t>(i * p.k + s)])) *
                  widen(weights[static_cast<size_t>(q)][static_cast<size_t>(column * p.k + s)]);
            ASSERT_NEAR(sums[index * kBlockSums + place], expected, 1e-5 * static_cast<double>(p.k))
                << p.m << " x " << p.k << " x " << p.n << ", product " << q << " of " << p.products
                << " at " << i << ", " << column << ", depth " << depth << ", chunk " << chunk;
            ASSERT_EQ(work.blocks[index][place], sums[index * kBlockSums + place])
                << "what the work got";
          }
  }
};

TEST_F(TileProducts, EqualSumsInDoubleWhateverTheBlocks) {
  for (const int products : {1, 2})
    for (const int64_t m : {5, 16, 17, 32, 33, 49, 96})
      for (const int64_t k : {1, 33, 96, 160})
        for (const int64_t n : {1, 32, 90})
          for (const int64_t depth : {1, 2, 5})
            expect({m, k, n, products}, std::min(depth, (k + 31) / 32), 2, 0, true);
}

TEST_F(TileProducts, ChunksRangesAndWorkOneAfterTheOther) {
  for (const int products : {1, 2})
    for (const int64_t chunk : {1, 3, 8})
      for (const int64_t first : {0, 2})
        for (const bool overlaps : {false, true})
          expect({70, 128, 150, products}, 2, chunk, first, overlaps);
}

// A block's lines are made in order, each once, within the next block's product and after the last.
TEST_F(TileProducts, LinesAreMadeOnceAndInOrder) {
  const std::vector<uint16_t> w = random_bf16(96 * 64, 3);
  const std::vector<PackedPart> parts = {{{w.data(), FloatType::bf16, 1, 96}, 96}};
  const PackedWeights packed(parts, 64, tiled_layout());
  for (const int64_t depth : {1, 3}) {
    std::vector<uint16_t> rows(static_cast<size_t>(TiledRows::bytes_of(64, 3)) / 2);
    TileArgs args;
    args.rows = {rows.data(), 64, 3, depth};
    args.weights = packed.tiles(0);
    args.last = 2;
    args.resident = 3;
    std::vector<float> waiting(2 * kBlockSums);
    args.waiting = waiting.data();
    CopyingWork work(0, 2, true);
    args.work = &work;
    TileLoops<PlainUnit>(args).run();
    work.expect_all_rows();
  }
}

// Columns as they lie, k or n contiguous or neither, aligned or not: sums have the bits that those
// of columns in tiles have, whatever the blocks.
TEST_F(TileProducts, ColumnsThatAreTiledMeanwhileGiveTheSameBits) {
  for (const int64_t m : {20, 100})
    for (const int64_t k : {31, 160, 200})
      for (const int64_t n : {32, 90, 160})
        for (const int layout : {0, 1, 2})
          for (const int64_t depth : {1, 2, 7})
            for (const int64_t chunk : {1, 3}) {
              SCOPED_TRACE(testing::Message()
                           << m << " x " << k << " x " << n << ", layout " << layout << ", depth "
                           << depth << ", chunk " << chunk);
              const int64_t outer = layout == 0 ? k + 3 : layout == 1 ? 1 : 2 * k + 2;
              const int64_t inner = layout == 0 ? 1 : layout == 1 ? n + 5 : 2;
              const std::vector<uint16_t> a = random_bf16(m * k, 1);
              const std::vector<uint16_t> b = random_bf16((n - 1) * outer + (k - 1) * inner + 1, 2);
              const int64_t steps = (k + kTileK - 1) / kTileK;
              const std::vector<PackedPart> parts = {
                  {{b.data(), FloatType::bf16, inner, outer}, k}};
              const PackedWeights packed(parts, n, tiled_layout());
              TileArgs args;
              std::vector<uint16_t> rows(static_cast<size_t>(TiledRows::bytes_of(m, steps)) / 2);
              args.rows = {rows.data(), m, steps, std::min(depth, steps)};
              for (int64_t i = 0; i < m; ++i) args.rows.set_row(i, a.data() + i * k, k);
              args.weights = packed.tiles(0);
              args.last = (n + kTileBlock - 1) / kTileBlock;
              args.chunk = chunk;
              args.resident = 2;
              const int64_t floats = args.last * args.rows.panels() * kBlockSums;
              std::vector<float> waiting(static_cast<size_t>(floats));
              args.waiting = waiting.data();
              std::vector<float> want(static_cast<size_t>(floats), kUntouched);
              std::vector<float> got = want;
              args.sums = want.data();
              TileLoops<PlainUnit>(args).run();
              const int64_t bytes = FedColumns::bytes_of(args.rows.depth);
              std::vector<char> memory(static_cast<size_t>(bytes) + 1, 'x');
              const FedColumns fed = {
                  {b.data(), FloatType::bf16, outer, inner}, n, k, memory.data()};
              args.fed = &fed;
              args.sums = got.data();
              TileLoops<PlainUnit>(args).run();
              ASSERT_EQ(std::memcmp(got.data(), want.data(), got.size() * sizeof(float)), 0);
              ASSERT_EQ(memory.back(), 'x') << "beyond the parts";
            }
}

// Weights of 4 bits, unpacked on their way into each form, beside their values in double.
class GroupedTiles : public TileProducts {
 protected:
  struct Case {
    Product product;
    GroupFormat format;
    int64_t depth;  // in groups; 0: all of k
    int64_t chunk;
  };

  // Sums of groups, scaled and added up as the chain's work does it.
  class GroupWork final : public TileWork {
   public:
    GroupWork(int64_t panels, std::vector<std::vector<double>>& out, bool has_integers)
        : panels_(panels), out_(out), has_integers_(has_integers) {}
    float* sums() override { return sums_.data(); }
    int64_t ready(int64_t block, int64_t panel) override {
      at_ = block * panels_ + panel;
      scales_ = ones_.data();
      left_ = 1;
      return 0;
    }
    int64_t ready_group(int64_t block, int64_t panel, const GroupSums& group) override {
      EXPECT_EQ(left_, 0) << "sums of the group before are left";
      at_ = block * panels_ + panel;
      scales_ = group.scales;  // read in the piece, as row chains do
      EXPECT_EQ(group.is_first, out_[static_cast<size_t>(at_)].empty());
      left_ = 1;
      return 0;
    }
    int64_t pieces() const override { return left_; }
    void do_piece() override {
      left_ = 0;
      std::vector<double>& to = out_[static_cast<size_t>(at_)];
      to.resize(kBlockSums);
      for (int64_t i = 0; i < kBlockSums; ++i) {
        const float sum = sums_[static_cast<size_t>(i)];
        // The column of one product; of two they lie one above the other.
        const int64_t column =
            products == 1 ? i % kTileBlock : i / (kBlockSums / 2) * kTileColumns + i % kTileColumns;
        to[static_cast<size_t>(i)] +=
            double{has_integers_ ? static_cast<float>(std::bit_cast<int32_t>(sum)) : sum} *
            double{scales_[column]};
      }
    }
    int products = 1;

   private:
    int64_t panels_;
    std::vector<std::vector<double>>& out_;
    bool has_integers_;
    int64_t at_ = 0;
    int64_t left_ = 0;
    alignas(64) std::array<float, kBlockSums> sums_{};
    std::array<float, kTileBlock> ones_ = [] {
      std::array<float, kTileBlock> ones{};
      ones.fill(1);
      return ones;
    }();
    const float* scales_ = nullptr;
  };

  struct IntegerUnit : PlainUnit {
    template <int c, int a, int b>
    static void multiply() {
      PlainUnit::multiply_i8<c, a, b>();
    }
  };

  static void expect_grouped(const Case& c, TileForm form) {
    const Product& p = c.product;
    const int64_t groups = p.k / c.format.size;
    std::mt19937 generator(7);
    std::uniform_int_distribution<int> bytes(0, 255);
    std::vector<std::vector<uint8_t>> steps(2);
    std::vector<std::vector<uint16_t>> scales;
    std::vector<std::vector<uint8_t>> zeros(2);
    std::vector<GroupedPart> grouped;
    std::vector<PackedPart> parts;
    for (size_t q = 0; q < static_cast<size_t>(p.products); ++q) {
      steps[q].resize(static_cast<size_t>(p.n * p.k / 2));
      for (uint8_t& b : steps[q]) b = static_cast<uint8_t>(bytes(generator));
      zeros[q].resize(static_cast<size_t>(p.n * groups));
      for (uint8_t& z : zeros[q]) z = static_cast<uint8_t>(bytes(generator) % 17);
      std::vector<float> wide(zeros[q].size());
      for (float& s : wide) s = static_cast<float>(bytes(generator) - 128) / 64;
      scales.emplace_back(wide.size());
      from_f32(c.format.scales, wide.data(), scales[q].data(), wide.size());
    }
    for (size_t q = 0; q < static_cast<size_t>(p.products); ++q)
      grouped.push_back({steps[q].data(), scales[q].data(),
                         c.format.has_zeros ? zeros[q].data() : nullptr, c.format.size});
    for (const GroupedPart& g : grouped) parts.push_back({{}, p.k, &g});
    const PackedWeights packed(parts, p.n, i4_kernels().kernel.layout, Join::columns,
                               {Precision::i4, c.format});
    const auto weight = [&](size_t q, int64_t column, int64_t k) {
      const auto at = static_cast<size_t>(column * groups + k / c.format.size);
      const int step = steps[q][static_cast<size_t>(column * p.k + k) / 2] >> (k % 2 * 4) & 15;
      float scale = 0;
      to_f32(c.format.scales, &scales[q][at], &scale, 1);
      return double{scale} * (step - (c.format.has_zeros ? int{zeros[q][at]} : 8));
    };

    const bool has_bytes = form == TileForm::bytes;
    const auto bytes_of = [&](size_t q, int64_t column) {
      return plain_bytes(
          p.k, c.format.size,
          [&](int64_t k) {
            return steps[q][static_cast<size_t>(column * p.k + k) / 2] >> (k % 2 * 4) & 15;
          },
          [&](int64_t g) {
            float scale = 0;
            to_f32(c.format.scales, &scales[q][static_cast<size_t>(column * groups + g)], &scale,
                   1);
            return scale;
          },
          [&](int64_t g) {
            return c.format.has_zeros ? int{zeros[q][static_cast<size_t>(column * groups + g)]} : 8;
          });
    };
    std::vector<int8_t> small(static_cast<size_t>(p.m * p.k));
    std::vector<uint16_t> halves(small.size());
    for (size_t i = 0; i < small.size(); ++i) {
      small[i] = static_cast<int8_t>(bytes(generator) - 128);
      const auto value = static_cast<float>(small[i]);
      from_f32(FloatType::bf16, &value, &halves[i], 1);
    }
    GroupColumns columns(c.format, packed.panel(0, 0), packed.panel_bytes(p.k), p.products, form);
    const int64_t step_k = has_bytes ? 2 * kTileK : kTileK;
    const int64_t group_steps = form == TileForm::bytes ? kBytesK / step_k : c.format.size / step_k;
    TileArgs args;
    args.rows = {nullptr, p.m, (p.k + step_k - 1) / step_k, 0};
    args.rows.depth =
        c.depth == 0 ? args.rows.steps : std::min(args.rows.steps, c.depth * group_steps);
    std::vector<uint16_t> rows(static_cast<size_t>(TiledRows::bytes_of(p.m, args.rows.steps)) / 2 +
                               32);
    args.rows.data = rows.data();
    for (int64_t i = 0; i < p.m; ++i) {
      if (has_bytes) {
        args.rows.set_row(i, reinterpret_cast<const uint16_t*>(small.data() + i * p.k), p.k / 2);
      } else {
        args.rows.set_row(i, halves.data() + i * p.k, p.k);
      }
    }
    const int64_t each = kTileBlock / p.products;
    const int64_t panels = args.rows.panels();
    args.columns = &columns;
    args.group_steps = columns.group_steps();
    args.products = p.products;
    args.last = (p.n + each - 1) / each;
    args.chunk = c.chunk;
    args.resident = 2;
    std::vector<float> waiting(static_cast<size_t>(c.chunk * panels * kBlockSums));
    args.waiting = waiting.data();
    std::vector<float> memory(static_cast<size_t>(GroupColumns::floats(args.rows.depth)) + 16);
    void* at = memory.data();
    size_t space = memory.size() * sizeof(float);
    columns.set_memory(static_cast<float*>(std::align(64, space - 64, at, space)), args.rows.depth);
    std::vector<std::vector<double>> out(static_cast<size_t>(args.last * panels));
    GroupWork work(panels, out, has_bytes);
    work.products = p.products;
    args.work = &work;
    if (has_bytes) {
      TileLoops<IntegerUnit, true>(args).run();
    } else {
      TileLoops<PlainUnit, true>(args).run();
    }
    for (int64_t column = 0; column < p.n; ++column)
      for (int q = 0; q < p.products; ++q) {
        const PlainBytes exact = bytes_of(static_cast<size_t>(q), column);
        for (int64_t i = 0; i < p.m; ++i) {
          double expected = 0;
          double bound = 1e-9;
          for (int64_t k = 0; k < p.k; ++k) {
            const double w = has_bytes ? exact.bytes[static_cast<size_t>(k)] *
                                             double{exact.scales[static_cast<size_t>(k / kBytesK)]}
                                       : weight(static_cast<size_t>(q), column, k);
            const double product = w * small[static_cast<size_t>(i * p.k + k)];
            expected += product;
            // Values are rounded to bf16, integers are not.
            bound += std::abs(product) * (form == TileForm::values ? 0x1p-8 : 0x1p-30);
          }
          const auto block = static_cast<size_t>(column / each * panels + i / kTileBlock);
          const auto place =
              static_cast<size_t>((q * kTileBlock + i % kTileBlock) * each + column % each);
          ASSERT_NEAR(out[block][place], expected, bound)
              << p.m << " x " << p.k << " x " << p.n << " groups of " << c.format.size << ", form "
              << static_cast<int>(form) << ", product " << q << " of " << p.products << " at " << i
              << ", " << column;
        }
      }
  }
};

TEST_F(GroupedTiles, GiveTheProductsOfTheirWeightsWhateverTheBlocks) {
  if (!cpu_has(CpuFeature::avx512_bf16)) GTEST_SKIP() << "needs AVX512-BF16";
  for (const int products : {1, 2})
    for (const auto& [m, k, n] : {std::array<int64_t, 3>{5, 128, 3}, {17, 384, 50}, {49, 384, 65}})
      for (const bool has_zeros : {false, true})
        for (const int64_t depth : {0, 1, 2}) {
          const FloatType scales = depth == 1 ? FloatType::f16 : FloatType::bf16;
          const GroupFormat wide = {128, has_zeros, scales};
          const GroupFormat narrow = {32, has_zeros, scales};
          for (const TileForm form : {TileForm::values, TileForm::pairs}) {
            expect_grouped({{m, k, n, products}, wide, depth, 1 + depth}, form);
            expect_grouped({{m, k, n, products}, narrow, depth, 2}, form);
          }
        }
}

// Bytes of one scale, exactly: of groups that end in the midst of a step, of more than one scale,
// and of blocks of k of each.
TEST_F(GroupedTiles, AreBytesOfOneScale) {
  if (!cpu_has(CpuFeature::avx512_bf16)) GTEST_SKIP() << "needs AVX512-BF16";
  for (const int products : {1, 2})
    for (const auto& [m, k, n] :
         {std::array<int64_t, 3>{5, 32, 3}, {17, 416, 50}, {33, 1184, 65}, {49, 1536, 34}})
      for (const bool has_zeros : {false, true})
        for (const int64_t depth : {0, 1, 2}) {
          const FloatType scales = depth == 1 ? FloatType::f16 : FloatType::bf16;
          expect_grouped({{m, k, n, products}, {32, has_zeros, scales}, depth, 1 + depth},
                         TileForm::bytes);
          if (k % 128 == 0)
            expect_grouped({{m, k, n, products}, {128, has_zeros, scales}, depth, 1 + depth},
                           TileForm::bytes);
          if (k == 1536)
            for (const int64_t size : {96, 768})
              expect_grouped({{m, k, n, products}, {size, has_zeros, scales}, depth, 1 + depth},
                             TileForm::bytes);
        }
}

TEST(TiledRows, ARowIsCutIntoStepsAndPaddedWithZeros) {
  TiledRows rows{nullptr, 40, 5, 2};
  std::vector<uint16_t> memory(static_cast<size_t>(TiledRows::bytes_of(40, 5)) / 2, 9);
  rows.data = memory.data();
  std::vector<uint16_t> row(150);
  for (size_t i = 0; i < row.size(); ++i) row[i] = static_cast<uint16_t>(100 + i);
  rows.set_row(35, row.data(), 150);
  for (int64_t k = 0; k < 160; ++k)
    EXPECT_EQ(rows.line(35, k / 32)[k % 32], k < 150 ? 100 + k : 0) << k;
  EXPECT_EQ(rows.line(34, 0)[0], 9) << "the row before";
  EXPECT_EQ(rows.line(36, 4)[31], 9) << "the row after";
  // A block of k of all rows is one run: two panels of two steps, then the next block.
  EXPECT_EQ(rows.pair(1, 0) - rows.pair(0, 0), 2 * kTilePair);
  EXPECT_EQ(rows.pair(0, 2) - rows.pair(0, 0), 4 * kTilePair);
  EXPECT_EQ(rows.pair(1, 4) - rows.pair(0, 4), kTilePair) << "the last block has one step";
  rows.clear_from(70);
  EXPECT_EQ(rows.line(35, 2)[5], 169);
  EXPECT_EQ(rows.line(35, 2)[6], 0);
  EXPECT_EQ(rows.line(0, 4)[31], 0);
}

// L1 of 48 KiB holds 24 steps, L2 of 2 MiB half of which are rows; others in proportion.
TEST(TileBlocks, FollowTheCaches) {
  EXPECT_EQ(tile_depth(0), 1);
  EXPECT_EQ(tile_depth(7), 7);
  for (const int64_t steps : {25, 96, 128, 448}) {
    const int64_t depth = tile_depth(steps);
    EXPECT_GE(depth, 1);
    EXPECT_LE(depth, steps);
    EXPECT_EQ(tile_depth(4 * steps, 4, 2) % 4, 0) << "whole groups";
    EXPECT_LE(tile_depth(4 * steps, 4, 2), tile_depth(4 * steps) + 4);
    const TileBlocks few = tile_blocks(1, std::min<int64_t>(steps, 128), 100);
    EXPECT_EQ(few.chunk, 1) << "rows that stay in L2 are read again from there";
    const TileBlocks many = tile_blocks(400, steps, 100);
    EXPECT_TRUE(many.fetches_rows || depth == steps);
    EXPECT_GE(many.chunk, 1);
    EXPECT_LE(many.chunk, 100);
  }
  for (const int64_t k : {64, 768, 4096, 100'000}) {
    EXPECT_GE(tile_block_rows(k), 256);
    EXPECT_EQ(tile_block_rows(k) % kTileBlock, 0);
  }
}

}  // namespace epilogue::simd::tile_product_test
