// SPDX-License-Identifier: Apache-2.0
// out = softmax(q k^T * scale + mask) v, the scores of a block at a time.
//
//   threads take groups of blocks of rows of one item of the batch
//     pack its keys and values as panels, unless this thread has them
//     for blocks of rows of q
//       for blocks of keys that they see   s: [rows, keys of the block], stays in L2
//         s = q k^T * scale + mask
//         m' = max(m, row max of s); p = e^(s - m'); l = l e^(m - m') + row sum of p
//         o  = o e^(m - m') + p v
//       out = o / l
//
// m and l are a row's running maximum and sum. Where one block has all keys, p of f32 is divided
// instead of o, as eager does. p that is rounded to 16 bits is not divided: its largest, 1, is
// exact, and the error is up to a tenth smaller. A row whose scores are all -inf has l = 0 and
// gives NaN, as softmax does, or 0 where the spec says so.
// Blocks depend on the sizes alone, so that threads change no bit.
#include <algorithm>
#include <limits>

#include "backend/cpu/attention/attention.h"
#include "backend/cpu/float_type.h"
#include "backend/cpu/kernel_lists.h"
#include "backend/cpu/simd/panels/kernel_list.h"
#include "backend/cpu/simd/panels/operand.h"
#include "backend/cpu/simd/panels/pack_operands.h"
#include "backend/cpu/simd/pointwise.h"
#include "backend/cpu/simd/scratch.h"
#include "backend/cpu/simd/targets.h"
#include "backend/cpu/tile_io.h"
#include "base/ceil_div.h"
#include "base/machine.h"
#include "base/units.h"
#include "core/fused_call.h"

namespace epilogue::cpu {
namespace {

using simd::FloatType;
using simd::PanelKernel;
using simd::PanelLayout;

// A block's scores, and a second array for the mask, are 96 KiB each. Blocks of keys end at whole
// panels.
constexpr int64_t kQueryBlock = 96;
constexpr int64_t kKeyBlock = 256;
constexpr int64_t kRowsUnit = 8;
constexpr int64_t kKeysUnit = 64;
// Depth of one f32 sum of q k^T, and of p v: shorter sums round less. No deeper than a sum of an
// eager product on any instruction set (simd/panels/f32.cpp).
constexpr int64_t kAttentionSumDepth = 128;
// A multiple of every kernel's k step.
constexpr int64_t kDepthUnit = 32;
// A score's scale, mask, exponential and sums.
constexpr double kScoreNs = 1;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

thread_local simd::Scratch attention_scratch;

int64_t floats_of(int64_t bytes) { return ceil_div(bytes, 64) * 16; }

class PanelAttention final : public FusedKernel {
 public:
  explicit PanelAttention(const AttentionSpec& spec)
      : s_(spec),
        block_rows_(even_piece(spec.queries, kQueryBlock, kRowsUnit)),
        blocks_(ceil_div(spec.queries, block_rows_)),
        block_keys_(ceil_div(ceil_div(spec.keys, ceil_div(spec.keys, kKeyBlock)), kKeysUnit) *
                    kKeysUnit) {}

  void run(int64_t /*rows*/, std::span<const MatrixView> operands,
           std::span<const MatrixView> results) const override {
    const PanelKernel& kernel = panel_kernel();
    const int count = threads();
    const KeyMask seen(s_, s_.has_mask ? &operands[3] : nullptr, block_rows_, block_keys_, count);
    const Call call = {kernel, operands, results[0], seen, next_attention_run()};
    const int64_t groups = attention_groups(s_, blocks_, count);
    const auto body = [&](int64_t unit) {
      const int64_t group = unit % groups;
      run_group(call, unit / groups, blocks_ * group / groups, blocks_ * (group + 1) / groups);
    };
    const int64_t units = s_.batch * groups;
    run_units(count, units, body);
  }

  KernelInfo info(int64_t /*rows*/, std::string_view ops) const override {
    KernelInfo info;
    info.name = fused_kernel_name(prefix(), "attention", ops, s_.dtype);
    info.grid = {blocks_, s_.batch, 1};
    info.block = {block_rows_, std::min(s_.keys, block_keys_), s_.depth};
    info.threads = threads();
    return info;
  }

  std::string describe(int64_t /*rows*/) const override {
    return prefix() + "_attention, " + std::to_string(s_.batch) + " x " + std::to_string(blocks_) +
           " x " + std::to_string(block_rows_) + " rows on " + std::to_string(threads()) +
           (threads() == 1 ? " thread, " : " threads, ") +
           format_bytes(static_cast<double>(scratch_bytes(0))) + " of scratch";
  }

