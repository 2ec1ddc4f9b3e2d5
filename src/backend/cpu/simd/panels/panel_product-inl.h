// SPDX-License-Identifier: Apache-2.0
// Rows of f32 times a panel by the f32 micro-kernel. How a panel's weights are widened is a type
// (micro_kernel-inl.h), made of the panel's address.
//
// Included once per target.
#if defined(EPILOGUE_SIMD_PANELS_PANEL_PRODUCT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef EPILOGUE_SIMD_PANELS_PANEL_PRODUCT_INL_H_
#undef EPILOGUE_SIMD_PANELS_PANEL_PRODUCT_INL_H_
#else
#define EPILOGUE_SIMD_PANELS_PANEL_PRODUCT_INL_H_
#endif

#include <array>

#include "backend/cpu/simd/math-inl.h"
#include "backend/cpu/simd/panels/kernel.h"
#include "backend/cpu/simd/panels/micro_kernel-inl.h"
#include "backend/cpu/simd/panels/row_tiles.h"

HWY_BEFORE_NAMESPACE();
namespace epilogue::simd::HWY_NAMESPACE {

// What a tile fetches of its panel ahead. Few rows read weights that come from L3 or memory: those
// are fetched into L2 (ahead_of_stream). Of many rows AVX-512's use up a panel faster than the
// processor's own prefetching brings it from L2.
template <class B>
constexpr Ahead ahead_of(int64_t rows, Stream stream) {
  if (stream == Stream::first) return ahead_of_stream(B::kStepBytes / kWidth);
  if (HWY_TARGET == HWY_AVX3 && rows == kMr) return {.bytes = 2 << 10, .into = kIntoL1};
  return {};
}

// As many of a vector's columns as there are, from column j on.
template <FloatType kType>
HWY_INLINE void store_columns(const PanelStore& s, int64_t row, int64_t j, Vf v) {
  auto* const to = static_cast<Storage<kType>*>(s.out) + row * s.stride + j;
  if (j + static_cast<int64_t>(kLanes) <= s.columns) return store_from_f32<kType>(Df(), v, to);
  if (j < s.columns) store_tail<kType>(Df(), v, to, static_cast<size_t>(s.columns - j));
}

HWY_INLINE void finish(const PanelStore& s, int64_t row, int64_t j, Vf sum) {
  if (s.bias != nullptr) sum = hn::Add(sum, load(s.bias + j));
  if (s.relu) sum = at_least(sum, 0.0F);
  if (s.type == FloatType::bf16) return store_columns<FloatType::bf16>(s, row, j, sum);
  store_columns<FloatType::f32>(s, row, j, sum);
}

// finish() of whole columns, without a question per vector: where a panel is so short that it stays
// in L1, these would take a fifth of the time. A copy of what the store says: its results could
// change the original, for all that the compiler knows.
template <FloatType kType, bool kRelu>
class WholeStore {
 public:
  explicit WholeStore(const PanelStore& s)
      : out_(static_cast<Storage<kType>*>(s.out)),
        stride_(s.stride),
        bias_(s.bias != nullptr ? s.bias : kNothing.data()) {}

  HWY_INLINE void put(int64_t row, int64_t j, Vf sum) const {
    sum = hn::Add(sum, load(bias_ + j));
    if constexpr (kRelu) sum = at_least(sum, 0.0F);
    store_from_f32<kType>(Df(), sum, out_ + row * stride_ + j);
  }

 private:
  // -0 changes no sum.
  static constexpr auto kNothing = [] {
    std::array<float, kWidth> zeros{};
    zeros.fill(-0.0F);
    return zeros;
  }();
  Storage<kType>* out_;
  int64_t stride_;
  const float* bias_;
};

// Where the sums of a row lie: one part, or two of half the width. Which is asked at run time, so
// that each tile is compiled once.
struct SumsPlace {
  explicit SumsPlace(const PanelArgs& args, int64_t row)
      : stride(args.sums[1] == nullptr ? kWidth : kWidth / 2),
        halves{args.sums[0] + row * stride, args.sums[1] == nullptr
                                                ? args.sums[0] + row * stride + kWidth / 2
                                                : args.sums[1] + row * stride} {}
  // Both parts of a row side by side.
  explicit SumsPlace(float* sums) : stride(kWidth), halves{sums, sums + kWidth / 2} {}
  // Row i, vector j of the panel.
  HWY_INLINE float* at(int64_t i, int64_t j) const {
    return halves[j / (kNv / 2)] + i * stride + j % (kNv / 2) * static_cast<int64_t>(kLanes);
  }

