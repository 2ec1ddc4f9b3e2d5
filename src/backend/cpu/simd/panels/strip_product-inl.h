// SPDX-License-Identifier: Apache-2.0
// Rows of f32 in strips (StripFunctions in kernel.h), and their product with a panel whose type is
// B, as in panel_product-inl.h: what panel_product() does with rows in their places, sum by sum.
//
// Included once per target.
#if defined(EPILOGUE_SIMD_PANELS_STRIP_PRODUCT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef EPILOGUE_SIMD_PANELS_STRIP_PRODUCT_INL_H_
#undef EPILOGUE_SIMD_PANELS_STRIP_PRODUCT_INL_H_
#else
#define EPILOGUE_SIMD_PANELS_STRIP_PRODUCT_INL_H_
#endif

#include <algorithm>

#include "backend/cpu/simd/panels/panel_product-inl.h"
#include "base/ceil_div.h"

HWY_BEFORE_NAMESPACE();
namespace epilogue::simd::HWY_NAMESPACE {

#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2

// How strips lie. Vectors of 256 bits use a panel's part for one sum (10 KiB) so slowly that it
// stays in L1 while a group of strips passes, whose sums stay there too: strips lie in the order in
// which they are read then. Of 512 bits such a part is too large; a strip passes all of it.
inline constexpr bool kStripsBySums = HWY_TARGET == HWY_AVX2;
inline constexpr int64_t kGroup = kStripsBySums ? 16 : 1;

// kColumns columns of kMr rows. In each half of a vector four columns are transposed: pairs of rows
// first, then pairs of pairs.
constexpr hn::CappedTag<float, 8> kHalves;
constexpr auto kColumns = static_cast<int64_t>(hn::MaxLanes(kHalves));

HWY_INLINE void pack_columns(const float* const (&rows)[kMr], int64_t k, float* to) {
  static_assert(kMr == 6);
  const hn::RepartitionToWide<decltype(kHalves)> pairs;
  using Vh = hn::Vec<decltype(kHalves)>;
  Vh row[kMr];
#pragma GCC unroll 8
  for (int64_t i = 0; i < kMr; ++i) row[i] = hn::LoadU(kHalves, rows[i] + k);
  Vh out[kMr];
#pragma GCC unroll 2
  for (int64_t upper = 0; upper < 2; ++upper) {
    hn::Vec<decltype(pairs)> two[3];
#pragma GCC unroll 3
    for (int64_t i = 0; i < 3; ++i)
      two[i] =
          hn::BitCast(pairs, upper != 0 ? hn::InterleaveUpper(kHalves, row[2 * i], row[2 * i + 1])
                                        : hn::InterleaveLower(kHalves, row[2 * i], row[2 * i + 1]));
    out[3 * upper] = hn::BitCast(kHalves, hn::InterleaveLower(pairs, two[0], two[1]));
    out[3 * upper + 1] = hn::BitCast(kHalves, hn::OddEven(two[0], two[2]));
    out[3 * upper + 2] = hn::BitCast(kHalves, hn::InterleaveUpper(pairs, two[1], two[2]));
  }
  const hn::Half<decltype(kHalves)> half;
  constexpr auto four = static_cast<int64_t>(hn::MaxLanes(half));
#pragma GCC unroll 8
  for (int64_t i = 0; i < kMr; ++i) {
    hn::StoreU(hn::LowerHalf(half, out[i]), half, to + i * four);
    hn::StoreU(hn::UpperHalf(half, out[i]), half, to + (kMr + i) * four);
  }
}

inline void pack_strips(const float* from, int64_t stride, int64_t m, int64_t k, float* to) {
  for (int64_t row = 0; row < m; row += kMr) {
    const float* rows[kMr];
    // Any row does for those that are not there.
    for (int64_t i = 0; i < kMr; ++i) rows[i] = from + std::min(row + i, m - 1) * stride;
    int64_t column = 0;
    for (; column + kColumns <= k; column += kColumns, to += kColumns * kMr)
      pack_columns(rows, column, to);
    for (; column < k; ++column)
      for (int64_t i = 0; i < kMr; ++i) *to++ = rows[i][column];
  }
}

struct StripOfRows {
  const float* strip;
  HWY_INLINE float at(int64_t i, int64_t k) const { return strip[k * kMr + i]; }
};

// The panel after this one, fetched into L2 a few lines at a time: L1 can wait for a dozen lines,
// and those of this panel are on their way to it.
class PanelFeed {
 public:
  // `lines`: of a step.
  PanelFeed(const void* next, int64_t pieces, int64_t steps, int64_t lines)
      : steps_(std::max(kLeastSteps, pieces / lines / kUnit * kUnit)) {
    if (next == nullptr) return;
    lines_ = ceil_div(steps_ * lines, pieces);
    at_ = static_cast<const char*>(next);
    end_ = at_ + steps * lines * kLine;
  }
  static constexpr int64_t kLine = 64;
  // From one fetch to the next.
  int64_t steps() const { return steps_; }
  [[gnu::always_inline]] void fetch() {
    const char* const stop = std::min(end_, at_ + lines_ * kLine);
    for (; at_ < stop; at_ += kLine) fetch_line<kIntoL2>(at_);
  }

