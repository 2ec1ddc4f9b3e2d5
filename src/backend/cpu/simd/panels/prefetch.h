// SPDX-License-Identifier: Apache-2.0
// The panel after this one, brought into L2 while this one is multiplied.
//
// A panel comes from L3 once per block of rows. The first micro-kernel over it would wait for it
// and those after it not; spread over all of them, the fetch hides behind arithmetic. Each line is
// asked for once: a prefetch at every step of k would be several for each line, and take the load
// ports from the products. Plain code, to be included above target regions.
#pragma once

#include <algorithm>

#include "backend/cpu/simd/fetch_line.h"
#include "backend/cpu/simd/panels/kernel.h"
#include "base/cpu_features.h"

namespace epilogue::simd {

// Who reads a panel that comes from L3 or memory, once: its own few rows alone (then they fetch
// what they read soon), or these and others after them (then each fetches its part of what
// follows).
enum class Stream : bool { no, first };

// How many bytes ahead of what is read is fetched, and into which level. 0: nothing.
struct Ahead {
  int64_t bytes = 0;
  int into = kIntoL1;
};

// Of weights that come from L3 or memory. The processor's own prefetching ends at each page. Into
// L2, because L1 can wait for a dozen lines only: into L1 it read 13 % less per second. Wider
// types take fewer steps per byte.
constexpr Ahead ahead_of_stream(int64_t weight_bytes) {
  return {.bytes = weight_bytes == 4 ? 3 << 10 : 4 << 10, .into = kIntoL2};
}

// Where one row reads a panel at once. One thread that reads four places gets 5 to 15 % more from
// memory than one that reads a single run (Cascade Lake, pages of 4 KiB and of 2 MiB): the
// processor's own prefetching ends at each page, and begins anew while the other runs go on.
inline constexpr int64_t kRowRuns = 4;
// Of integers: as fast as four from memory, and as one from L3.
inline constexpr int64_t kIntegerRuns = 2;
inline constexpr Ahead kAheadOfRun = {.bytes = 1 << 10, .into = kIntoL2};
// Of f32 by AVX-512 on Zen 4 a single run gets 2 to 10 % more from memory, and 10 to 25 % more from
// L3 (by AVX2 up to 5 % less). Without a fetch it is faster still from L3, but slower from memory.
inline constexpr Ahead kAheadOfSingleRun = {.bytes = 2 << 10, .into = kIntoL2};
inline bool reads_in_runs() {
  static const bool in_runs = is_intel_cpu();
  return in_runs;
}

// Tiles of rows from which on a fetch of the next panel hides behind them. With fewer the first of
// them fetches what it reads soon.
inline constexpr int64_t kLeastPieces = 4;

// Rows that take a panel of f32 in pieces which stay in L1 (few_rows-inl.h), at most: those whose
// sums are short in any case. Of more, what pieces cost is more than they save.
inline constexpr int64_t kMostFewRows = 15;

// On Zen 4 four to 15 rows (by AVX2 eight) are 1.05 to 1.3 times as fast by L2, two rows (by AVX2
// four) 0.9 times.
inline bool few_rows_fetch_into_l1(int64_t rows, bool is_avx2) {
  static const bool is_intel = is_intel_cpu();
  return fetches_into_l1() || (!is_intel && rows < (is_avx2 ? 6 : 4));
}

// Many rows: the panel after this one, where there are rows enough to hide its fetch behind; with
// fewer, memory is the limit already.
inline const void* next_of(const PanelArgs& args, int64_t pieces) {
  return pieces < kLeastPieces ? nullptr : args.next;
}

class NextPanel {
 public:
  // Piece `piece` of `pieces`; each makes `steps` steps over a panel, of `step_bytes` each, and
  // takes them in groups of a multiple of `unroll`.
  NextPanel(const void* next, int64_t pieces, int64_t piece, int64_t steps, int64_t step_bytes,
            int64_t unroll)
      : group_(std::max<int64_t>(steps, 1)) {
    if (next == nullptr) return;
    // As many steps as bring a line to fetch.
    const int64_t steps_per_line = (kLine * pieces + step_bytes - 1) / step_bytes;
    group_ = (steps_per_line + unroll - 1) / unroll * unroll;
    group_bytes_ = group_ * step_bytes / pieces;
    at_ = static_cast<const char*>(next) + piece * (steps * step_bytes / pieces);
  }
  // Steps from one fetch to the next, a multiple of `unroll`, or all of them.
  int64_t group() const { return group_; }
  // Of group `index`. Always inlined, as fetch_line() is.
  [[gnu::always_inline]] void fetch(int64_t index) const {
    if (at_ == nullptr) return;
    const char* const from = at_ + index * group_bytes_;
    for (int64_t i = 0; i < group_bytes_; i += kLine) fetch_line<kIntoL2>(from + i);
  }

 private:
  static constexpr int64_t kLine = 64;
  const char* at_ = nullptr;
  int64_t group_;
  int64_t group_bytes_ = 0;
};

}  // namespace epilogue::simd
