// SPDX-License-Identifier: Apache-2.0
// out = softmax(q k^T * scale + mask) v of a few queries, as when a model decodes: keys and values
// are read once, where they lie. To pack them would take longer than the products.
//
//   threads take pieces of the keys of one item, or of a group of items that share them
//     for blocks of keys                 s: [queries of the group, keys of the block]
//       s = q k^T * scale + mask
//       m' = max(m, row max of s); p = e^(s - m'); l = l e^(m - m') + row sum of p
//       o  = o e^(m - m') + p v
//   then pieces of a row become one in the same way, and out = o / l
//
// Pieces and blocks depend on the sizes alone, so that threads change no bit.
#include <algorithm>

#include "backend/cpu/attention/attention.h"
#include "backend/cpu/float_type.h"
#include "backend/cpu/kernel_lists.h"
#include "backend/cpu/simd/few_queries.h"
#include "backend/cpu/simd/pointwise.h"
#include "backend/cpu/simd/reduce.h"
#include "backend/cpu/simd/targets.h"
#include "backend/cpu/tile_io.h"
#include "base/ceil_div.h"
#include "base/machine.h"
#include "base/units.h"
#include "core/fused_call.h"

namespace epilogue::cpu {
namespace {

using simd::FloatRows;
using simd::FloatType;
using simd::KeyRows;

// Queries of one item up to which packed keys do not pay (measured: f32, AVX-512, one to seven
// heads that share keys).
constexpr int64_t kMostQueries = 8;
// Bytes of a block's keys, and as many of values: L2 holds both while four queries after four read
// them. Blocks that L1 holds were 5 to 20 % slower, with 1 to 16 queries for each key, by AVX-512
// and by AVX2 (Zen 4): what begins anew with each block takes longer than reads from L2.
constexpr int64_t kBlockBytes = 64 * 1024;
constexpr int64_t kLeastBlockKeys = 16;
constexpr int64_t kMostBlockKeys = 256;
// What a piece costs beside its products is that of some keys.
constexpr int64_t kPieceKeys = 512;
// Of what a thread reads of keys and values, and of a score's exponential, mask and sums.
constexpr double kDirectFlopsPerNs = 8;
constexpr double kDirectScoreNs = 1;

thread_local simd::Scratch pieces_scratch;  // of all pieces of a call
thread_local simd::Scratch direct_scratch;  // of a thread's work

int64_t padded(int64_t columns) {
  return ceil_div(columns, simd::kFewQueriesColumns) * simd::kFewQueriesColumns;
}

class DirectAttention final : public FusedKernel {
 public:
  explicit DirectAttention(const AttentionSpec& spec)
      : s_(spec),
        rows_(spec.group * spec.queries),
        items_(spec.batch / spec.group),
        pieces_(ceil_div(spec.keys, kPieceKeys)),
        block_keys_(block_keys(spec)) {}

  static bool serves(const AttentionSpec& s) { return s.queries <= kMostQueries; }

  void run(int64_t /*rows*/, std::span<const MatrixView> operands,
           std::span<const MatrixView> results) const override {
    float* const pieces = pieces_scratch.get(static_cast<size_t>(pieces_floats()));
    const int64_t units = items_ * pieces_;
    const auto body = [&](int64_t unit) {
      run_piece({operands, unit / pieces_, unit % pieces_, pieces + unit * piece_floats()});
    };
    const auto finish = [&](int64_t item) {
      store(item, pieces + item * pieces_ * piece_floats(), results[0]);
    };
    const int count = threads();
    run_units(count, units, body);
    run_units(pieces_floats() >= kParallelFloats ? count : 1, items_, finish);
  }

  KernelInfo info(int64_t /*rows*/, std::string_view ops) const override {
    KernelInfo info;
    info.name = fused_kernel_name(prefix(), "attention", ops, s_.dtype);
    info.grid = {pieces_, items_, 1};
    info.block = {rows_, std::min(s_.keys, block_keys_), s_.depth};
    info.threads = threads();
    return info;
  }

  std::string describe(int64_t /*rows*/) const override {
    return prefix() + "_attention, keys in place, " + std::to_string(items_) + " x " +
           std::to_string(pieces_) + " pieces of " + std::to_string(rows_) + " rows on " +
           std::to_string(threads()) + (threads() == 1 ? " thread, " : " threads, ") +
           format_bytes(static_cast<double>(scratch_bytes(0))) + " of scratch";
  }

  int64_t scratch_bytes(int64_t /*rows*/) const override {
    return (pieces_floats() + Areas(*this).floats * threads()) * int64_t{sizeof(float)};
  }

