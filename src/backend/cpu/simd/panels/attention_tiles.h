// SPDX-License-Identifier: Apache-2.0
// Attention of bf16 by tiles: 32 queries at a time go through the keys, 128 at a time.
//
//   for blocks of queries, blocks of keys that any of them sees, in order
//     line by line   p = softmax's numerators of this block's scores            vectors
//     meanwhile      scores of the next block, q k^T                            tiles
//                    out += p v of the block before                             tiles
//     after the last block of keys: out / sums of p
//
// The vectors have the longer part (16 scores cost them some 6 cycles, the tiles 4 of depth 64), so
// a step of tiles stands behind every line or two and costs next to nothing. The next block of
// queries begins while the last products of this one run. All that a block works on stays in L1;
// keys and values stream from L2 once for 32 queries.
//
// The loops are written over a tile unit (amx_tiles.h).
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <limits>
#include <utility>

#include "backend/cpu/simd/panels/amx_tiles.h"
#include "backend/cpu/simd/panels/attention_lines.h"
#include "backend/cpu/simd/panels/prefetch.h"
#include "base/thread_pool.h"

namespace epilogue::simd {

// What the queries of a block see of a block of keys.
enum class KeysSeen : uint8_t { none, some, all };

// Up to kQueryRows queries.
struct QueryBlock {
  const uint16_t* queries = nullptr;  // of the first row
  int64_t rows = 0;
  // Rows see one key more than the row before, row 0 so many; negative: all rows see all.
  int64_t first_limit = -1;
  // By block of keys; null: all see `some` where there is a mask, else `all`.
  const KeysSeen* seen_blocks = nullptr;
  // A mask, of row 0 and key 0; of both one at most.
  const uint8_t* seen = nullptr;
  const float* addend = nullptr;
  int64_t mask_stride = 0;
  uint16_t* out = nullptr;
};

// Blocks of queries with the keys and values of their item.
struct AttentionArgs {
  // Of blocks that see one block of keys each: one waits for its values, one has its lines made,
  // and of one the scores are computed.
  static constexpr int64_t kSlots = 3;

  int64_t blocks = 0;
  // Block i, before its first product. What a block of the same `slot` was given is not
  // read any more.
  FunctionRef<QueryBlock(int64_t i, int64_t slot)> block;
  int64_t query_stride = 0;
  int64_t query_column = 1;
  int64_t depth = 0;
  const char* keys = nullptr;    // blocks of 32 keys (pack_tile_block), of all steps of depth
  const char* values = nullptr;  // blocks of 32 values, of all steps of keys
  int64_t key_count = 0;
  int64_t value_count = 0;
  float scale = 1;  // times log2(e)
  int64_t out_stride = 0;
  bool empty_is_zero = false;
};

struct AttentionTiles {
  static int64_t steps_of(int64_t k) { return (k + kTileK - 1) / kTileK; }
  // Keys are packed in whole blocks of kScoreKeys.
  static int64_t padded_keys(int64_t keys) {
    return (keys + kScoreKeys - 1) / kScoreKeys * kScoreKeys;
  }
  static int64_t key_bytes(int64_t keys, int64_t depth) {
    return padded_keys(keys) / kTileBlock * steps_of(depth) * kTilePairBytes;
  }
  static int64_t value_bytes(int64_t keys, int64_t values) {
    return (values + kTileBlock - 1) / kTileBlock * steps_of(padded_keys(keys)) * kTilePairBytes;
  }
  // Floats of memory that the loops work in.
  static int64_t floats(int64_t depth, int64_t values) {
    return 2 * (kScores + kProbabilities / 2) +
           AttentionArgs::kSlots * (kStateFloats + query_floats(depth) + sum_floats(values));
  }
  static int64_t query_floats(int64_t depth) { return steps_of(depth) * kTilePair / 2; }
  static int64_t sum_floats(int64_t values) {
    return (values + kTileBlock - 1) / kTileBlock * kQueryRows * kTileBlock;
  }
  static constexpr int64_t kStateFloats = (sizeof(ScoreState) + 63) / 64 * 16;
  static constexpr int64_t kScores = kQueryRows * kScoreStride;
  static constexpr int64_t kProbabilities = kQueryRows * kScoreKeys;
};

// In AttentionTiles::floats() of memory, aligned to a cache line.
using AttentionFunction = void (*)(const AttentionArgs& args, float* memory);
// Null where this machine, at the level in use, has no tiles of bf16.
AttentionFunction tile_attention();

template <class Unit>
class AttentionLoops {
 public:
  AttentionLoops(const AttentionArgs& args, const AttentionLines& lines, float* memory)
      : args_(args),
        lines_(lines),
        depth_steps_(AttentionTiles::steps_of(args.depth)),
        value_steps_(AttentionTiles::steps_of(AttentionTiles::padded_keys(args.key_count))),
        value_blocks_((args.value_count + kTileBlock - 1) / kTileBlock) {
    const auto take = [&](int64_t floats) {
      float* const at = memory;
      memory += floats;
      return at;
    };
    for (Slot& slot : slots_) {
      slot.state = reinterpret_cast<ScoreState*>(take(AttentionTiles::kStateFloats));
      slot.queries = reinterpret_cast<uint16_t*>(take(AttentionTiles::query_floats(args.depth)));
      slot.sums = take(AttentionTiles::sum_floats(args.value_count));
    }
    for (float*& scores : scores_) scores = take(AttentionTiles::kScores);
    for (uint16_t*& p : probabilities_) {
      p = reinterpret_cast<uint16_t*>(take(AttentionTiles::kProbabilities / 2));
      // Rows that are not there are multiplied too.
      std::fill_n(p, AttentionTiles::kProbabilities, uint16_t{0});
    }
  }