  int64_t stride;  // from row to row
  float* halves[2];
};

// What is done with a finished sum of row `row`, vector j of the panel.
HWY_INLINE void put_sum(const PanelArgs& args, int64_t row, int64_t j, Vf sum) {
  float* const to = SumsPlace(args, row).at(0, j);
  if (args.accumulate) sum = hn::Add(load(to), sum);
  if (args.store != nullptr) return finish(*args.store, row, j * static_cast<int64_t>(kLanes), sum);
  store(sum, to);
}

template <FloatType kType, bool kRelu>
HWY_INLINE void finish_whole_rows(const PanelStore& s, int64_t row, const float* sums,
                                  const float* end) {
  constexpr auto lanes = static_cast<int64_t>(kLanes);
  const WholeStore<kType, kRelu> to(s);
  for (; sums != end; sums += kWidth, ++row) {
#pragma GCC unroll 4
    for (int64_t j = 0; j < kNv; ++j) to.put(row, j * lanes, load(sums + j * lanes));
  }
}

// Finishes rows of sums, which lie side by side, up to `end`.
inline HWY_NOINLINE void finish_rows(const PanelStore& s, int64_t row, const float* sums,
                                     const float* end) {
  constexpr auto lanes = static_cast<int64_t>(kLanes);
  if (s.columns == kWidth) {
    if (s.type == FloatType::bf16)
      return s.relu ? finish_whole_rows<FloatType::bf16, true>(s, row, sums, end)
                    : finish_whole_rows<FloatType::bf16, false>(s, row, sums, end);
    return s.relu ? finish_whole_rows<FloatType::f32, true>(s, row, sums, end)
                  : finish_whole_rows<FloatType::f32, false>(s, row, sums, end);
  }
  for (; sums != end; sums += kWidth, ++row) {
#pragma GCC unroll 1
    for (int64_t j = 0; j < kNv; ++j) finish(s, row, j * lanes, load(sums + j * lanes));
  }
}

// put_sum() of a tile, in pieces of k. Between pieces sums lie in L1, in `memory`, and so do those
// to be finished, for finish() takes as much code as the rest of a short tile: written out for each
// sum, it made 17 KB of a tile of 1.7 KB. `memory` is no member, and what the arguments say is
// copied: stores could change them, for all that the compiler knows.
template <int64_t kRows>
class TileSums {
 public:
  static constexpr int64_t kFloats = kRows * kWidth;

  TileSums(const PanelArgs& args, int64_t row, float* memory)
      : accumulate_(args.accumulate),
        store_(args.store),
        row_(row),
        memory_(memory),
        sums_(args, row),
        from_(sums_),
        to_(sums_) {
    begin_piece(true, true);
  }

  // put() goes on with a piece of k, the first one, the last one, or both: there is no other.
  void begin_piece(bool is_first, bool is_last) {
    adds_ = accumulate_ || !is_first;
    from_ = is_first ? sums_ : SumsPlace(memory_);
    to_ = is_last && store_ == nullptr ? sums_ : SumsPlace(memory_);
  }
  // The sum of row `row` + i, vector j of the panel.
  HWY_INLINE void put(int64_t i, int64_t j, Vf sum) const {
    if (adds_) sum = hn::Add(load(from_.at(i, j)), sum);
    store(sum, to_.at(i, j));
  }
  // After all of them.
  HWY_INLINE void finish() const {
    if (store_ != nullptr) finish_rows(*store_, row_, memory_, memory_ + kFloats);
  }

