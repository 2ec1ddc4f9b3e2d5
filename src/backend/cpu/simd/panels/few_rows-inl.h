// SPDX-License-Identifier: Apache-2.0
// A few rows of f32, more than one, times a panel that comes from L3 or memory. They take a piece
// of it at a time, which stays in L1 while all of their tiles pass, and meanwhile each tile fetches
// its share of what comes kPieceBytes later: the weights' way and the products of all tiles go on
// side by side. Where each tile read the whole panel by itself, only the first one's products did.
//
// Included once per target.
#if defined(EPILOGUE_SIMD_PANELS_FEW_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef EPILOGUE_SIMD_PANELS_FEW_ROWS_INL_H_
#undef EPILOGUE_SIMD_PANELS_FEW_ROWS_INL_H_
#else
#define EPILOGUE_SIMD_PANELS_FEW_ROWS_INL_H_
#endif

#include <algorithm>
#include <array>

#include "backend/cpu/simd/panels/micro_kernel-inl.h"
#include "backend/cpu/simd/panels/panel_sums-inl.h"
#include "backend/cpu/simd/panels/row_tiles.h"
#include "base/ceil_div.h"

HWY_BEFORE_NAMESPACE();
namespace epilogue::simd::HWY_NAMESPACE {

inline constexpr int64_t kPieceBytes = 8 << 10;
inline constexpr int64_t kFewRowTiles = ceil_div(kMostFewRows, kMr);
inline constexpr int64_t kMostChains = 6;  // of all rows of a tile that has fewer than kMr
inline constexpr int64_t kFewSums = kFewRowTiles * kMr * kWidth;

// A piece of a panel: k in [begin, end) of a sum that it begins, ends, both or neither.
struct PanelPiece {
  int64_t begin, end;
  bool begins_sum, ends_sum;
  const char* ahead;  // of what is fetched meanwhile, as many bytes
};

// Sums of all rows, in L1.
struct FewRowsMemory {
  // Of the sum that is not at its end, chain by chain: few rows have more of these than rows.
  HWY_ALIGN float running[kFewSums + kMostChains * kWidth];
  HWY_ALIGN float totals[2][kFewSums];  // of those that are at it
};

// What the tiles fetch while they go through a piece: some lines for each group of steps, for L1
// can wait for a dozen only. Counted once: a division takes a tenth of a tile's time.
struct PieceFeed {
  // Of a group: what six rows take some 24 to 48 cycles for.
  static constexpr int64_t kSteps = HWY_TARGET == HWY_AVX3 ? 2 : 8;
  static constexpr int64_t kLine = 64;
  static constexpr int64_t group_of(int64_t rows) { return std::max(chains_of(rows), kSteps); }

  // Each tile of m rows takes a share like its part of the products. `steps`: of a piece.
  PieceFeed(int64_t steps, int64_t step_bytes, int64_t m) {
    const int64_t lines = ceil_div(steps * step_bytes, kLine);
    for (int64_t t = 0; t * kMr < m; ++t) {
      const int64_t end = std::min((t + 1) * kMr, m);
      const int64_t first = lines * (t * kMr) / m;
      const int64_t last = lines * end / m;
      const int64_t groups = ceil_div(steps, group_of(end - t * kMr));
      tiles[t] = {first * kLine, ceil_div(last - first, groups) * kLine};
    }
  }

  struct Share {
    int64_t begin;  // bytes from PanelPiece::ahead on
    int64_t each;   // bytes for a group of steps
  };
  std::array<Share, kFewRowTiles> tiles;
};

// Sum number `index` of a tile, at its end: added to its total, and behind the last one to what the
// arguments ask for.
class FewRowsTotals {
 public:
  FewRowsTotals(const PanelArgs& args, int64_t row, int64_t index, bool is_last,
                FewRowsMemory& memory)
      : sums_(args, row),
        mine_(memory.totals[args.two_totals ? index % 2 : 0] + row * kWidth),
        other_(memory.totals[args.two_totals ? 1 - index % 2 : 0] + row * kWidth),
        adds_(index >= (args.two_totals ? 2 : 1)),
        accumulates_(index == 0 && args.accumulate),
        adds_other_(is_last && args.two_totals && index > 0),
        leaves_(is_last && args.store == nullptr) {}

  // Whether put() does no more than add_to_total(). Its questions, for each vector of each piece,
  // took a tenth to a quarter of the time.
  bool is_within() const { return adds_ && !adds_other_ && !leaves_; }
  HWY_INLINE void add_to_total(int64_t i, int64_t j, Vf sum) const {
    float* const to = mine_ + i * kWidth + j * static_cast<int64_t>(kLanes);
    store(hn::Add(load(to), sum), to);
  }
  // Of row `i` of the tile, vector j of the panel.
  HWY_INLINE void put(int64_t i, int64_t j, Vf sum) const {
    const int64_t at = i * kWidth + j * static_cast<int64_t>(kLanes);
    if (adds_) sum = hn::Add(load(mine_ + at), sum);
    if (accumulates_) sum = hn::Add(load(sums_.at(i, j)), sum);
    if (adds_other_) sum = hn::Add(load(other_ + at), sum);
    store(sum, leaves_ ? sums_.at(i, j) : mine_ + at);
  }
  const float* data() const { return mine_; }