  void run() {
    Unit::configure(
        {kTileRows, kTileRows, kTileRows, kTileRows, kTileRows, kTileRows, kTileK / 2, kTileK / 2});
    Turn before;
    Turn turn = turn_after({});
    if (turn.slot != nullptr) ask_scores(turn);
    finish_steps();
    while (turn.slot != nullptr) {
      const Turn after = turn_after(turn);
      if (after.slot != nullptr) ask_scores(after);
      if (before.slot != nullptr) ask_values(before);
      make_lines(turn);
      finish_steps();
      ScoreState& state = *turn.slot->state;
      if (before.slot == turn.slot) {
        // What was made so far is of the maxima before.
        if (state.is_scaled)
          lines_.scale(state, turn.slot->block.rows, args_.value_count, turn.slot->sums);
      } else {
        end(before);
      }
      state.is_scaled = false;
      before = std::exchange(turn, after);
    }
    if (before.slot != nullptr) ask_values(before);
    finish_steps();
    end(before);
    Unit::release();
  }

 private:
  // What is kept of a block of queries.
  struct Slot {
    QueryBlock block;
    ScoreState* state = nullptr;
    uint16_t* queries = nullptr;
    float* sums = nullptr;
    bool has_sums = false;
  };
  // One block of queries with one of keys.
  struct Turn {
    Slot* slot = nullptr;  // null: none
    int64_t slot_index = -1;
    int64_t query_block = -1;
    int64_t key_block = -1;
    int64_t number = -1;
  };
  // 32 rows times 32 columns over some steps.
  struct Micro {
    const char* a;
    const char* b;
    float* sums;
    int64_t stride;  // bytes
    int64_t steps;
    bool adds;
  };
  static constexpr int64_t kMostMicros = 32;
  static constexpr int64_t kSlots = AttentionArgs::kSlots;

  // The next one of which a key is seen. Blocks of queries that see none are ended here.
  Turn turn_after(const Turn& turn) {
    Turn next = turn;
    ++next.number;
    // Of blocks that see none one slot is enough: two others may be at work.
    const int64_t slot = (turn.slot_index + 1) % kSlots;
    for (;;) {
      if (next.slot != nullptr) {
        next.key_block = next_seen(next.slot->block, next.key_block + 1);
        if (next.key_block >= 0) return next;
        if (next.query_block > turn.query_block) end(next);
      }
      if (++next.query_block == args_.blocks) return {};
      next.slot_index = slot;
      next.slot = &slots_[static_cast<size_t>(slot)];
      next.key_block = -1;
      begin(next);
    }
  }