 private:
  bool accumulate_;
  bool adds_ = false;
  const PanelStore* store_;
  int64_t row_;
  float* memory_;
  SumsPlace sums_;
  SumsPlace from_;
  SumsPlace to_;
};

inline constexpr int64_t kLeastRun = 8 << 10;  // bytes

// One sum of one row: over k in [begin, end), and as far into each other run.
template <class B, int64_t kRuns>
HWY_INLINE void sum_of_runs(const RowsInPlace<1>& rows, const B& b, int64_t run, int64_t begin,
                            int64_t end, Vf (&sum)[kNv]) {
  constexpr int64_t chains = chains_of(1);
  constexpr Ahead ahead = kRuns > 1 ? kAheadOfRun : Ahead{};
  Vf sums[chains][1][kNv];
#pragma GCC unroll 4
  for (int64_t c = 0; c < chains; ++c) clear(sums[c]);
  int64_t k = begin;
  for (; k + chains <= end; k += chains) {
#pragma GCC unroll 4
    for (int64_t r = 0; r < kRuns; ++r) {
#pragma GCC unroll 4
      for (int64_t c = 0; c < chains; ++c) {
        fetch_ahead<ahead>(b, r * run + k + c);
        add_products(rows, b, r * run + k + c, sums[c]);
      }
    }
  }
  for (; k < end; ++k) add_products(rows, b, k, sums[0]);
#pragma GCC unroll 4
  for (int64_t j = 0; j < kNv; ++j) sum[j] = merged<chains, 1, kNv>(sums, 0, j);
}

HWY_INLINE void add_to(Vf (&total)[kNv], const Vf (&sum)[kNv]) {
#pragma GCC unroll 4
  for (int64_t j = 0; j < kNv; ++j) total[j] = hn::Add(total[j], sum[j]);
}

// One row: sums of args.depth products each, which two others take in turn, all in registers. A
// call for each sum would cost a small product most of its time. Each sum takes as much of each
// run; what they leave of k is one more.
template <class B, int64_t kRuns>
void row_product(const PanelArgs& args) {
  constexpr int64_t chains = chains_of(1);
  const RowsInPlace<1> rows = {{static_cast<const float*>(args.a)}};
  const B b(args.panel);
  const int64_t run = kRuns == 1 ? args.k : args.k / (kRuns * chains) * chains;
  const int64_t depth =
      args.depth > 0 ? (args.depth + kRuns * chains - 1) / (kRuns * chains) * chains : args.k;
  Vf totals[2][kNv];
  clear(totals);
  Vf sum[kNv];
  int64_t turn = 0;
  for (int64_t begin = 0; begin < run; begin += depth, turn = 1 - turn) {
    sum_of_runs<B, kRuns>(rows, b, run, begin, std::min(begin + depth, run), sum);
    // Not totals[turn]: an array indexed by a variable would lie in memory.
    if (turn == 0) {
      add_to(totals[0], sum);
    } else {
      add_to(totals[1], sum);
    }
  }
  if (kRuns * run < args.k) {
    sum_of_runs<B, 1>(rows, b, 0, kRuns * run, args.k, sum);
    add_to(totals[1], sum);
  }
#pragma GCC unroll 4
  for (int64_t j = 0; j < kNv; ++j) put_sum(args, 0, j, hn::Add(totals[0][j], totals[1][j]));
}

// put(row, vector, sum) of kRows rows times one panel, over k in [begin, end).
template <class B, int64_t kRows, Ahead kAhead, class Put>
HWY_INLINE void panel_sums(const PanelArgs& args, int64_t row, int64_t begin, int64_t end,
                           const Put& put) {
  RowsInPlace<kRows> a;
#pragma GCC unroll 8
  for (int64_t i = 0; i < kRows; ++i)
    a.rows[i] = static_cast<const float*>(args.a) + (row + i) * args.a_stride + begin;
  const int64_t pieces = args.m / kMr;
  const int64_t bytes = begin * B::kStepBytes;
  const auto* next = static_cast<const char*>(next_of(args, pieces));
  if (next != nullptr) next += bytes;
  const NextPanel ahead(next, pieces, row / kMr, end - begin, B::kStepBytes, kFetchSteps);
  micro_kernel<kNv, chains_of(kRows), unroll_of(kRows), kAhead>(
      a, B(static_cast<const char*>(args.panel) + bytes), end - begin, ahead, put);
}

// What a tile adds to, asked for before its products.
template <int64_t kRows>
HWY_INLINE void fetch_sums(const PanelArgs& args, int64_t row) {
  if (!args.accumulate) return;
  const SumsPlace sums(args, row);
#pragma GCC unroll 8
  for (int64_t i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
    for (int64_t j = 0; j < kNv; ++j) fetch_line<kIntoL1>(sums.at(i, j));
  }
}

// What it writes after them.
template <int64_t kRows>
HWY_INLINE void fetch_results(const PanelArgs& args, int64_t row) {
  if (args.store == nullptr) return;
  constexpr int64_t line = 64;
  const PanelStore& s = *args.store;
  const int64_t bytes = s.type == FloatType::f32 ? 4 : 2;
  for (int64_t i = 0; i < kRows; ++i) {
    const char* const to = static_cast<const char*>(s.out) + (row + i) * s.stride * bytes;
    for (int64_t j = 0; j < s.columns * bytes; j += line) fetch_to_write(to + j);
  }
}

// Sums of args.depth products each; all but the last ones stay in L1.
template <class B, int64_t kRows, Ahead kAhead>
void panel_tile(const PanelArgs& args, int64_t row) {
  HWY_ALIGN float memory[TileSums<kRows>::kFloats];
  TileSums<kRows> sums(args, row, memory);
  if constexpr (kRows == kMr) {
    fetch_sums<kRows>(args, row);
    fetch_results<kRows>(args, row);
  }
  const int64_t depth = args.depth > 0 ? args.depth : args.k;
  for (int64_t k = 0; k < args.k; k += depth) {
    const int64_t end = std::min(k + depth, args.k);
    sums.begin_piece(k == 0, end == args.k);
    panel_sums<B, kRows, kAhead>(
        args, row, k, end, [sums](int64_t i, int64_t j, Vf sum) HWY_ATTR { sums.put(i, j, sum); });
  }
  sums.finish();
}

template <class B, Ahead kAhead, FloatType kType, bool kRelu>
void whole_tile(const PanelArgs& args, int64_t row) {
  const WholeStore<kType, kRelu> to(*args.store);
  panel_sums<B, kMr, kAhead>(args, row, 0, args.k,
                             [to, row](int64_t i, int64_t j, Vf sum) HWY_ATTR {
                               to.put(row + i, j * static_cast<int64_t>(kLanes), sum);
                             });
}

// Whether WholeStore can store a panel's results.
inline bool stores_whole(const PanelArgs& args) {
  return args.store != nullptr && args.store->columns == kWidth && !args.accumulate &&
         (args.depth == 0 || args.k <= args.depth);
}

template <class B, FloatType kType>
void whole_tile_of(const PanelArgs& args, int64_t row) {
  return args.store->relu ? whole_tile<B, Ahead{}, kType, true>(args, row)
                          : whole_tile<B, Ahead{}, kType, false>(args, row);
}

template <class B>
void panel_product(const PanelArgs& args) {
  if (args.m == 1) {
    // A short panel's runs would end before the processor fetches ahead of them.
    const bool is_short = args.k * B::kStepBytes < kRowRuns * kLeastRun;
    return is_short ? row_product<B, 1>(args) : row_product<B, kRowRuns>(args);
  }
  const bool is_in_l1 = args.k * B::kStepBytes <= kPanelInL1;
  const bool is_whole = stores_whole(args);
  all_rows<kMr>(args.m, [&](auto rows, auto stream, int64_t row) {
    if constexpr (rows() == kMr) {
      if (is_in_l1 && is_whole)
        return args.store->type == FloatType::bf16 ? whole_tile_of<B, FloatType::bf16>(args, row)
                                                   : whole_tile_of<B, FloatType::f32>(args, row);
    }
    // Few rows call with a part of a panel, and each part comes from memory.
    if (stream() == Stream::no && is_in_l1) return panel_tile<B, rows(), Ahead{}>(args, row);
    panel_tile<B, rows(), ahead_of<B>(rows(), stream())>(args, row);
  });
}

}  // namespace epilogue::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard, toggled per target
