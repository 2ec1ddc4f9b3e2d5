// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/simd/gemm/plan.h"

#include <algorithm>

#include "backend/cpu/simd/gemm/gemv.h"
#include "base/caches.h"
#include "base/ceil_div.h"
#include "base/machine.h"
#include "base/thread_pool.h"

namespace epilogue::simd {
namespace {

// Read once: the answer lies in files.
int64_t l2_bytes() {
  static const int64_t bytes = [] {
    const long told = cpu_caches().l2_bytes;
    return told > 0 ? static_cast<int64_t>(told) : int64_t{512} << 10;
  }();
  return bytes;
}

// What a thread must have to do to be worth its waking. One that still spins costs handoff_ns.
constexpr double kLeastThreadNs = 2000;

double least_thread_ns(const MachineRates& rates) {
  return std::max(kLeastThreadNs, 2 * rates.handoff_ns);
}

// Elements of B that make a gemv's thread worth waking.
int64_t gemv_elements(const GemmCall& c) {
  const MachineRates rates = machine_rates();
  const auto element_bytes = static_cast<double>(size_of(c.b.type));
  const double bytes = static_cast<double>(c.k) * static_cast<double>(c.n) * element_bytes;
  const bool is_cached = bytes < static_cast<double>(l2_bytes());
  const double rate = is_cached ? kCachedBytesPerNs : rates.stream_bytes_per_ns;
  return static_cast<int64_t>(2 * least_thread_ns(rates) * rate / element_bytes);
}

// A's chunk, read once for each panel of B: a sixth of a common L3, with room for C and B.
constexpr int64_t kChunkABytes = 6 << 20;
// f32 partial sums of a 16-bit C, needed where k takes several chunks.
constexpr int64_t kPartialBytes = 32 << 20;
// B below this stays in L1 or near it, however often it is read.
constexpr int64_t kSmallBBytes = 32 << 10;

// Of kernels of 16-bit pairs: a panel is 256 KiB; its rows' sums share L2 with it.
constexpr int64_t kPairsDepth = 2048;
constexpr int64_t kPairsRows = 1024;

bool n_contiguous(const GemmCall& c) { return c.b.col_stride == 1 || c.n == 1; }
bool k_contiguous(const GemmCall& c) { return c.b.row_stride == 1 || c.k == 1; }

// Packing a panel of B takes about as long as multiplying it by so many tiles of rows.
constexpr int64_t kPackTiles = 2;

// Rows times columns of threads: the cut whose largest piece takes the shortest time. Each cut of
// the rows packs all of B again.
void split_threads(GemmPlan& s, int threads, int64_t row_tiles, int64_t column_panels) {
  const int64_t pack = s.packs_b ? kPackTiles : 0;
  int64_t best = -1;
  for (int rows = 1; rows <= std::min<int64_t>(threads, row_tiles); ++rows) {
    const auto columns = static_cast<int>(std::min<int64_t>(threads / rows, column_panels));
    const int64_t piece = (ceil_div(row_tiles, rows) + pack) * ceil_div(column_panels, columns);
    if (best >= 0 && piece >= best) continue;
    best = piece;
    s.pieces_m = rows;
    s.pieces_n = columns;
  }
}

// A chunk of k at a time for all of C.
void choose_f32_blocks(GemmPlan& s, const GemmCall& c) {
  constexpr int64_t float_bytes = sizeof(float);
  const int64_t deepest =
      std::clamp<int64_t>(l2_bytes() / 4 / (s.kernel->layout.width * float_bytes), 128, 1024);
  s.kc = s.k_chunk = even_chunk(c.k, deepest, 8);
  int64_t rows = kChunkABytes / (s.kc * float_bytes);
  if (s.kc < c.k && c.c_type != FloatType::f32)
    rows =
        std::min(rows, std::max(kPartialBytes / (c.n * float_bytes), int64_t{16} * s.kernel->mr));
  s.m_chunk = even_chunk(c.m, rows, s.kernel->mr);
}

// All of k for one panel of C at a time: products are so fast that sums must not leave L2.
void choose_pairs_blocks(GemmPlan& s, const GemmCall& c) {
  s.kc = kPairsDepth;
  s.k_chunk = s.kernel->layout.padded(c.k);
  s.m_chunk = even_chunk(c.m, kPairsRows * num_threads(), s.kernel->mr);
}

// Up to so many rows, threads take columns of their own, which are tiled while those before them
// are multiplied: more rows make it worth tiling them beforehand, for all threads.
constexpr int64_t kFedRows = 1024;
// Below either a product takes less time than it takes to tile both operands.
constexpr int64_t kLeastTiledElements = 128 << 10;
constexpr int64_t kLeastTiledRows = 32;

// Tiled rows take all of k, a block of them stays in L2; columns that all threads read in L3.
void choose_tiles(GemmPlan& s, const GemmCall& c) {
  constexpr int64_t kChunkBytes = 16 << 20;
  constexpr int64_t kLeastColumns = 1024;
  s.path = GemmPath::tiles;
  // The kernel for weights that are packed in tiles.
  s.kernel = &choose_panel_kernel({.weights = c.b.type, .rows = c.m}).kernel();
  s.kc = tile_depth(ceil_div(c.k, kTileK)) * kTileK;
  s.k_chunk = s.kernel->layout.padded(c.k);
  s.m_chunk = tile_block_rows(c.k);
  s.n_chunk = even_chunk(c.n, std::max(kChunkBytes / (2 * c.k), kLeastColumns), kTileBlock);
}

// Rows of A that are as the kernel wants them are read where they lie. B is packed unless too few
// rows use it to earn that back, or it is so small that its layout does not matter.
void choose_packing(GemmPlan& s, const GemmCall& c) {
  const PanelLayout& layout = s.kernel->layout;
  s.packs_a =
      !(c.a.type == layout.rows && (c.a.col_stride == 1 || c.k == 1) && layout.padded(c.k) == c.k);
  const bool b_as_is = s.kernel->block != nullptr && c.b.type == FloatType::f32 && n_contiguous(c);
  const bool small = c.k * c.n * static_cast<int64_t>(sizeof(float)) <= kSmallBBytes;
  s.packs_b = !(b_as_is && (small || c.m <= 3 * s.kernel->mr));
}

}  // namespace

int64_t even_chunk(int64_t total, int64_t most, int64_t multiple) {
  const int64_t chunks = std::max<int64_t>(1, ceil_div(total, std::max(most, multiple)));
  return std::max<int64_t>(1, ceil_div(ceil_div(total, chunks), multiple)) * multiple;
}

GemmPlan plan_gemm(const GemmCall& c) {
  GemmPlan s;
  const bool is_empty = c.m == 0 || c.n == 0;
  if (c.k == 0) {
    s.path = is_empty ? GemmPath::nothing : GemmPath::no_sum;
    return s;
  }
  if (!is_empty && c.m <= kGemvRows && (n_contiguous(c) || k_contiguous(c))) {
    s.path = n_contiguous(c) ? GemmPath::gemv_n : GemmPath::gemv_k;
    const int64_t grain = std::max<int64_t>(gemv_elements(c) / c.k, 16);
    s.pieces_n = parallel_pieces(c.n, grain);
    return s;
  }
  s.entry = &choose_panel_kernel({.weights = c.b.type,
                                  .rows = c.m,
                                  .widens = c.a.type != FloatType::bf16,
                                  .packs_once = true});
  s.kernel = &s.entry->kernel();
  if (is_empty) {
    s.path = GemmPath::nothing;
    return s;
  }
  const bool is_bf16 = s.kernel->layout.rows == FloatType::bf16;
  const bool is_small = c.k * c.n < kLeastTiledElements || c.m < kLeastTiledRows;
  if (is_bf16 && s.kernel->has_tiles && c.a.type == FloatType::bf16 && !is_small) {
    choose_tiles(s, c);
  } else {
    is_bf16 ? choose_pairs_blocks(s, c) : choose_f32_blocks(s, c);
    choose_packing(s, c);
  }
  const double flops =
      2.0 * static_cast<double>(c.m) * static_cast<double>(c.n) * static_cast<double>(c.k);
  const MachineRates rates = machine_rates();
  const double alone_ns = flops / (is_bf16 ? rates.bf16_flops_per_ns : rates.f32_flops_per_ns) +
                          static_cast<double>(c.m) * static_cast<double>(c.n) * kElementNs;
  const auto wanted = static_cast<int>(std::min(alone_ns / least_thread_ns(rates), 4096.0));
  const int threads = std::clamp(wanted, 1, num_threads());
  if (s.path == GemmPath::tiles) {
    // A's rows are packed by each piece of columns, B's columns once: rows first.
    const int64_t row_tiles = ceil_div(c.m, kTileBlock);
    const int64_t column_tiles = ceil_div(c.n, kTileBlock);
    s.feeds = c.m <= kFedRows && column_tiles >= threads;
    if (s.feeds) s.m_chunk = c.m;
    s.pieces_m = s.feeds ? 1 : static_cast<int>(std::min<int64_t>(threads, row_tiles));
    s.pieces_n = static_cast<int>(std::clamp<int64_t>(threads / s.pieces_m, 1, column_tiles));
    return s;
  }
  split_threads(s, threads, ceil_div(std::min(s.m_chunk, c.m), s.kernel->mr),
                ceil_div(c.n, s.kernel->layout.width));
  return s;
}

}  // namespace epilogue::simd