  void begin(const Turn& turn) const {
    Slot& slot = *turn.slot;
    slot.block = args_.block(turn.query_block, turn.slot_index);
    slot.has_sums = false;
    slot.state->is_scaled = false;
    for (int64_t row = 0; row < kQueryRows; ++row) {
      std::fill_n(slot.state->sums[row], kScoreLanes, 0.0F);
      slot.state->max[row] = -std::numeric_limits<float>::infinity();
      const bool is_there = row < slot.block.rows;
      const uint16_t* const from = slot.block.queries + (is_there ? row * args_.query_stride : 0);
      for (int64_t step = 0; step < depth_steps_; ++step) {
        const uint16_t* const part = from + step * kTileK * args_.query_column;
        // The next block's most likely lie so far on. Another core may have written them.
        fetch_line<kIntoL2>(part + kQueryRows * args_.query_stride);
        set_query(part, is_there ? args_.depth - step * kTileK : 0,
                  slot.queries + step * kTilePair + row * kTileK);
      }
    }
  }

  void set_query(const uint16_t* from, int64_t left, uint16_t* to) const {
    if (left >= kTileK && args_.query_column == 1) {
      std::memcpy(to, from, kTileK * sizeof(uint16_t));
      return;
    }
    for (int64_t j = 0; j < kTileK; ++j) to[j] = j < left ? from[j * args_.query_column] : 0;
  }

  void end(const Turn& turn) {
    if (turn.slot == nullptr) return;
    Slot& slot = *turn.slot;
    if (!slot.has_sums) std::fill_n(slot.sums, AttentionTiles::sum_floats(args_.value_count), 0.0F);
    const ResultLines result = {slot.sums,        slot.state,        slot.block.out,
                                args_.out_stride, args_.value_count, args_.empty_is_zero};
    for (int64_t row = 0; row < slot.block.rows; ++row) lines_.result(result, row);
  }

  // Behind the last key that one of the queries may see.
  int64_t keys_end(const QueryBlock& queries) const {
    return queries.first_limit < 0
               ? args_.key_count
               : std::min(args_.key_count, queries.first_limit + queries.rows - 1);
  }

  // The first block from `block` on of which a key is seen; -1: none.
  int64_t next_seen(const QueryBlock& queries, int64_t block) const {
    const int64_t limit = keys_end(queries);
    for (; block * kScoreKeys < limit; ++block)
      if (queries.seen_blocks == nullptr || queries.seen_blocks[block] != KeysSeen::none)
        return block;
    return -1;
  }

  // Keys of a block, up to the last that one of its queries sees.
  int64_t keys_of(const Turn& turn) const {
    return std::min(kScoreKeys, keys_end(turn.slot->block) - turn.key_block * kScoreKeys);
  }

  void ask_scores(const Turn& turn) {
    const int64_t bytes = depth_steps_ * kTilePairBytes;
    const int64_t first = turn.key_block * kScoreKeys;
    const int64_t keys = keys_of(turn);
    float* const scores = scores_[static_cast<size_t>(turn.number % 2)];
    for (int64_t key = 0; key < keys; key += kTileBlock)
      ask({reinterpret_cast<const char*>(turn.slot->queries),
           args_.keys + (first + key) / kTileBlock * bytes, scores + key,
           kScoreStride * int64_t{sizeof(float)}, depth_steps_, false});
  }

  void ask_values(const Turn& turn) {
    const int64_t first = turn.key_block * kScoreKeys / kTileK;
    const int64_t steps = AttentionTiles::steps_of(keys_of(turn));
    const auto* const p =
        reinterpret_cast<const char*>(probabilities_[static_cast<size_t>(turn.number % 2)]);
    for (int64_t v = 0; v < value_blocks_; ++v)
      ask({p, args_.values + (v * value_steps_ + first) * kTilePairBytes,
           turn.slot->sums + v * kQueryRows * kTileBlock, kTileBlock * int64_t{sizeof(float)},
           steps, turn.slot->has_sums});
    turn.slot->has_sums = true;
  }

  void ask(const Micro& micro) {
    micros_[static_cast<size_t>(asked_++)] = micro;
    steps_left_ += micro.steps;
  }