  bool tune(const KernelTuning& tuning) override {
    one_thread_ = tuning.threads == 1;
    return one_thread_ || tuning == KernelTuning{};
  }

 private:
  static constexpr int64_t kParallelFloats = 1 << 16;

  // Where a thread keeps what it works on, in floats from the start of its memory.
  struct Areas {
    explicit Areas(const DirectAttention& a) {
      const AttentionSpec& s = a.s_;
      columns = padded(std::max(s.depth, s.values));
      queries = take(a.rows_ * padded(s.depth));
      scores = take(a.rows_ * a.block_keys_);
      mask = take(s.has_mask ? a.rows_ * a.block_keys_ : 0);
      copy = take(a.block_keys_ * columns);
    }
    int64_t take(int64_t count) {
      const int64_t at = floats;
      floats += padded(count);
      return at;
    }
    int64_t floats = 0;
    int64_t columns;  // of a copied row
    int64_t queries, scores, mask, copy;
  };

  // A piece of the keys of an item, and where its maxima, sums and values go.
  struct Piece {
    std::span<const MatrixView> operands;
    int64_t item;
    int64_t number;
    float* to;
  };

  static int64_t block_keys(const AttentionSpec& s) {
    const int64_t row_bytes =
        std::max(s.depth, s.values) * static_cast<int64_t>(dtype_bytes(s.dtype));
    const int64_t keys = kBlockBytes / row_bytes / kLeastBlockKeys * kLeastBlockKeys;
    return std::clamp(keys, kLeastBlockKeys, kMostBlockKeys);
  }

  static std::string prefix() {
    return std::string("epi_") + simd::target_name(simd::active_target());
  }

  int threads() const {
    if (one_thread_) return 1;
    return attention_threads(s_, items_ * pieces_, kDirectFlopsPerNs, kDirectScoreNs);
  }

  // Of a piece: a maximum and a sum for each row, then the rows' values.
  int64_t piece_floats() const { return padded(2 * rows_) + rows_ * padded(s_.values); }
  int64_t pieces_floats() const { return items_ * pieces_ * piece_floats(); }
  float* values_of(float* piece) const { return piece + padded(2 * rows_); }

  void run_piece(const Piece& piece) const {
    const Areas at(*this);
    float* const memory = direct_scratch.get(static_cast<size_t>(at.floats));
    float* const max = piece.to;
    float* const sum = max + rows_;
    std::fill_n(max, rows_, kMinusInfinity);
    std::fill_n(sum, rows_, 0.0F);
    std::fill_n(values_of(piece.to), rows_ * padded(s_.values), 0.0F);
    const FloatRows queries = {memory + at.queries, padded(s_.depth)};
    load_queries(piece, queries);
    const int64_t limit = KeyMask::limit(s_, 0, s_.queries);
    const int64_t end = std::min(limit, s_.keys * (piece.number + 1) / pieces_);
    for (int64_t key = s_.keys * piece.number / pieces_; key < end; key += block_keys_)
      run_block(piece, at, memory, key, std::min(block_keys_, end - key));
  }

  void load_queries(const Piece& piece, const FloatRows& to) const {
    std::fill_n(to.data, rows_ * to.stride, 0.0F);
    for (int64_t i = 0; i < s_.group; ++i) {
      const int64_t row = (piece.item * s_.group + i) * s_.queries;
      load_tile(matrix_from(piece.operands[0], row), {0, s_.queries, 0, s_.depth},
                to.data + i * s_.queries * to.stride, to.stride);
    }
  }

  void run_block(const Piece& piece, const Areas& at, float* memory, int64_t key, int64_t n) const {
    const simd::FewQueriesKernels& kernels = simd::few_queries_kernels();
    const FloatRows scores = {memory + at.scores, block_keys_};
    const FloatRows mask = {memory + at.mask, block_keys_};
    if (s_.has_mask && !load_mask(piece, key, n, mask)) return;
    const Operand k = operand(piece, 1, key, n, s_.depth, memory, at);
    kernels.scores[k.type]({memory + at.queries, padded(s_.depth)}, rows_, k.rows, scores);
    for (int64_t i = 0; i < rows_; ++i)
      simd::pointwise_kernels().run(s_.divides ? PointwiseFn::div : PointwiseFn::mul,
                                    {scores.data + i * scores.stride, s_.scale},
                                    scores.data + i * scores.stride, static_cast<size_t>(n));
    for (int64_t i = 0; i < rows_ && s_.has_mask; ++i)
      add_mask_row(piece.operands[3].dtype, mask.data + i * mask.stride, n,
                   scores.data + i * scores.stride);
    if (s_.causal)
      for (int64_t i = 0; i < rows_; ++i)
        for (int64_t j = std::max<int64_t>(i % s_.queries + 1 - key, 0); j < n; ++j)
          scores.data[i * scores.stride + j] = kMinusInfinity;
    for (int64_t i = 0; i < rows_; ++i) {
      const float factor =
          make_probabilities(scores.data + i * scores.stride, n, piece.to[i], piece.to[rows_ + i]);
      if (factor != 1) scale(values_of(piece.to) + i * padded(s_.values), factor);
    }
    const Operand v = operand(piece, 2, key, n, s_.values, memory, at);
    kernels.add[v.type](scores, rows_, v.rows, {values_of(piece.to), padded(s_.values)});
  }

