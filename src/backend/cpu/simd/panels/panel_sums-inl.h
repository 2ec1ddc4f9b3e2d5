// SPDX-License-Identifier: Apache-2.0
// Where the sums of f32 panel kernels go: to memory, or finished to where PanelArgs::store says.
//
// Included once per target.
#if defined(EPILOGUE_SIMD_PANELS_PANEL_SUMS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef EPILOGUE_SIMD_PANELS_PANEL_SUMS_INL_H_
#undef EPILOGUE_SIMD_PANELS_PANEL_SUMS_INL_H_
#else
#define EPILOGUE_SIMD_PANELS_PANEL_SUMS_INL_H_
#endif

#include <array>

#include "backend/cpu/simd/math-inl.h"
#include "backend/cpu/simd/panels/kernel.h"
#include "backend/cpu/simd/panels/tile_size-inl.h"

HWY_BEFORE_NAMESPACE();
namespace epilogue::simd::HWY_NAMESPACE {

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

}  // namespace epilogue::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard, toggled per target
