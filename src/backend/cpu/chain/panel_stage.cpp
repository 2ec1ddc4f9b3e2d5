// SPDX-License-Identifier: Apache-2.0
// A stage of a row chain by the kernels of panels: chunks of k, panels, and what is done with their
// sums. tile_stage.h has the same by tiles.
#include <algorithm>
#include <numeric>
#include <optional>

#include "backend/cpu/chain/row_chain.h"
#include "backend/cpu/chain/stage_finish.h"
#include "backend/cpu/chain/sum_depth.h"
#include "backend/cpu/chain/tile_stage.h"
#include "backend/cpu/simd/panels/prefetch.h"
#include "backend/cpu/simd/scratch.h"
#include "base/ceil_div.h"

namespace epilogue::cpu {
namespace {

using simd::PackedWeights;
using simd::PanelArgs;

// Depth of a chunk of k: with 64 columns 128 KiB (bf16) or 192 KiB (f32) of weights stay in L2
// while a block of rows passes.
constexpr int64_t kChunkK = 1024;
constexpr int64_t kStripChunkK = 768;
// Sums of strips that wait in L2 for more of k.
constexpr int64_t kWaitingSumsBytes = 256 << 10;
// Of every kernel's steps along k a multiple.
constexpr int64_t kChunkUnit = 32;

// Kernels end short sums of as many rows themselves (PanelArgs::two_totals).
static_assert(rows_of_short_sums(16) <= simd::kMostFewRows);

thread_local simd::Scratch stage_scratch;  // products, and the programs' buffers

// The loops of one call of run_stage() with a kernel of panels.
class StageRun {
 public:
  StageRun(const StageCall& call, const StageFlow& flow, const StageRows& a, int64_t row, int64_t m)
      : call_(call),
        weights_(*call.weights),
        a_(a),
        m_(m),
        each_(weights_.columns_per_panel()),
        two_totals_(call.kernel->layout.weight_bytes == 4 && m > 1 &&
                    m <= rows_of_short_sums(call.kernel->lanes)),
        overlaps_(call.overlap_rows > 0 && m >= call.overlap_rows),
        finish_(call, flow, row, each_) {}

  void run(int64_t first, int64_t last) {
    const int64_t size = sums_floats();
    const int64_t chunk = chunk_of_k(call_, m_);
    const int64_t chunks = (call_.padded_k + chunk - 1) / chunk;
    const int64_t at_once = chunks == 1 ? last - first : panels_at_once(last - first);
    const int64_t kept = chunks == 1 ? 1 : at_once;  // panels whose sums wait for more of k
    const int64_t buffers = finish_.buffer_floats();
    const int64_t areas = overlaps_ ? StageOverlap::floats(each_, weights_.products()) : 0;
    const int64_t biases = finish_.widens_bias() ? (last - first) * each_ : 0;
    float* const memory =
        stage_scratch.get(static_cast<size_t>(kept * size + buffers + areas + biases));
    float* const bias = biases > 0 ? memory + kept * size + buffers + areas : nullptr;
    if (bias != nullptr) finish_.widen_bias(first, last, bias);
    float* const tiles = memory + kept * size;
    std::optional<StageOverlap> overlap;
    if (overlaps_)
      overlap.emplace(tiles + buffers, each_, weights_.products(), finish_.most_rows(),
                      [this, tiles](const ReadyRows& rows) { finish_.rows(rows, tiles); });
    const auto some_panels = [&](int64_t begin, int64_t limit) {
      for (int64_t k = 0; k < call_.padded_k; k += chunk) {
        const int64_t end = std::min(k + chunk, call_.padded_k);
        const bool is_last = end == call_.padded_k;
        const int64_t depth = depth_of_sums(end - k);
        for (int64_t panel = begin; panel < limit; ++panel) {
          float* const sums = memory + (chunks == 1 ? 0 : panel - begin) * size;
          const std::optional<simd::PanelStore> store =
              is_last ? finish_.in_registers(
                            panel, bias == nullptr ? nullptr : bias + (panel - first) * each_)
                      : std::nullopt;
          if (overlap) overlap->begin_panel(panel);
          multiply(panel, k, end, depth, after(panel, k, end, begin, limit),
                   {sums, 0, store ? &*store : nullptr,
                    is_last && overlap && !store ? &*overlap : nullptr});
          if (is_last && !store && !overlap) finish(panel, sums, tiles);
        }
      }
    };
    for (int64_t panel = first; panel < last; panel += at_once)
      some_panels(panel, std::min(panel + at_once, last));
    if (overlap) overlap->end();
  }

  // Products over k in [begin, end) alone.
  void run_slice(int64_t begin, int64_t end, float* sums, int64_t panel_stride) const {
    const int64_t depth = depth_of_sums(end - begin);
    for (int64_t panel = 0; panel < weights_.panels(); ++panel)
      multiply(panel, begin, end, depth,
               panel + 1 < weights_.panels() ? weights_.panel(panel + 1, begin) : nullptr,
               {sums + panel * panel_stride, begin});
  }

  void finish_panel(int64_t panel, float* sums) const {
    finish(panel, sums, stage_scratch.get(static_cast<size_t>(finish_.buffer_floats())));
  }

 private:
  struct Sums {
    float* data;
    int64_t first_k;  // where they begin
    // Where the last ones go instead, if the kernel can do all that is left to do.
    const simd::PanelStore* store = nullptr;
    // Or what is done between the last ones.
    simd::PanelWork* work = nullptr;
  };

