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
// and those of this panel are on their way to it. All tiles fetch as much until it is there: a
// question between the products takes registers and ports from them.
class PanelFeed {
 public:
  // `pieces` tiles of `steps` steps take turns, each of which reads `lines` of its panel.
  PanelFeed(const void* next, int64_t pieces, int64_t steps, int64_t lines)
      : steps_(std::max(kLeastSteps, kAtOnce * pieces / lines / kUnit * kUnit)),
        at_(static_cast<const char*>(next)),
        end_(at_) {
    if (next == nullptr) return;
    bytes_ = ceil_div(steps_ * lines, pieces) * kLine;
    end_ += steps * lines * kLine;
  }
  // From one fetch to the next.
  int64_t steps() const { return steps_; }
  // What a tile that begins now fetches each time, from where on; it says how far it came.
  int64_t bytes() const { return at_ < end_ ? bytes_ : 0; }
  const char* begin() const { return at_; }
  void go_on(const char* at) { at_ = at; }

  static constexpr int64_t kLine = 64;

 private:
  // Fewer, and loops end too often; more, and they wait for each other.
  static constexpr int64_t kAtOnce = 6;  // lines
  static constexpr int64_t kUnit = 4;    // of steps that a loop takes at once
  static constexpr int64_t kLeastSteps = 8;
  int64_t steps_;
  int64_t bytes_ = 0;
  const char* at_;
  const char* end_;
};

// Where a tile's sums lie, row after row: one part, or two of half the width. Distances are
// constants, so that addresses need no registers.
struct TilePlace {
  float* parts[2];  // of one part the first

  template <int64_t kParts>
  HWY_INLINE float* at(int64_t i, int64_t j) const {
    constexpr int64_t vectors = kNv / kParts;
    return parts[j / vectors] + (i * vectors + j % vectors) * static_cast<int64_t>(kLanes);
  }
};

template <int64_t kParts, int64_t kRows>
HWY_INLINE void add_sums(const TilePlace& from, Vf (&sums)[kRows][kNv]) {
#pragma GCC unroll 8
  for (int64_t i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
    for (int64_t j = 0; j < kNv; ++j) sums[i][j] = hn::Add(load(from.at<kParts>(i, j)), sums[i][j]);
  }
}

template <int64_t kParts, int64_t kRows>
HWY_INLINE void store_sums(const Vf (&sums)[kRows][kNv], const TilePlace& to) {
#pragma GCC unroll 8
  for (int64_t i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
    for (int64_t j = 0; j < kNv; ++j) store(sums[i][j], to.at<kParts>(i, j));
  }
}

// `sums` of kRows rows of a strip times a piece of a panel; both go on behind it.
template <class B, int64_t kRows>
HWY_INLINE void strip_sums(StripOfRows& a, B& b, int64_t depth, PanelFeed& feed,
                           Vf (&sums)[kRows][kNv]) {
  constexpr int64_t chains = chains_of(kRows);
  // More steps at once, and GCC moves sums between AVX2's 16 registers and memory.
  constexpr int64_t unroll = std::max<int64_t>(chains, HWY_TARGET == HWY_AVX3 ? 1 : 2);
  // Less far than the 2 KiB of rows in their places is enough here.
  constexpr Ahead ahead = {.bytes = HWY_TARGET == HWY_AVX3 ? 1 << 10 : 0, .into = kIntoL1};
  Vf chain[chains][kRows][kNv];
#pragma GCC unroll 4
  for (int64_t c = 0; c < chains; ++c) clear(chain[c]);
  const char* next = feed.begin();
  const int64_t bytes = feed.bytes();
  for (int64_t rest = depth; rest >= unroll;) {
    for (const char* const end = next + bytes; next != end; next += PanelFeed::kLine)
      fetch_line<kIntoL2>(next);
    const int64_t steps = std::min(feed.steps(), rest / unroll * unroll);
    const float* const stop = b.data() + steps * kWidth;
    do {
#pragma GCC unroll 4
      for (int64_t c = 0; c < unroll; ++c) {
        fetch_ahead<ahead>(b, c);
        add_products(a, b, c, chain[c % chains]);
      }
      a.strip += unroll * kMr;
      b = B(b.data() + unroll * kWidth);
    } while (b.data() != stop);
    rest -= steps;
  }
  feed.go_on(next);
  for (int64_t k = 0; k < depth % unroll; ++k) {
    add_products(a, b, 0, chain[0]);
    a.strip += kMr;
    b = B(b.data() + kWidth);
  }
#pragma GCC unroll 8
  for (int64_t i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
    for (int64_t j = 0; j < kNv; ++j) sums[i][j] = merged<chains, kRows, kNv>(chain, i, j);
  }
}

// kRows rows over k in [begin, end). Between sums of args.depth products each these lie in
// `memory`.
template <class B, int64_t kRows>
void strip_piece(const PanelArgs& args, int64_t row, int64_t begin, int64_t end, float* memory,
                 PanelFeed& feed) {
  if (begin == 0) fetch_sums<kRows>(args, row);
  if (end == args.k) fetch_results<kRows>(args, row);
  const bool has_two = args.sums[1] != nullptr;
  const int64_t width = has_two ? kWidth / 2 : kWidth;
  const TilePlace place = {
      {args.sums[0] + row * width, has_two ? args.sums[1] + row * width : nullptr}};
  const TilePlace waiting = {{memory, nullptr}};
  const PanelStore* const store = args.store;
  const bool accumulate = args.accumulate;
  // Not asked of k alone (k > 0, k + depth < args.k): GCC 12 then moves AVX2's sums between
  // registers and memory at each step, which takes 1.6 times as long.
  const bool is_first = begin == 0;
  const bool is_last = end == args.k;
  const int64_t depth = args.depth > 0 ? args.depth : args.k;
  const auto* const strips = static_cast<const float*>(args.a);
  StripOfRows a = {kStripsBySums ? strips + begin * args.a_stride + row * (end - begin)
                                 : strips + row * args.k + begin * kMr};
  B b(static_cast<const float*>(args.panel) + begin * kWidth);
  for (int64_t k = begin; k < end; k += depth) {
    Vf sums[kRows][kNv];
    strip_sums(a, b, std::min(depth, end - k), feed, sums);
    if (k > begin || !is_first) {
      add_sums<1>(waiting, sums);
    } else if (accumulate) {
      has_two ? add_sums<2>(place, sums) : add_sums<1>(place, sums);
    }
    if (k + depth < end || !is_last || store != nullptr) {
      store_sums<1>(sums, waiting);
    } else {
      has_two ? store_sums<2>(sums, place) : store_sums<1>(sums, place);
    }
  }
  if (is_last && store != nullptr) finish_rows(*store, row, memory, memory + kRows * kWidth);
}

template <class B>
void strip_product(const PanelArgs& args) {
  HWY_ALIGN float memory[kGroup * kMr * kWidth];
  const int64_t pieces = args.m / kMr;
  PanelFeed feed(next_of(args, pieces), std::max<int64_t>(pieces, 1), args.k,
                 B::kStepBytes / PanelFeed::kLine);
  // What a tile takes before the next one of its group.
  const int64_t piece = kStripsBySums && args.depth > 0 ? args.depth : args.k;
  for (int64_t first = 0; first < args.m; first += kGroup * kMr) {
    const int64_t last = std::min(first + kGroup * kMr, args.m);
    for (int64_t k = 0; k < args.k; k += piece) {
      const int64_t end = std::min(k + piece, args.k);
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
