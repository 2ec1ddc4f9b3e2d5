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

#include "backend/cpu/simd/panels/few_rows-inl.h"
#include "backend/cpu/simd/panels/kernel.h"
#include "backend/cpu/simd/panels/micro_kernel-inl.h"
#include "backend/cpu/simd/panels/panel_sums-inl.h"
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

inline constexpr int64_t kLeastRun = 8 << 10;  // bytes

// One sum of one row: over k in [begin, end), and as far into each other run.
template <class B, int64_t kRuns, Ahead kAhead>
HWY_INLINE void sum_of_runs(const RowsInPlace<1>& rows, const B& b, int64_t run, int64_t begin,
                            int64_t end, Vf (&sum)[kNv]) {
  constexpr int64_t chains = chains_of(1);
  Vf sums[chains][1][kNv];
#pragma GCC unroll 4
  for (int64_t c = 0; c < chains; ++c) clear(sums[c]);
  int64_t k = begin;
  for (; k + chains <= end; k += chains) {
#pragma GCC unroll 4
    for (int64_t r = 0; r < kRuns; ++r) {
#pragma GCC unroll 4
      for (int64_t c = 0; c < chains; ++c) {
        fetch_ahead<kAhead>(b, r * run + k + c);
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
template <class B, int64_t kRuns, Ahead kAhead>
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
    sum_of_runs<B, kRuns, kAhead>(rows, b, run, begin, std::min(begin + depth, run), sum);
    // Not totals[turn]: an array indexed by a variable would lie in memory.
    if (turn == 0) {
      add_to(totals[0], sum);
    } else {
      add_to(totals[1], sum);
    }
  }
  if (kRuns * run < args.k) {
    sum_of_runs<B, 1, Ahead{}>(rows, b, 0, kRuns * run, args.k, sum);
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
    if (is_short) return row_product<B, 1, Ahead{}>(args);
    return HWY_TARGET != HWY_AVX3 || reads_in_runs() ? row_product<B, kRowRuns, kAheadOfRun>(args)
                                                     : row_product<B, 1, kAheadOfSingleRun>(args);
  }
  const bool is_in_l1 = args.k * B::kStepBytes <= kPanelInL1;
  const bool is_whole = stores_whole(args);
  // Weights of 16 bits come twice as fast: fewer rows' products hide behind their way than short
  // pieces cost.
  constexpr bool is_f32 = B::kStepBytes == kWidth * static_cast<int64_t>(sizeof(float));
  if constexpr (is_f32) {
    if (args.m <= kMostFewRows && (args.two_totals || !is_in_l1))
      return few_rows_fetch_into_l1(args.m, HWY_TARGET == HWY_AVX2)
                 ? few_rows_product<B, kIntoL1>(args)
                 : few_rows_product<B, kIntoL2>(args);
  }
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
