// SPDX-License-Identifier: Apache-2.0
// Products of bf16 near the tile unit's limit: tiled rows times weights that lie in tiles.
//
// A micro-kernel makes the sums of 32 rows times 32 columns, 2 x 2 tiles, over a block of k: two
// loads of rows and two of columns for four multiplications, the least that eight tile registers
// allow. A core's L2 feeds one of the two operands at the pace of the multiplications, not both:
//
//   for chunks of columns            their sums [rows][columns] wait in L2 while k passes, so that
//     for blocks of k                rows which exceed L2 are read once a chunk
//       for blocks of 32 columns     weights, block of k x 32: read from L3 once, stay in L1
//         for panels of 32 rows      stream from L2, by loads that do not displace L1
//           micro-kernel
//
// Three things run beside the products and cost next to nothing there: the sums of a micro-kernel
// are stored within the first step of the next one; what is to be done with them runs in pieces
// between the next one's steps; and the weights of the next block, and the rows of the next block
// of k where all would not stay in L2, are fetched line by line.
//
// The loops are written over a tile unit (amx_tiles.h). A sum takes in k in its order, whatever
// the blocks: no bit depends on them.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "backend/cpu/simd/panels/amx_tiles.h"
#include "backend/cpu/simd/panels/group_columns.h"
#include "backend/cpu/simd/panels/prefetch.h"
#include "backend/cpu/simd/panels/tile_blocks.h"
#include "backend/cpu/simd/panels/tile_feed.h"
#include "backend/cpu/simd/scratch.h"

namespace epilogue::simd {

// Lines that are needed later, asked for at an even pace.
class LineFetch {
 public:
  // `bytes` from `from` on within `steps` steps: a line in every `every` bytes.
  void set(const void* from, int64_t bytes, int64_t steps, int64_t every) {
    at_ = static_cast<const char*>(from);
    end_ = at_ + bytes;
    every_ = every;
    credit_ = 0;
    rate_ = (bytes / every * kOne + steps - 1) / std::max<int64_t>(steps, 1);
  }
  void stop() { rate_ = 0; }

  [[gnu::always_inline]] void step() {
    for (credit_ += rate_; credit_ >= kOne; credit_ -= kOne) {
      if (at_ < end_) fetch_line<kIntoL2>(at_);
      at_ += every_;
    }
  }

 private:
  static constexpr int64_t kOne = 16;  // credit of a line
  const char* at_ = nullptr;
  const char* end_ = nullptr;
  int64_t every_ = 0;
  int64_t rate_ = 0;
  int64_t credit_ = 0;
};

// kUnpacks: TileArgs::columns are there.
template <class Unit, bool kUnpacks = false>
class TileLoops {
 public:
  explicit TileLoops(const TileArgs& args)
      : args_(args),
        panels_(args.rows.panels()),
        steps_(args.rows.steps),
        right_(args.products == 1 ? kTileColumns : kTileBlock * kTileColumns),
        lower_(kTileRows * kTileBlock / args.products),
        sums_stride_(kTileBlock / args.products * int64_t{sizeof(float)}),
        feed_(args.fed, args.rows.depth) {}

  void run() {
    Unit::configure(
        {kTileRows, kTileRows, kTileRows, kTileRows, kTileRows, kTileRows, kTileK / 2, kTileK / 2});
    if (feed_.is_there() && args_.first < args_.last)
      feed_.begin({args_.first, 0, args_.rows.steps_from(0)});
    for (int64_t first = args_.first; first < args_.last; first += args_.chunk)
      run_chunk(first, std::min(first + args_.chunk, args_.last));
    end_pending();
    Unit::release();
  }

 private:
  // Lines at a time: some 30 instructions each, so that they fit between two steps.
  static constexpr int64_t kLines = 2;
  static constexpr int64_t kLineBytes = 64;
  static constexpr int64_t kSparseBytes = 256;
  static constexpr int64_t kFewPanels = 2;
  static constexpr int64_t kUnpackOne = 64;
  using Columns = GroupColumns::Unpacked;