  // Rows of keys or values, and their FloatType.
  struct Operand {
    KeyRows rows;
    size_t type;
  };
  // In their place; a copy in f32 where their columns lie apart.
  Operand operand(const Piece& piece, size_t number, int64_t key, int64_t n, int64_t columns,
                  float* memory, const Areas& at) const {
    const MatrixView item = matrix_from(piece.operands[number], piece.item * s_.keys);
    if (item.col_stride == 1 || columns == 1) {
      const FloatType type = float_type(s_.dtype);
      return {{simd::advance(item.data, type, key * item.row_stride), item.row_stride, n, columns},
              static_cast<size_t>(type)};
    }
    float* const copy = memory + at.copy;
    load_tile(item, {key, n, 0, columns}, copy, at.columns);
    return {{copy, at.columns, n, columns}, static_cast<size_t>(FloatType::f32)};
  }

  // Whether any row sees any of these keys.
  bool load_mask(const Piece& piece, int64_t key, int64_t n, const FloatRows& to) const {
    const MatrixView& view = piece.operands[3];
    const char* last = nullptr;
    for (int64_t i = 0; i < s_.group; ++i) {
      const int64_t row = (piece.item * s_.group + i) * s_.queries;
      float* const rows = to.data + i * s_.queries * to.stride;
      const char* const from = row_address(view, row);
      if (from == last) {  // heads that have one mask
        std::copy_n(rows - s_.queries * to.stride, s_.queries * to.stride, rows);
      } else {
        load_tile(matrix_from(view, row), {0, s_.queries, key, n}, rows, to.stride);
      }
      last = from;
    }
    if (view.dtype != DType::boolean) return true;
    for (int64_t i = 0; i < rows_; ++i)
      if (simd::row_kernels().max(to.data + i * to.stride, static_cast<size_t>(n)) != 0)
        return true;
    return false;
  }

  // A row of values.
  void scale(float* o, float factor) const {
    simd::pointwise_kernels().scale(o, factor, o, static_cast<size_t>(padded(s_.values)));
  }

  // All pieces of an item become the first one, and that the result's rows.
  void store(int64_t item, float* first, const MatrixView& out) const {
    const simd::PointwiseKernels& pointwise = simd::pointwise_kernels();
    const auto columns = static_cast<size_t>(padded(s_.values));
    for (int64_t i = 0; i < rows_; ++i) {
      float* const o = values_of(first) + i * padded(s_.values);
      float max = first[i];
      float sum = first[rows_ + i];
      for (int64_t p = 1; p < pieces_; ++p) {
        float* const piece = first + p * piece_floats();
        float* const more = values_of(piece) + i * padded(s_.values);
        const Follow before(max, piece[i]);
        const Follow after(piece[i], before.next);
        if (before.factor != 1) scale(o, before.factor);
        if (after.factor != 1) scale(more, after.factor);
        pointwise.run(PointwiseFn::add, {o, more}, o, columns);
        sum = sum * before.factor + piece[rows_ + i] * after.factor;
        max = before.next;
      }
      // A row that sees nothing: 0 over 0.
      const float divisor = sum == 0 && s_.empty_is_zero ? 1.0F : sum;
      pointwise.run(PointwiseFn::div, {o, divisor}, o, columns);
    }
    for (int64_t i = 0; i < s_.group; ++i) {
      const int64_t row = (item * s_.group + i) * s_.queries;
      store_tile(matrix_from(out, row), {0, s_.queries, 0, s_.values},
                 values_of(first) + i * s_.queries * padded(s_.values), padded(s_.values));
    }
  }

  AttentionSpec s_;
  int64_t rows_;    // of queries that share keys and values
  int64_t items_;   // that share none
  int64_t pieces_;  // of an item's keys
  int64_t block_keys_;
  bool one_thread_ = false;
};

}  // namespace

std::unique_ptr<FusedKernel> make_direct_attention(const AttentionSpec& spec) {
  if (!DirectAttention::serves(spec)) return nullptr;
  return std::make_unique<DirectAttention>(spec);
}

}  // namespace epilogue::cpu
