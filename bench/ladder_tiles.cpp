// SPDX-License-Identifier: Apache-2.0
#include "bench/ladder_tiles.h"

#include <algorithm>
#include <cstring>
#include <string_view>

#include "backend/cpu/chain/chain_plan.h"
#include "backend/cpu/simd/panels/block_lines.h"
#include "backend/cpu/simd/panels/write_back.h"
#include "backend/cpu/simd/scratch.h"
#include "base/ceil_div.h"
#include "base/thread_pool.h"
#include "bench/ladder_kernels.h"

namespace epilogue::bench::ladder {
namespace {

using simd::FloatType;
using simd::kTileBlock;
using simd::kTileK;
using simd::PanelKernel;
using simd::PanelKernelEntry;

thread_local simd::Scratch rows_scratch;
thread_local simd::Scratch sums_scratch;

// Rows whose sums stay in L1 until they are written, as eager products have it.
constexpr int64_t kPanelRows = 96;

const PanelKernelEntry& entry(std::string_view name) {
  const auto list = simd::panel_kernels();
  const auto found =
      std::ranges::find_if(list, [&](const PanelKernelEntry& e) { return e.name == name; });
  if (found == list.end()) throw Error("[ladder] no panel kernel is called " + std::string(name));
  return *found;
}

const PanelKernel& kernel_of(TileStep step) {
  return entry(step == TileStep::panels ? "amx" : "amx_tiled").kernel();
}

simd::PackedWeights pack(const Tensor& w, const PanelKernel& kernel) {
  if (w.dim() != 2 || !w.is_contiguous() || w.dtype() != DType::bf16)
    throw Error("[ladder] expected row-major w [n, k] of bf16, got " + to_string(w));
  const simd::PackedPart part = {{w.data(), FloatType::bf16, 1, w.size(1)}, w.size(1)};
  return {{&part, 1}, w.size(0), kernel.layout};
}

// Stores a block's sums as lines of y.
class LineWork final : public simd::TileWork {
 public:
  LineWork(float* sums, uint16_t* y, int64_t m, int64_t n) : sums_(sums), y_(y), m_(m), n_(n) {
    line_function = simd::plain_lines({});
  }
  float* sums() override { return sums_; }
  int64_t ready(int64_t block, int64_t panel) override {
    const int64_t row = panel * kTileBlock;
    const int64_t column = block * kTileBlock;
    lines.sums = sums_;
    lines.out = y_ + row * n_ + column;
    lines.stride = n_;
    lines.columns = std::min(kTileBlock, n_ - column);
    return std::min(kTileBlock, m_ - row);
  }
  int64_t pieces() const override { return 0; }
  void do_piece() override {}

 private:
  float* sums_;
  uint16_t* y_;
  int64_t m_;
  int64_t n_;
};

}  // namespace

bool TiledProduct::is_there() {
  constexpr simd::PanelUse use = {.weights = FloatType::bf16, .rows = 1024};
  return entry("amx").decline(use) == nullptr && entry("amx_tiled").decline(use) == nullptr;
}

TiledProduct::TiledProduct(const Tensor& w, TileStep step)
    : step_(step), kernel_(kernel_of(step)), weights_(pack(w, kernel_)) {}

void TiledProduct::run(const Tensor& x, const Tensor& y) const {
  const Sizes s = product_sizes(x, weights_.n(), weights_.k(), DType::bf16, y);
  const auto* const from = static_cast<const uint16_t*>(x.data());
  auto* const to = static_cast<uint16_t*>(y.data());
  const int64_t blocks =
      std::max<int64_t>(ceil_div(s.m, simd::tile_block_rows(s.k)), num_threads());
  parallel_blocks(blocks, [&](int64_t b) {
    const auto [first, last] = cpu::rows_of_block(s.m, kTileBlock, blocks, b);
    if (first >= last) return;
    const auto run =
        step_ == TileStep::panels ? &TiledProduct::run_panels : &TiledProduct::run_tiles;
    (this->*run)(from + first * s.k, to + first * s.n, last - first);
  });
}

void TiledProduct::run_panels(const uint16_t* x, uint16_t* y, int64_t m) const {
  const int64_t n = weights_.n();
  const int64_t k = weights_.k();
  const int64_t width = kernel_.layout.width;
  simd::PanelArgs args;
  args.k = weights_.padded_k();
  args.a_stride = k;
  const auto* rows = x;
  if (args.k != k) {  // else a tile would read beyond the last row
    auto* const padded =
        reinterpret_cast<uint16_t*>(rows_scratch.get(static_cast<size_t>(ceil_div(m * args.k, 2))));
    for (int64_t i = 0; i < m; ++i) {
      std::copy_n(x + i * k, k, padded + i * args.k);
      std::fill_n(padded + i * args.k + k, args.k - k, uint16_t{0});
    }
    rows = padded;
    args.a_stride = args.k;
  }
  float* const sums = sums_scratch.get(static_cast<size_t>(kPanelRows * width));
  args.sums[0] = sums;
  for (int64_t panel = 0; panel < weights_.panels(); ++panel) {
    args.panel = weights_.panel(panel, 0);
    const int64_t column = panel * width;
    for (int64_t row = 0; row < m; row += kPanelRows) {
      args.m = std::min(kPanelRows, m - row);
      args.a = rows + row * args.a_stride;
      kernel_.one(args);
      simd::WriteBack to;
      to.out = y + row * n + column;
      to.out_type = FloatType::bf16;
      to.out_row_stride = n;
      simd::write_back_kernels().rows(sums, width, args.m, std::min(width, n - column), to);
    }
  }
}

void TiledProduct::run_tiles(const uint16_t* x, uint16_t* y, int64_t m) const {
  const int64_t n = weights_.n();
  const int64_t k = weights_.k();
  const int64_t steps = weights_.padded_k() / kTileK;
  float* const memory =
      rows_scratch.get(static_cast<size_t>(simd::TiledRows::bytes_of(m, steps)) / sizeof(float));
  simd::TileArgs args;
  const bool cuts = step_ == TileStep::blocks;
  args.rows = {reinterpret_cast<uint16_t*>(memory), m, steps,
               cuts ? simd::tile_depth(steps) : std::max<int64_t>(steps, 1)};
  for (int64_t i = 0; i < m; ++i) args.rows.set_row(i, x + i * k, k);
  args.weights = weights_.tiles(0);
  const int64_t blocks = ceil_div(n, kTileBlock);
  const int64_t panels = args.rows.panels();
  args.resident = steps;
  if (cuts) {
    const simd::TileBlocks chosen = simd::tile_blocks(panels, steps, blocks);
    args.chunk = chosen.chunk;
    args.resident = chosen.resident;
    args.fetches_rows = chosen.fetches_rows;
  }
  args.overlaps = step_ != TileStep::tiled;
  const int64_t waiting = args.rows.depth < steps ? args.chunk * panels * simd::kBlockSums : 0;
  float* const sums = sums_scratch.get(static_cast<size_t>(simd::kBlockSums + waiting));
  args.waiting = sums + simd::kBlockSums;
  LineWork work(sums, y, m, n);
  args.work = &work;
  if (cuts || step_ == TileStep::fetches) {
    args.last = blocks;
    args.next = args.weights.at(0, 0);
    return kernel_.tiles(args);
  }
  // Calls of one block know nothing of the next: nothing is fetched.
  for (int64_t block = 0; block < blocks; ++block) {
    args.first = block;
    args.last = block + 1;
    kernel_.tiles(args);
  }
}

}  // namespace epilogue::bench::ladder