  struct Micro {
    const char* a;      // steps of rows
    const char* b;      // steps of columns
    const float* from;  // sums to go on from; null: none
    int64_t steps;
    // From this step on columns pass L1 by: rows would displace them before their next use.
    int64_t resident;
  };

  // Blocks of columns [first, last) over all of k.
  void run_chunk(int64_t first, int64_t last) {
    const TiledRows& rows = args_.rows;
    const int64_t blocks = (steps_ + rows.depth - 1) / rows.depth;
    for (int64_t step = 0; step < steps_; step += rows.depth) {
      const int64_t steps = rows.steps_from(step);
      const bool is_last = step + steps == steps_;
      fetch_rows(is_last ? 0 : step + steps, (last - first) * panels_ * steps, blocks);
      for (int64_t block = first; block < last; ++block) {
        const TileUnit unit = {block, step, steps};
        Columns columns;
        if constexpr (kUnpacks) {
          columns = unpacked_columns(unit);
        } else {
          columns.tiles = columns_of(unit);
        }
        run_block(unit, columns, first, is_last);
      }
    }
  }

  // What the loops multiply after `unit`.
  TileUnit unit_after(const TileUnit& unit) const {
    if (unit.steps == 0) return {};
    const int64_t first = args_.first + (unit.block - args_.first) / args_.chunk * args_.chunk;
    const int64_t last = std::min(first + args_.chunk, args_.last);
    const int64_t step = unit.step + unit.steps;
    if (unit.block + 1 < last) return {unit.block + 1, unit.step, unit.steps};
    if (step < steps_) return {first, step, args_.rows.steps_from(step)};
    if (last < args_.last) return {last, 0, args_.rows.steps_from(0)};
    return {};
  }

  // This one was unpacked beside the products of the one before.
  Columns unpacked_columns(const TileUnit& unit) {
    GroupColumns& columns = *args_.columns;
    const TileUnit after = unit_after(unit);
    if (unit.block == args_.first && unit.step == 0) columns.begin(unit, after);
    const Columns unpacked = columns.finish();
    columns.begin(after, unit_after(after));
    const int64_t steps = panels_ * unit.steps;
    unpack_rate_ = (columns.pieces() * kUnpackOne + steps - 1) / steps;
    unpack_credit_ = 0;
    return unpacked;
  }

  // The block of k at `step` of all rows, within so many steps of products.
  void fetch_rows(int64_t step, int64_t within, int64_t blocks) {
    const TiledRows& rows = args_.rows;
    if (!args_.fetches_rows || blocks == 1) return next_rows_.stop();
    next_rows_.set(rows.pair(0, step), rows.steps_from(step) * panels_ * kTilePairBytes, within,
                   kLineBytes);
  }

  // Where these lie in tiles; those after them are on their way from here on.
  const char* columns_of(const TileUnit& unit) {
    const TileUnit after = unit_after(unit);
    const int64_t within = panels_ * unit.steps;
    if (feed_.is_there()) return feed_.turn(after, unit_after(after), within);
    const void* const next =
        after.steps > 0 ? args_.weights.at(after.block, after.step) : args_.next;
    if (next == nullptr) {
      next_columns_.stop();
    } else {
      // Few rows: the weights' way is the limit. From L3 the processor's own prefetching keeps pace
      // where it is shown where they lie; a request for each line takes the places of others in
      // L1. From memory each line is worth its request.
      const bool is_few = panels_ <= kFewPanels && !args_.is_from_memory;
      const int64_t steps = after.steps > 0 ? after.steps : unit.steps;
      next_columns_.set(next, steps * kTilePairBytes, within, is_few ? kSparseBytes : kLineBytes);
    }
    return args_.weights.at(unit.block, unit.step);
  }