  void make_lines(const Turn& turn) {
    const QueryBlock& block = turn.slot->block;
    const auto buffer = static_cast<size_t>(turn.number % 2);
    const int64_t key = turn.key_block * kScoreKeys;
    ScoreLines lines;
    lines.scores = scores_[buffer];
    lines.probabilities = probabilities_[buffer];
    lines.state = turn.slot->state;
    lines.scale = args_.scale;
    lines.keys = keys_of(turn);
    lines.limit = lines.keys;
    bool is_whole = true;
    if (block.first_limit >= 0 && block.first_limit - key < lines.keys) {
      lines.limit = block.first_limit - key;
      lines.limit_step = 1;
      is_whole = false;
    }
    const bool is_masked = block.seen != nullptr || block.addend != nullptr;
    if (is_masked &&
        (block.seen_blocks == nullptr || block.seen_blocks[turn.key_block] == KeysSeen::some)) {
      if (block.seen != nullptr) lines.seen = block.seen + key;
      if (block.addend != nullptr) lines.addend = block.addend + key;
      lines.mask_stride = block.mask_stride;
      is_whole = false;
    }
    const auto steps_of_line = static_cast<size_t>(AttentionTiles::steps_of(lines.keys) - 1);
    const auto line = (is_whole ? lines_.all : lines_.some)[steps_of_line];
    const int64_t steps = steps_left_;
    int64_t due = 0;
    for (int64_t row = 0; row < block.rows; ++row) {
      line(lines, row);
      for (due += 2 * steps; due >= block.rows; due -= block.rows) do_half_step();
    }
  }

  void finish_steps() {
    while (steps_left_ > 0) do_half_step();
    asked_ = 0;
    at_ = 0;
  }

  // The next half of a step of k of what was asked for: two products, so that the lines between
  // which they stand are short enough for the processor to see past them.
  [[gnu::noinline]] void do_half_step() {
    constexpr int64_t tile = kTilePairBytes / 2;
    constexpr int64_t line = 64;
    const Micro& m = micros_[static_cast<size_t>(at_)];
    const char* const a = m.a + step_ * kTilePairBytes;
    if (!is_half_) {
      const char* const b = m.b + step_ * kTilePairBytes;
      if (step_ == 0) begin_sums(m);
      Unit::template load<4>(a, line);
      Unit::template load<6>(b, line);
      Unit::template multiply<0, 4, 6>();
      Unit::template load<7>(b + tile, line);
      Unit::template multiply<1, 4, 7>();
      is_half_ = true;
      return;
    }
    is_half_ = false;
    Unit::template load<5>(a + tile, line);
    Unit::template multiply<2, 5, 6>();
    Unit::template multiply<3, 5, 7>();
    --steps_left_;
    if (++step_ < m.steps) return;
    Unit::template store<0>(sums_of<0>(m), m.stride);
    Unit::template store<1>(sums_of<1>(m), m.stride);
    Unit::template store<2>(sums_of<2>(m), m.stride);
    Unit::template store<3>(sums_of<3>(m), m.stride);
    step_ = 0;
    ++at_;
  }

  template <int t>
  static float* sums_of(const Micro& m) {
    return m.sums + t % 2 * kTileColumns + t / 2 * kTileRows * (m.stride / int64_t{sizeof(float)});
  }
  template <int t>
  static void begin_sum(const Micro& m) {
    m.adds ? Unit::template load<t>(sums_of<t>(m), m.stride) : Unit::template zero<t>();
  }
  static void begin_sums(const Micro& m) {
    begin_sum<0>(m);
    begin_sum<1>(m);
    begin_sum<2>(m);
    begin_sum<3>(m);
  }

  const AttentionArgs& args_;
  const AttentionLines& lines_;
  const int64_t depth_steps_;
  const int64_t value_steps_;
  const int64_t value_blocks_;
  std::array<Slot, AttentionArgs::kSlots> slots_;
  std::array<float*, 2> scores_ = {};
  std::array<uint16_t*, 2> probabilities_ = {};
  std::array<Micro, kMostMicros> micros_;
  int64_t asked_ = 0;
  int64_t at_ = 0;
  int64_t step_ = 0;  // of that one
  bool is_half_ = false;
  int64_t steps_left_ = 0;
};

}  // namespace epilogue::simd