  int64_t scratch_bytes(int64_t /*rows*/) const override {
    const Areas areas(*this, panel_kernel());
    return (areas.packed + areas.floats) * int64_t{sizeof(float)} * threads();
  }

  bool tune(const KernelTuning& tuning) override {
    one_thread_ = tuning.threads == 1;
    return one_thread_ || tuning == KernelTuning{};
  }

 private:
  // One run of the kernel.
  struct Call {
    const PanelKernel& kernel;
    std::span<const MatrixView> operands;
    const MatrixView& out;
    const KeyMask& seen;
    uint64_t number;
  };

  // Where a thread keeps what it works on, in floats from the start of its memory; keys and values
  // have memory of their own.
  struct Areas {
    Areas(const PanelAttention& a, const PanelKernel& kernel) {
      const PanelLayout& layout = kernel.layout;
      const AttentionSpec& s = a.s_;
      key_panel = floats_of(layout.width * layout.padded(s.depth) * layout.weight_bytes);
      value_panel = floats_of(layout.width * layout.padded(s.keys) * layout.weight_bytes);
      score_stride = a.block_keys_;
      query_stride = layout.padded(s.depth);
      const int64_t m = a.block_rows_;
      value_panels = ceil_div(s.values, layout.width);
      values = ceil_div(s.keys, layout.width) * key_panel;
      packed = values + value_panels * value_panel;
      queries = take(floats_of(m * query_stride * layout.row_bytes));
      tile = take(m * layout.width);
      scores = take(m * score_stride);
      mask = take(s.has_mask ? m * score_stride : 0);
      rounded = take(layout.rows == FloatType::f32 ? 0 : floats_of(m * score_stride * 2));
      sums = take(value_panels * m * layout.width);
      row_max = take(m);
      row_sum = take(m);
    }
    int64_t take(int64_t count) {
      const int64_t at = floats;
      floats += ceil_div(count, 16) * 16;
      return at;
    }
    int64_t floats = 0;
    int64_t key_panel, value_panel;  // floats of one panel
    int64_t value_panels;
    int64_t values, packed;  // of keys and values: where values begin, and their end
    int64_t score_stride, query_stride;
    int64_t queries, tile, scores, mask, rounded, sums, row_max, row_sum;
  };

  // A block of rows of one item.
  struct Block {
    const PanelKernel& kernel;
    const Areas& at;
    float* memory;
    const float* packed;  // keys and values
    int64_t item;
    int64_t row;  // of the item
    int64_t rows;
    const simd::KeysSeen* seen;  // by block of keys; null: as KeyMask says
    MatrixView mask;             // of all items
    int64_t mask_row;

    float* area(int64_t offset) const { return memory + offset; }
    float* score(int64_t i) const { return memory + at.scores + i * at.score_stride; }
  };

  const PanelKernel& panel_kernel() const {
    return simd::choose_panel_kernel(
               {.weights = float_type(s_.dtype), .rows = block_rows_, .packs_once = true})
        .kernel();
  }

  std::string prefix() const {
    const PanelKernel& kernel = panel_kernel();
    return std::string("epi_") +
           (kernel.level != nullptr ? kernel.level : simd::target_name(simd::active_target()));
  }

  int threads() const {
    if (one_thread_) return 1;
    return attention_threads(s_, s_.batch * blocks_, machine_rates().f32_flops_per_ns, kScoreNs);
  }

  // Whether p is divided, and not o.
  bool divides_p(const PanelLayout& layout) const {
    return s_.keys <= block_keys_ && layout.rows == FloatType::f32;
  }

  void run_group(const Call& call, int64_t item, int64_t first, int64_t last) const {
    const Areas areas(*this, call.kernel);
    const float* const packed = pack(call, areas, item);
    float* const memory = attention_scratch.get(static_cast<size_t>(areas.floats));
    for (int64_t b = first; b < last; ++b) {
      const int64_t row = b * block_rows_;
      Block block = {call.kernel,
                     areas,
                     memory,
                     packed,
                     item,
                     row,
                     std::min(block_rows_, s_.queries - row),
                     call.seen.blocks(item, b),
                     {},
                     0};
      if (s_.has_mask) block.mask = call.operands[3];
      block.mask_row = item * s_.queries + row;
      run_block(block, call.operands[0], call.out);
    }
  }