  void run_block(const TileUnit& unit, const Columns& columns, int64_t first, bool is_last) {
    const int64_t step = unit.step;
    const int64_t steps = unit.steps;
    const int64_t block = unit.block;
    const auto* a = reinterpret_cast<const char*>(args_.rows.pair(0, step));
    float* waiting = args_.waiting + (block - first) * panels_ * kBlockSums;
    for (int64_t panel = 0; panel < panels_; ++panel) {
      const bool is_two = args_.rows.rows - panel * kTileBlock > kTileRows;
      if constexpr (kUnpacks) {
        if (args_.group_steps > 0) {
          run_groups(unit, columns, panel, is_two, a, waiting);
          a += steps * kTilePairBytes;
          waiting += kBlockSums;
          continue;
        }
      }
      const Micro micro = {a, columns.tiles, step == 0 ? nullptr : waiting, steps,
                           std::min(args_.resident, steps)};
      is_two ? multiply<true>(micro) : multiply<false>(micro);
      work_ = nullptr;
      pending_two_ = is_two;
      if (!is_last) {
        pending_ = waiting;
      } else if (args_.work != nullptr) {
        pending_ = args_.work->sums();
        work_ = args_.work;
        lines_ = work_->ready(block, panel);
      } else {
        pending_ = args_.sums + ((block - args_.first) * panels_ + panel) * kBlockSums;
      }
      if (!args_.overlaps) end_pending();
      a += steps * kTilePairBytes;
      waiting += kBlockSums;
    }
  }

  // Group after group of a panel's share of a block of k.
  void run_groups(const TileUnit& unit, const Columns& columns, int64_t panel, bool is_two,
                  const char* a, float* totals) {
    const int64_t length = args_.group_steps;
    const char* b = columns.tiles;
    GroupSums group = {columns.scales, totals};
    const int64_t end = unit.step + unit.steps;
    for (int64_t step = unit.step; step < end; step += length) {
      const int64_t steps = std::min(length, end - step);
      const Micro micro = {a, b, nullptr, steps, steps};
      is_two ? multiply_group<true>(micro) : multiply_group<false>(micro);
      pending_ = args_.work->sums();
      pending_two_ = is_two;
      work_ = args_.work;
      group.is_first = step == 0;
      group.is_last = step + steps == steps_;
      lines_ = work_->ready_group(unit.block, panel, group);
      group.scales += kTileBlock;
      if (!args_.overlaps) end_pending();
      a += steps * kTilePairBytes;
      b += steps * kTilePairBytes;
    }
  }

  // Where a tile's sums lie in those of a block: [32][32], or of two products [2][32][16].
  template <int t>
  [[gnu::always_inline]] float* sums_of(const float* block) const {
    return const_cast<float*>(block) + (t % 2 == 0 ? 0 : right_) + (t / 2 == 0 ? 0 : lower_);
  }
  [[gnu::always_inline]] int64_t sums_stride() const { return sums_stride_; }

  template <int t>
  [[gnu::always_inline]] void store_sum() const {
    Unit::template store<t>(sums_of<t>(pending_), sums_stride());
  }
  template <int t>
  [[gnu::always_inline]] void begin_sum(const float* from) const {
    if (from == nullptr) {
      Unit::template zero<t>();
    } else {
      Unit::template load<t>(sums_of<t>(from), sums_stride());
    }
  }
  // Without the next micro-kernel.
  void end_pending() {
    if (pending_ == nullptr) return;
    store_sum<0>();
    store_sum<1>();
    if (pending_two_) {
      store_sum<2>();
      store_sum<3>();
    }
    pending_ = nullptr;
    if (work_ == nullptr) return;
    if (lines_ > 0) work_->line_function(work_->lines, 0, lines_);
    while (work_->pieces() > 0) work_->do_piece();
    work_ = nullptr;
  }