 private:
  SumsPlace sums_;
  float* mine_;
  float* other_;
  bool adds_, accumulates_, adds_other_, leaves_;
};

// kRows rows times a piece.
template <class B, int64_t kRows, int kInto>
HWY_INLINE void few_rows_piece(const PanelArgs& args, int64_t row, const PanelPiece& piece,
                               const PieceFeed::Share& share, float* running,
                               const FewRowsTotals& totals) {
  constexpr int64_t chains = chains_of(kRows);
  static_assert(kRows == kMr || chains * kRows <= kMostChains);
  constexpr auto lanes = static_cast<int64_t>(kLanes);
  RowsInPlace<kRows> a;
#pragma GCC unroll 8
  for (int64_t i = 0; i < kRows; ++i)
    a.rows[i] = static_cast<const float*>(args.a) + (row + i) * args.a_stride + piece.begin;
  const B b(static_cast<const char*>(args.panel) + piece.begin * B::kStepBytes);
  Vf sums[chains][kRows][kNv];
#pragma GCC unroll 4
  for (int64_t c = 0; c < chains; ++c) {
    if (piece.begins_sum) {
      clear(sums[c]);
      continue;
    }
#pragma GCC unroll 8
    for (int64_t i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
      for (int64_t j = 0; j < kNv; ++j)
        sums[c][i][j] = load(running + (c * kRows + i) * kWidth + j * lanes);
    }
  }
  const char* at = piece.ahead + share.begin;
  constexpr int64_t group = PieceFeed::group_of(kRows);
  const int64_t depth = piece.end - piece.begin;
  int64_t k = 0;
  for (; k + group <= depth; k += group) {
    for (int64_t l = 0; l < share.each; l += PieceFeed::kLine) fetch_line<kInto>(at + l);
    at += share.each;
#pragma GCC unroll 8
    for (int64_t c = 0; c < group; ++c) add_products(a, b, k + c, sums[c % chains]);
  }
  for (; k + chains <= depth; k += chains) {
#pragma GCC unroll 4
    for (int64_t c = 0; c < chains; ++c) add_products(a, b, k + c, sums[c]);
  }
  for (; k < depth; ++k) add_products(a, b, k, sums[0]);
  if (piece.ends_sum && totals.is_within()) {
#pragma GCC unroll 8
    for (int64_t i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
      for (int64_t j = 0; j < kNv; ++j)
        totals.add_to_total(i, j, merged<chains, kRows, kNv>(sums, i, j));
    }
    return;
  }
  if (piece.ends_sum) {
#pragma GCC unroll 8
    for (int64_t i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
      for (int64_t j = 0; j < kNv; ++j) totals.put(i, j, merged<chains, kRows, kNv>(sums, i, j));
    }
    return;
  }
#pragma GCC unroll 4
  for (int64_t c = 0; c < chains; ++c) {
#pragma GCC unroll 8
    for (int64_t i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
      for (int64_t j = 0; j < kNv; ++j)
        store(sums[c][i][j], running + (c * kRows + i) * kWidth + j * lanes);
    }
  }
}

template <class B, int kInto>
void few_rows_product(const PanelArgs& args) {
  constexpr int64_t steps = std::max<int64_t>(8, kPieceBytes / B::kStepBytes);
  FewRowsMemory memory;
  const int64_t depth = args.depth > 0 ? args.depth : args.k;
  const int64_t bytes = args.k * B::kStepBytes;
  const auto* const panel = static_cast<const char*>(args.panel);
  const PieceFeed feed(std::min(steps, depth), B::kStepBytes, args.m);
  int64_t index = 0;
  for (int64_t first = 0; first < args.k; first += depth, ++index) {
    const int64_t last = std::min(first + depth, args.k);
    for (int64_t k = first; k < last; k += steps) {
      const int64_t end = std::min(k + steps, last);
      // Behind this panel's end lies the next one's begin, or nothing that is read.
      const int64_t ahead = k * B::kStepBytes + kPieceBytes;
      const char* from = panel + ahead;
      if (ahead >= bytes && args.next != nullptr)
        from = static_cast<const char*>(args.next) + (ahead - bytes);
      const PanelPiece piece = {k, end, k == first, end == last, from};
      const auto tile = [&](auto rows, int64_t row) HWY_ATTR {
        const FewRowsTotals totals(args, row, index, last == args.k, memory);
        few_rows_piece<B, rows(), kInto>(args, row, piece, feed.tiles[row / kMr],
                                         memory.running + row * kWidth, totals);
        if (end == args.k && args.store != nullptr)
          finish_rows(*args.store, row, totals.data(), totals.data() + rows() * kWidth);
      };
      int64_t row = 0;
      for (; row + kMr <= args.m; row += kMr) tile(RowCount<kMr>(), row);
      some_rows<kMr>(args.m - row, [&](auto rows) { tile(rows, row); });
    }
  }
}

}  // namespace epilogue::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard, toggled per target
