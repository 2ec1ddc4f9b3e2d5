// SPDX-License-Identifier: Apache-2.0
// Rows of attention scores, made into probabilities while the tile unit multiplies: a row of a
// block of keys at a time, so that it fits between the steps of products.
//
//   y = scores * scale (+ mask), in powers of 2;  p = 2^(y - max), rounded to bf16
//
// `max` is one that the row had: it follows a larger score where 2^(y - max) would exceed 2^8. So
// what is divided by the sum of the p in the end needs a new scale in few blocks alone, and no bit
// of a p is lost by it.
#pragma once

#include <array>
#include <cstdint>

#include "backend/cpu/simd/panels/tiled_rows.h"

namespace epilogue::simd {

// Queries of a block, and keys of a block: a row of scores is eight vectors.
inline constexpr int64_t kQueryRows = kTileBlock;
inline constexpr int64_t kScoreKeys = 128;
// Floats between rows of scores: rows a power of two apart would share sets of L1.
inline constexpr int64_t kScoreStride = kScoreKeys + 16;
inline constexpr int64_t kScoreLanes = 16;

// What the rows of a block of queries have so far.
struct alignas(64) ScoreState {
  float sums[kQueryRows][kScoreLanes];  // of the p, lane by lane
  float max[kQueryRows];
  float factors[kQueryRows];  // 2^(max before - max): what was made before is times it
  bool is_scaled;             // a factor is not 1
};

struct ScoreLines {
  const float* scores = nullptr;      // [32][kScoreStride]
  uint16_t* probabilities = nullptr;  // steps of 32 keys, [32 rows][32 keys] each
  ScoreState* state = nullptr;
  float scale = 1;  // times log2(e), above 0
  // Keys of the block that row 0 sees, the first ones; how many more the next row does; how many
  // there are.
  int64_t limit = kScoreKeys;
  int64_t limit_step = 0;
  int64_t keys = kScoreKeys;
  // Of these, those of a nonzero byte, or with a number that is added. Null: all, nothing. `addend`
  // is of the block's rows and may be read up to the limit.
  const uint8_t* seen = nullptr;
  const float* addend = nullptr;
  int64_t mask_stride = 0;
};

// The result's rows: sums of values over sums of p.
struct ResultLines {
  const float* sums = nullptr;  // blocks of 32 values, [32 rows][32] each
  const ScoreState* state = nullptr;
  uint16_t* out = nullptr;
  int64_t stride = 0;
  int64_t values = 0;
  bool empty_is_zero = false;  // where no key is seen; else NaN
};

// Steps of 32 keys that a block of keys has, at most.
inline constexpr int64_t kScoreSteps = kScoreKeys / kTileK;

struct AttentionLines {
  using Line = void (*)(const ScoreLines& lines, int64_t row);
  // By steps, less one, that `keys` ends in: nothing is written beyond.
  std::array<Line, kScoreSteps> all;   // without a mask or a limit
  std::array<Line, kScoreSteps> some;  // with any
  // The block's sums times the rows' factors.
  void (*scale)(const ScoreState& state, int64_t rows, int64_t values, float* sums);
  void (*result)(const ResultLines& lines, int64_t row);
};

// By AVX-512 and its bf16. To be called where cpu_has(CpuFeature::avx512_bf16) only.
const AttentionLines& attention_lines();

}  // namespace epilogue::simd