  // between(): after each multiplication.
  template <bool kTwo, bool kKeeps, class Between>
  [[gnu::always_inline]] static void step(const char* a, const char* b, const Between& between) {
    constexpr int64_t tile = kTilePairBytes / 2;
    constexpr int64_t stride = 64;
    Unit::template load_once<4>(a, stride);
    kKeeps ? Unit::template load<6>(b, stride) : Unit::template load_once<6>(b, stride);
    Unit::template multiply<0, 4, 6>();
    between();
    kKeeps ? Unit::template load<7>(b + tile, stride)
           : Unit::template load_once<7>(b + tile, stride);
    Unit::template multiply<1, 4, 7>();
    between();
    if constexpr (kTwo) {
      Unit::template load_once<5>(a + tile, stride);
      Unit::template multiply<2, 5, 6>();
      between();
      Unit::template multiply<3, 5, 7>();
      between();
    }
  }

  // The sums of the micro-kernel before are still in the registers: each is stored right before
  // its register is needed. One after another behind the last product they would cost as much as
  // two steps. between(rows): after the multiplications that follow the stores of so many rows.
  template <bool kTwo, class Between>
  [[gnu::always_inline]] void first_step(const Micro& m, const Between& between) const {
    constexpr int64_t tile = kTilePairBytes / 2;
    constexpr int64_t stride = 64;
    const bool stores = pending_ != nullptr;
    const bool stores_two = stores && pending_two_;
    Unit::template load_once<4>(m.a, stride);
    Unit::template load<6>(m.b, stride);
    if (stores) store_sum<0>();
    begin_sum<0>(m.from);
    Unit::template multiply<0, 4, 6>();
    Unit::template load<7>(m.b + tile, stride);
    if (stores) store_sum<1>();
    begin_sum<1>(m.from);
    Unit::template multiply<1, 4, 7>();
    between(kTileRows);
    if constexpr (kTwo) Unit::template load_once<5>(m.a + tile, stride);
    if (stores_two) store_sum<2>();
    if constexpr (kTwo) {
      begin_sum<2>(m.from);
      Unit::template multiply<2, 5, 6>();
      between(kTileRows);
    }
    if (stores_two) store_sum<3>();
    if constexpr (kTwo) {
      begin_sum<3>(m.from);
      Unit::template multiply<3, 5, 7>();
      between(kTileBlock);
    }
  }

  template <bool kTwo>
  [[gnu::noinline]] void multiply(const Micro& m) {
    first_step<kTwo>(m, [](int64_t) {});
    fetch();
    if (work_ == nullptr) return all_steps<kTwo>(m, [] {});
    const int64_t span = std::max<int64_t>(m.steps - 1, 1);
    int64_t due = 0;
    if (lines_ > 0) {
      const LineFunction function = work_->line_function;
      const BlockLines& lines = work_->lines;
      int64_t row = 0;
      all_steps<kTwo>(m, [&] {
        for (due += lines_; due >= kLines * span && row + kLines <= lines_; due -= kLines * span) {
          function(lines, row, kLines);
          row += kLines;
        }
      });
      if (row < lines_) function(lines, row, lines_ - row);
      return;
    }
    const int64_t pieces = work_->pieces();
    all_steps<kTwo>(m, [&] {
      for (due += pieces; due >= span; due -= span) work_->do_piece();
    });
    while (work_->pieces() > 0) work_->do_piece();
  }

  // The same of one group of k. It has few steps, so that the lines of the sums before stand
  // between all multiplications: in one piece they would fill the reordering window, and the tiles
  // wait.
  template <bool kTwo>
  [[gnu::noinline]] void multiply_group(const Micro& m) {
    constexpr int64_t first_slots = kTwo ? 3 : 1;
    constexpr int64_t step_slots = kTwo ? 4 : 2;
    const int64_t slots = first_slots + (m.steps - 1) * step_slots;
    const int64_t lines = work_ == nullptr ? 0 : lines_;
    const int64_t each = (lines + slots - 1) / slots;
    int64_t row = 0;
    const auto make_lines = [&](int64_t most) {
      const int64_t count = std::min(each, std::min(most, lines) - row);
      if (count <= 0) return;
      work_->line_function(work_->lines, row, count);
      row += count;
    };
    first_step<kTwo>(m, make_lines);
    fetch();
    const char* a = m.a;
    const char* b = m.b;
    for (int64_t k = 1; k < m.steps; ++k) {
      a += kTilePairBytes;
      b += kTilePairBytes;
      step<kTwo, true>(a, b, [&] { make_lines(lines); });
      fetch();
    }
    if (work_ == nullptr) return;
    if (row < lines) work_->line_function(work_->lines, row, lines - row);
    while (work_->pieces() > 0) work_->do_piece();
  }

