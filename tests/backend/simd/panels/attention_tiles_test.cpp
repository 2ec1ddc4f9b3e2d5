// SPDX-License-Identifier: Apache-2.0
// The loops of attention in tiles, on a tile unit in plain code: on any machine with AVX-512's bf16
// each index map is proven.
#include "backend/cpu/simd/panels/attention_tiles.h"

#include <cmath>

#include "backend/cpu/simd/panels/pack_tiles.h"
#include "backend/simd/panels/plain_tile_unit.h"
#include "base/cpu_features.h"
#include "support/test.h"

namespace epilogue::simd::attention_tiles_test {

struct Problem {
  int64_t queries, keys, depth, values;
  bool causal;
  int64_t run = 0;  // above 0: so many blocks of queries in a row see keys, then two see none
};

class AttentionTilesTest : public testing::TestWithParam<Problem> {};

// o = softmax(q k^T) v of one item, all of it in f64.
TEST_P(AttentionTilesTest, IsAttention) {
  if (!cpu_has(CpuFeature::avx512_bf16)) GTEST_SKIP() << "needs AVX512-BF16";
  const Problem p = GetParam();
  const std::vector<uint16_t> q = random_bf16(p.queries * p.depth, 1);
  const std::vector<uint16_t> k = random_bf16(p.keys * p.depth, 2);
  const std::vector<uint16_t> v = random_bf16(p.keys * p.values, 3);
  const auto is_blind = [&](int64_t i) {
    return p.run > 0 && i / kQueryRows % (p.run + 2) >= p.run;
  };
  const auto seen = [&](int64_t i, int64_t j) { return !is_blind(i) && (!p.causal || j <= i); };
  const std::vector<KeysSeen> none(static_cast<size_t>(p.keys / kScoreKeys + 1), KeysSeen::none);

  const auto aligned = [](std::vector<char>& memory, int64_t bytes) {
    memory.assign(static_cast<size_t>(bytes) + 64, 0x7F);
    return memory.data() + (64 - reinterpret_cast<uintptr_t>(memory.data()) % 64) % 64;
  };
  std::vector<char> key_memory;
  std::vector<char> value_memory;
  std::vector<char> work;
  const int64_t key_steps = AttentionTiles::steps_of(p.depth);
  const int64_t value_steps = AttentionTiles::steps_of(AttentionTiles::padded_keys(p.keys));
  char* const keys = aligned(key_memory, AttentionTiles::key_bytes(p.keys, p.depth));
  char* const values = aligned(value_memory, AttentionTiles::value_bytes(p.keys, p.values));
  for (int64_t j = 0; j < p.keys; j += kTileBlock)
    pack_tile_block({k.data() + j * p.depth, FloatType::bf16, p.depth, 1},
                    std::min(kTileBlock, p.keys - j), p.depth, key_steps,
                    keys + j / kTileBlock * key_steps * kTilePairBytes);
  for (int64_t j = 0; j < p.values; j += kTileBlock)
    pack_tile_block({v.data() + j, FloatType::bf16, 1, p.values},
                    std::min(kTileBlock, p.values - j), p.keys, value_steps,
                    values + j / kTileBlock * value_steps * kTilePairBytes);

  constexpr uint16_t kUntouched = 0x4242;
  std::vector<uint16_t> out(static_cast<size_t>(p.queries * p.values), kUntouched);
  const auto block_at = [&](int64_t i, int64_t /*slot*/) {
    QueryBlock block;
    const int64_t row = i * kQueryRows;
    block.queries = q.data() + row * p.depth;
    block.rows = std::min(kQueryRows, p.queries - row);
    if (p.causal) block.first_limit = row + 1;
    if (is_blind(row)) block.seen_blocks = none.data();
    block.out = out.data() + row * p.values;
    return block;
  };
  AttentionArgs args = {.blocks = (p.queries + kQueryRows - 1) / kQueryRows, .block = block_at};
  args.query_stride = p.depth;
  args.depth = p.depth;
  args.keys = keys;
  args.values = values;
  args.key_count = p.keys;
  args.value_count = p.values;
  args.scale = 1.44269504F;
  args.out_stride = p.values;
  args.empty_is_zero = true;
  auto* const memory = reinterpret_cast<float*>(
      aligned(work, AttentionTiles::floats(p.depth, p.values) * int64_t{sizeof(float)}));
  AttentionLoops<PlainUnit>(args, attention_lines(), memory).run();

  for (int64_t i = 0; i < p.queries; ++i) {
    std::vector<double> weights;
    double sum = 0;
    for (int64_t j = 0; j < p.keys; ++j) {
      double score = 0;
      for (int64_t d = 0; d < p.depth; ++d)
        score += double{widen(q[static_cast<size_t>(i * p.depth + d)])} *
                 widen(k[static_cast<size_t>(j * p.depth + d)]);
      weights.push_back(seen(i, j) ? std::exp(score) : 0);
      sum += weights.back();
    }
    for (int64_t c = 0; c < p.values; ++c) {
      double expected = 0;
      for (int64_t j = 0; j < p.keys; ++j)
        expected += (sum == 0 ? 0 : weights[static_cast<size_t>(j)] / sum) *
                    widen(v[static_cast<size_t>(j * p.values + c)]);
      ASSERT_NEAR(widen(out[static_cast<size_t>(i * p.values + c)]), expected, 8e-3)
          << i << ", " << c;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Sizes, AttentionTilesTest,
    testing::Values(Problem{32, 128, 32, 32, false}, Problem{33, 129, 40, 24, false},
                    Problem{100, 300, 64, 64, true}, Problem{300, 131, 16, 70, true},
                    Problem{5, 1, 3, 1, true}, Problem{1, 400, 96, 128, false},
                    Problem{97, 97, 33, 65, true}, Problem{330, 100, 32, 32, false, 1},
                    Problem{400, 128, 32, 40, false, 2}, Problem{600, 200, 32, 32, true, 3}));

}  // namespace epilogue::simd::attention_tiles_test