  // What run(first, last) reads after a panel's weights of k in [begin, end); at its own end what
  // the next call most likely begins with.
  const void* after(int64_t panel, int64_t begin, int64_t end, int64_t first, int64_t last) const {
    if (panel + 1 < last) return weights_.panel(panel + 1, begin);
    if (end < call_.padded_k) return weights_.panel(first, end);
    return last < weights_.panels() ? weights_.panel(last, 0) : nullptr;
  }

  // Of `panels`, those that go through all of k before the next ones begin.
  int64_t panels_at_once(int64_t panels) const {
    if (!a_.in_strips) return panels;
    const int64_t bytes = sums_floats() * int64_t{sizeof(float)};
    return std::max<int64_t>(1, std::min(kWaitingSumsBytes / bytes, panels));
  }

  int64_t sums_floats() const { return m_ * each_ * weights_.products(); }

  // How deep one sum goes where k is `length` long.
  int64_t depth_of_sums(int64_t length) const {
    return std::max<int64_t>(1, sum_depth(weights_, *call_.kernel, m_, length));
  }

  // Whether the kernel takes all of a chunk and ends sums of `depth` itself, in registers and L1,
  // as kernels of f32 rows can. Not where a panel's part stays in L1 while all rows pass.
  bool ends_sums(int64_t depth) const {
    const simd::PanelLayout& layout = call_.kernel->layout;
    if (layout.row_bytes != 4) return false;
    const bool is_few = m_ == 1 || (m_ <= simd::kMostFewRows && layout.weight_bytes == 4);
    return a_.in_strips ||
           (layout.most_k == 0 && (is_few || weights_.panel_bytes(depth) > simd::kPanelInL1));
  }

  // sums (+)= rows x panel over k in [begin, end), in sums of `sum`. `next`: weights to fetch
  // meanwhile, as many; null: none.
  void multiply(int64_t panel, int64_t begin, int64_t end, int64_t sum, const void* next,
                Sums sums) const {
    const int64_t bytes = call_.kernel->layout.row_bytes;
    const int64_t depth = ends_sums(sum) ? std::max<int64_t>(1, end - begin) : sum;
    PanelArgs args;
    args.m = m_;
    args.depth = sum;
    args.scales = weights_.scales(panel);
    args.row_scales = a_.scales;
    args.row_sums_stride = a_.sums_stride;
    args.groups = &weights_.groups();
    if (call_.kernel->tiles != nullptr) args.block_bytes = weights_.tiles(0).block_bytes;
    args.a_stride = a_.stride;
    const simd::PanelFunction function = a_.in_strips               ? call_.kernel->strips.product
                                         : weights_.products() == 2 ? call_.kernel->two
                                                                    : call_.kernel->one;
    for (int64_t k = begin; k < end; k += depth) {
      args.k = std::min(k + depth, end) - k;
      args.a = static_cast<const char*>(a_.data) + k * bytes;
      if (a_.in_strips) args.a = static_cast<const float*>(a_.data) + k * a_.stride;
      args.row_sums = a_.sums == nullptr ? nullptr : a_.sums + k / a_.sum_unit;
      args.panel = weights_.panel(panel, k);
      args.next = next != nullptr && call_.prefetches
                      ? static_cast<const char*>(next) + weights_.panel_bytes(k - begin)
                      : nullptr;
      args.two_totals = two_totals_ && sum < args.k;
      args.sums[0] = sums.data;
      args.sums[1] = weights_.products() == 2 ? args.sums[0] + m_ * each_ : nullptr;
      args.accumulate = k > sums.first_k;
      if (k + depth >= end) {
        args.store = sums.store;
        args.work = sums.work;
      }
      function(args);
    }
  }

  // The program over one panel's sums, as many rows at a time as stay in L1, and the stores.
  void finish(int64_t panel, float* sums, float* memory) const {
    const int64_t rows = finish_.most_rows();
    for (int64_t i = 0; i < m_; i += rows)
      finish_.rows({panel, i, std::min(rows, m_ - i), {sums + i * each_, sums + (m_ + i) * each_}},
                   memory);
  }

  const StageCall& call_;
  const PackedWeights& weights_;
  const StageRows a_;
  const int64_t m_;
  const int64_t each_;     // columns of a panel, of each product
  const bool two_totals_;  // PanelArgs::two_totals
  // Programs run between the products of the block after theirs.
  const bool overlaps_;
  const StageFinish finish_;
};

}  // namespace

// Few rows read each panel once: as one run of memory, which is fetched ahead but for its begin.
int64_t chunk_of_k(const StageCall& stage, int64_t m) {
  if (m <= kFewChainRows) return stage.padded_k;
  const int64_t unit = std::lcm(std::max(kChunkUnit, stage.weights->k_unit()),
                                std::max<int64_t>(1, stage.kernel->layout.sum_unit));
  // By the kernel alone: where sums end does not depend on how rows lie.
  const bool may_strip = stage.kernel->strips.product != nullptr;
  return even_piece(stage.padded_k, may_strip ? kStripChunkK : kChunkK, unit);
}

void run_stage(const StageCall& call, const StageFlow& flow, const StageRows& a, int64_t row,
               int64_t m, int64_t first, int64_t last) {
  if (a.tiles.data != nullptr)
    return run_tile_stage(call, flow, a.tiles, a.scales, row, first, last);
  StageRun(call, flow, a, row, m).run(first, last);
}

void multiply_slice(const StageCall& call, const StageRows& a, int64_t m, int64_t begin,
                    int64_t end, float* sums, int64_t panel_stride) {
  StageRun(call, {}, a, 0, m).run_slice(begin, end, sums, panel_stride);
}

void finish_panel(const StageCall& call, int64_t row, int64_t m, int64_t panel, float* sums) {
  StageRun(call, {}, {}, row, m).finish_panel(panel, sums);
}

}  // namespace epilogue::cpu