  // All but the first.
  template <bool kTwo, class Work>
  [[gnu::always_inline]] void all_steps(const Micro& m, const Work& work) {
    const char* a = m.a;
    const char* b = m.b;
    int64_t k = 1;
    for (; k < m.resident; ++k) {
      a += kTilePairBytes;
      b += kTilePairBytes;
      step<kTwo, true>(a, b, [] {});
      fetch();
      work();
    }
    for (; k < m.steps; ++k) {
      a += kTilePairBytes;
      b += kTilePairBytes;
      step<kTwo, false>(a, b, [] {});
      fetch();
      work();
    }
  }

  [[gnu::always_inline]] void fetch() {
    if constexpr (kUnpacks) {
      for (unpack_credit_ += unpack_rate_; unpack_credit_ >= kUnpackOne;
           unpack_credit_ -= kUnpackOne)
        if (args_.columns->pieces() > 0) args_.columns->do_piece();
    } else {
      next_columns_.step();
      feed_.step();
    }
    next_rows_.step();
  }

  const TileArgs& args_;
  const int64_t panels_;
  const int64_t steps_;
  // In a block's sums: from a tile to the one beside it, and below it; bytes between rows.
  const int64_t right_;
  const int64_t lower_;
  const int64_t sums_stride_;
  LineFetch next_columns_;
  // Pieces of a step that unpacks, in parts of kUnpackOne.
  int64_t unpack_rate_ = 0;
  int64_t unpack_credit_ = 0;
  LineFetch next_rows_;
  TileFeed feed_;
  float* pending_ = nullptr;  // where the sums in the registers go
  bool pending_two_ = false;
  TileWork* work_ = nullptr;  // of the sums in the registers
  int64_t lines_ = 0;         // that it makes of them; 0: it has pieces
};

// The sums of rows as they lie in memory with one panel in tiles: [2 blocks][panels of rows]
// [32 x 32], until the scratch's next use. Callers of many products of the same rows tile these
// themselves, once.
template <class Unit>
const float* untiled_rows_product(const PanelArgs& args, int64_t weight_bytes, int products,
                                  Scratch& scratch) {
  constexpr int64_t kWordBytes = 2;
  const int64_t words = args.k * weight_bytes / kWordBytes;
  TileArgs tiles;
  tiles.rows.rows = args.m;
  tiles.rows.steps = tiles.rows.depth = words / kTileK;
  const int64_t row_floats = TiledRows::bytes_of(args.m, tiles.rows.steps) / int64_t{sizeof(float)};
  float* const memory =
      scratch.get(static_cast<size_t>(row_floats + 2 * tiles.rows.panels() * kBlockSums));
  tiles.rows.data = reinterpret_cast<uint16_t*>(memory);
  for (int64_t i = 0; i < args.m; ++i) {
    const char* const row = static_cast<const char*>(args.a) + i * args.a_stride * weight_bytes;
    tiles.rows.set_row(i, reinterpret_cast<const uint16_t*>(row), words);
  }
  tiles.weights = {static_cast<const char*>(args.panel), tile_block_bytes(args, weight_bytes)};
  tiles.products = products;
  tiles.last = tiles.chunk = 2;
  tiles.resident = tiles.rows.steps;
  tiles.sums = memory + row_floats;
  TileLoops<Unit>(tiles).run();
  return tiles.sums;
}

}  // namespace epilogue::simd