 private:
  static constexpr int64_t kUnit = 4;  // of steps that a loop takes at once
  // Where a loop is short, its end is forecast; where it is long, that happens seldom.
  static constexpr int64_t kLeastSteps = kStripsBySums ? 80 : 8;
  int64_t steps_;
  int64_t lines_ = 0;
  const char* at_ = nullptr;
  const char* end_ = nullptr;
};

// put(row, vector, sum) of kRows rows of a strip times a piece of a panel.
template <class B, int64_t kRows, class Put>
HWY_INLINE void strip_sums(StripOfRows a, B b, int64_t depth, PanelFeed& feed, const Put& put) {
  constexpr int64_t chains = chains_of(kRows);
  // More steps at once, and GCC moves sums between AVX2's 16 registers and memory.
  constexpr int64_t unroll = std::max<int64_t>(chains, HWY_TARGET == HWY_AVX3 ? 1 : 2);
  // Less far than the 2 KiB of rows in their places is enough here.
  constexpr Ahead ahead = {.bytes = HWY_TARGET == HWY_AVX3 ? 1 << 10 : 0, .into = kIntoL1};
  Vf sums[chains][kRows][kNv];
#pragma GCC unroll 4
  for (int64_t c = 0; c < chains; ++c) clear(sums[c]);
  // Within a group addresses alone count the steps: what else a step does takes ports from it.
  int64_t rest = depth;
  while (rest >= unroll) {
    feed.fetch();
    const int64_t steps = std::min(feed.steps(), rest / unroll * unroll);
    const float* const stop = b.data() + steps * kWidth;
    do {
#pragma GCC unroll 4
      for (int64_t c = 0; c < unroll; ++c) {
        fetch_ahead<ahead>(b, c);
        add_products(a, b, c, sums[c % chains]);
      }
      a.strip += unroll * kMr;
      b = B(b.data() + unroll * kWidth);
    } while (b.data() != stop);
    rest -= steps;
  }
  for (int64_t k = 0; k < rest; ++k) add_products(a, b, k, sums[0]);
#pragma GCC unroll 8
  for (int64_t i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
    for (int64_t j = 0; j < kNv; ++j) put(i, j, merged<chains, kRows, kNv>(sums, i, j));
  }
}

// kRows rows over k in [begin, end), as many as one sum takes in. `memory`: TileSums' of these
// rows.
template <class B, int64_t kRows>
void strip_piece(const PanelArgs& args, int64_t row, int64_t begin, int64_t end, float* memory,
                 PanelFeed& feed) {
  if (begin == 0) fetch_sums<kRows>(args, row);
  if (end == args.k) fetch_results<kRows>(args, row);
  TileSums<kRows> sums(args, row, memory);
  sums.begin_piece(begin == 0, end == args.k);
  const auto* const strips = static_cast<const float*>(args.a);
  const float* const strip = kStripsBySums ? strips + begin * args.a_stride + row * (end - begin)
                                           : strips + row * args.k + begin * kMr;
  const auto* const panel = static_cast<const float*>(args.panel);
  strip_sums<B, kRows>({strip}, B(panel + begin * kWidth), end - begin, feed,
                       [sums](int64_t i, int64_t j, Vf sum) HWY_ATTR { sums.put(i, j, sum); });
  if (end == args.k) sums.finish();
}

template <class B>
void strip_product(const PanelArgs& args) {
  HWY_ALIGN float memory[kGroup * kMr * kWidth];
  const int64_t pieces = args.m / kMr;
  PanelFeed feed(next_of(args, pieces), std::max<int64_t>(pieces, 1), args.k,
                 B::kStepBytes / PanelFeed::kLine);
  const int64_t depth = args.depth > 0 ? args.depth : args.k;
  for (int64_t first = 0; first < args.m; first += kGroup * kMr) {
    const int64_t last = std::min(first + kGroup * kMr, args.m);
    for (int64_t k = 0; k < args.k; k += depth) {
      const int64_t end = std::min(k + depth, args.k);
      int64_t row = first;
      for (; row + kMr <= last; row += kMr)
        strip_piece<B, kMr>(args, row, k, end, memory + (row - first) * kWidth, feed);
      some_rows<kMr>(last - row, [&](auto rows) {
        strip_piece<B, rows()>(args, row, k, end, memory + (row - first) * kWidth, feed);
      });
    }
  }
}

template <class B>
constexpr StripFunctions strip_functions() {
  return {pack_strips, strip_product<B>, kStripsBySums};
}

#else

template <class B>
constexpr StripFunctions strip_functions() {
  return {};
}

#endif

}  // namespace epilogue::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard, toggled per target