  // The item's keys, [depth][keys], and values, [keys][values], as panels.
  const float* pack(const Call& call, const Areas& at, int64_t item) const {
    const PanelLayout& layout = call.kernel.layout;
    const FloatType type = float_type(s_.dtype);
    const MatrixView& k = call.operands[1];
    const MatrixView& v = call.operands[2];
    const int64_t row = item / s_.group * s_.keys;
    const char* const keys = row_address(k, row);
    const char* const values = row_address(v, row);
    const PackedKeys::Place place = packed_keys().find(call.number, keys, values, at.packed);
    if (place.is_packed) return place.memory;
    for (int64_t j = 0; j < s_.keys; j += layout.width)
      pack_panel(layout,
                 {simd::advance(keys, type, j * k.row_stride), type, k.row_stride, k.col_stride},
                 std::min(layout.width, s_.keys - j), s_.depth, layout.padded(s_.depth),
                 place.memory + j / layout.width * at.key_panel);
    for (int64_t j = 0; j < s_.values; j += layout.width)
      pack_panel(layout,
                 {simd::advance(values, type, j * v.col_stride), type, v.col_stride, v.row_stride},
                 std::min(layout.width, s_.values - j), s_.keys, layout.padded(s_.keys),
                 place.memory + at.values + j / layout.width * at.value_panel);
    return place.memory;
  }

  void run_block(const Block& b, const MatrixView& q, const MatrixView& out) const {
    const FloatType type = float_type(s_.dtype);
    const PanelLayout& layout = b.kernel.layout;
    pack_rows(layout,
              {simd::advance(row_address(q, b.item * s_.queries), type, b.row * q.row_stride), type,
               q.row_stride, q.col_stride},
              b.rows, s_.depth, layout.padded(s_.depth), b.area(b.at.queries), b.at.query_stride);
    std::fill_n(b.area(b.at.row_max), b.rows, kMinusInfinity);
    std::fill_n(b.area(b.at.row_sum), b.rows, 0.0F);
    bool has_sums = false;
    const int64_t limit = KeyMask::limit(s_, b.row, b.rows);
    for (int64_t key = 0; key < limit; key += block_keys_) {
      if (b.seen != nullptr && b.seen[key / block_keys_] == simd::KeysSeen::none) continue;
      const int64_t n = std::min(block_keys_, limit - key);
      make_scores(b, key, n);
      const int64_t padded = layout.padded(n);
      for (int64_t i = 0; i < b.rows; ++i) {
        make_row_probabilities(b, i, n, has_sums);
        // Padding: values are zero there, and 0 times garbage may be NaN.
        std::fill(b.score(i) + n, b.score(i) + padded, 0.0F);
      }
      add_values(b, key, padded, has_sums);
      has_sums = true;
    }
    if (!has_sums)  // nothing is seen: 0 over 0
      std::fill_n(b.area(b.at.sums), b.at.value_panels * b.rows * layout.width,
                  divides_p(layout) && !s_.empty_is_zero ? kNan : 0.0F);
    store(b, out);
  }

  // s = q k^T * scale + mask, of n keys from `key` on.
  void make_scores(const Block& b, int64_t key, int64_t n) const {
    const PanelLayout& layout = b.kernel.layout;
    const simd::PointwiseKernels& pointwise = simd::pointwise_kernels();
    const PointwiseFn scale = s_.divides ? PointwiseFn::div : PointwiseFn::mul;
    const int64_t depth = layout.padded(s_.depth);
    const int64_t step =
        layout.rows == FloatType::f32 ? even_piece(depth, kAttentionSumDepth, kDepthUnit) : depth;
    float* const tile = b.area(b.at.tile);
    for (int64_t j = 0; j < n; j += layout.width) {
      const auto* const panel =
          reinterpret_cast<const char*>(b.packed + (key + j) / layout.width * b.at.key_panel);
      for (int64_t k = 0; k < depth; k += step)
        multiply(b, reinterpret_cast<const char*>(b.area(b.at.queries)) + k * layout.row_bytes,
                 b.at.query_stride, panel + k * layout.width * layout.weight_bytes,
                 std::min(step, depth - k), tile, k > 0);
      const auto columns = static_cast<size_t>(std::min(layout.width, n - j));
      for (int64_t i = 0; i < b.rows; ++i)
        pointwise.run(scale, {tile + i * layout.width, s_.scale}, b.score(i) + j, columns);
    }
    if (s_.has_mask) add_mask(b, key, n);
    if (s_.causal)
      for (int64_t i = 0; i < b.rows; ++i)
        for (int64_t j = std::max<int64_t>(b.row + i + 1 - key, 0); j < n; ++j)
          b.score(i)[j] = kMinusInfinity;
  }

  void add_mask(const Block& b, int64_t key, int64_t n) const {
    if (b.seen != nullptr && b.seen[key / block_keys_] == simd::KeysSeen::all) return;
    float* const mask = b.area(b.at.mask);
    load_tile(b.mask, {b.mask_row, b.rows, key, n}, mask, b.at.score_stride);
    for (int64_t i = 0; i < b.rows; ++i)
      add_mask_row(b.mask.dtype, mask + i * b.at.score_stride, n, b.score(i));
  }

  // A row's p = e^(s - m'), its running maximum and sum; o e^(m - m') where there is an o.
  void make_row_probabilities(const Block& b, int64_t i, int64_t n, bool has_sums) const {
    float* const s = b.score(i);
    float& sum = b.area(b.at.row_sum)[i];
    const float factor = make_probabilities(s, n, b.area(b.at.row_max)[i], sum);
    if (has_sums && factor != 1) change_sums(b, i, PointwiseFn::mul, factor);
    if (divides_p(b.kernel.layout))
      simd::pointwise_kernels().scale(s, reciprocal(sum), s, static_cast<size_t>(n));
  }

  // Of a row's sum of p.
  float reciprocal(float sum) const { return sum == 0 && s_.empty_is_zero ? 0.0F : 1.0F / sum; }

  // A row of o times or over a number.
  void change_sums(const Block& b, int64_t i, PointwiseFn fn, float number) const {
    const int64_t width = b.kernel.layout.width;
    for (int64_t p = 0; p < b.at.value_panels; ++p) {
      float* const o = b.area(b.at.sums) + (p * b.rows + i) * width;
      simd::pointwise_kernels().run(fn, {o, number}, o, static_cast<size_t>(width));
    }
  }

  // o += p v, of the keys from `key` on; `padded` as many as p's rows have.
  void add_values(const Block& b, int64_t key, int64_t padded, bool has_sums) const {
    const PanelLayout& layout = b.kernel.layout;
    const void* p = b.score(0);
    if (layout.rows != FloatType::f32) {
      simd::from_f32_rows(layout.rows, b.score(0), b.at.score_stride, b.area(b.at.rounded),
                          b.at.score_stride, static_cast<size_t>(b.rows),
                          static_cast<size_t>(padded));
      p = b.area(b.at.rounded);
    }
    const int64_t step =
        layout.rows == FloatType::f32 ? even_piece(padded, kAttentionSumDepth, kDepthUnit) : padded;
    for (int64_t panel = 0; panel < b.at.value_panels; ++panel) {
      const auto* const values =
          reinterpret_cast<const char*>(b.packed + b.at.values + panel * b.at.value_panel);
      for (int64_t k = 0; k < padded; k += step)
        multiply(b, static_cast<const char*>(p) + k * layout.row_bytes, b.at.score_stride,
                 values + (key + k) * layout.width * layout.weight_bytes,
                 std::min(step, padded - k), b.area(b.at.sums) + panel * b.rows * layout.width,
                 has_sums || k > 0);
    }
  }

  static void multiply(const Block& b, const void* rows, int64_t stride, const void* panel,
                       int64_t k, float* sums, bool accumulate) {
    simd::PanelArgs args;
    args.m = b.rows;
    args.k = k;
    args.a = rows;
    args.a_stride = stride;
    args.panel = panel;
    args.sums[0] = sums;
    args.accumulate = accumulate;
    b.kernel.one(args);
  }

  // out = o / l
  void store(const Block& b, const MatrixView& out) const {
    const int64_t width = b.kernel.layout.width;
    // A quotient rounds once, a reciprocal and a product twice.
    for (int64_t i = 0; i < b.rows && !divides_p(b.kernel.layout); ++i) {
      const float sum = b.area(b.at.row_sum)[i];
      change_sums(b, i, PointwiseFn::div, sum == 0 && s_.empty_is_zero ? 1.0F : sum);
    }
    const MatrixView to = matrix_from(out, b.item * s_.queries);
    for (int64_t p = 0; p < b.at.value_panels; ++p)
      store_tile(to, {b.row, b.rows, p * width, std::min(width, s_.values - p * width)},
                 b.area(b.at.sums) + p * b.rows * width, width);
  }

  AttentionSpec s_;
  int64_t block_rows_;
  int64_t blocks_;  // of one item
  int64_t block_keys_;
  bool one_thread_ = false;
};

}  // namespace

std::unique_ptr<FusedKernel> make_panel_attention(const AttentionSpec& spec) {
  return std::make_unique<PanelAttention>(spec);
}

}  // namespace epilogue::cpu
