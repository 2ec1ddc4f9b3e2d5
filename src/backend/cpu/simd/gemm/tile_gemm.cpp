// SPDX-License-Identifier: Apache-2.0
// Chunks of columns, threads over pieces of C:
//
//   for columns n_chunk               B [k, n_chunk] in tiles fits L3
//     all threads: B's columns        into tiles, shared
//     each thread, its piece of C:
//       for blocks of rows            A's rows into tiles: they stay in the thread's L2
//         TileLoops                   sums become C beside the products of the next block
//
// Up to kFedRows rows, where tiling B would take as long as a good part of the products:
//
//   all threads: A's rows             into tiles, shared
//   each thread, its columns of C:
//     TileLoops                       B's columns go into tiles beside the products before theirs
#include "backend/cpu/simd/gemm/tile_gemm.h"

#include <algorithm>

#include "backend/cpu/simd/gemm/call_operands.h"
#include "backend/cpu/simd/panels/block_lines.h"
#include "backend/cpu/simd/panels/pack_tiles.h"
#include "backend/cpu/simd/panels/tile_feed.h"
#include "backend/cpu/simd/scratch.h"
#include "base/ceil_div.h"
#include "base/thread_pool.h"

namespace epilogue::simd {
namespace {

// Of the calling thread, for all threads of a call; and each thread's own.
thread_local Scratch tile_columns_scratch;
thread_local Scratch tile_bias_scratch;
thread_local Scratch tile_rows_scratch;
thread_local Scratch tile_feed_scratch;

// Elements of B that are worth another thread's packing.
constexpr int64_t kColumnsGrain = 8 << 10;

// Whether C is the product and a matrix that lies as C does.
bool adds_matrix(const GemmCall& c) {
  return c.bias.data != nullptr && c.beta == 1.0F && c.bias.type == FloatType::bf16 &&
         c.bias.row_stride == c.c_row_stride && c.bias.col_stride == 1;
}

template <class T>
T* moved(T* from, int64_t elements) {
  return from == nullptr ? nullptr : from + elements;
}

// A block's sums to C.
class BlockToC final : public TileWork {
 public:
  // `bias`: f32, one per column of C, where lines take it; `row`: of the first panel; `column`: of
  // the block of columns 0.
  BlockToC(const GemmCall& call, bool makes_lines, const float* bias, int64_t row, int64_t row_end,
           int64_t column)
      : c_(call), bias_(bias), row_(row), row_end_(row_end), column_(column) {
    if (adds_matrix(call)) addend_ = static_cast<const uint16_t*>(call.bias.data);
    if (makes_lines) line_function = plain_lines(std::nullopt);
    if (c_.hidden != nullptr) line_function = hidden_lines(c_.hidden->f, c_.hidden->sums);
    is_large_ = exceeds_caches(c_.m * c_.n * static_cast<int64_t>(size_of(c_.c_type)));
  }

  bool is_large() const { return is_large_; }

  float* sums() override { return sums_; }
  int64_t ready(int64_t block, int64_t panel) override {
    at_row_ = row_ + panel * kTileBlock;
    rows_ = std::min(kTileBlock, row_end_ - at_row_);
    at_column_ = column_ + block * kTileBlock;
    done_ = line_function != nullptr ? rows_ : 0;
    if (line_function == nullptr) return 0;
    const int64_t at = at_row_ * c_.c_row_stride + at_column_;
    lines.sums = sums_;
    lines.bias = bias_ == nullptr ? nullptr : bias_ + at_column_;
    lines.out = moved(static_cast<uint16_t*>(c_.c), at);
    lines.stride = c_.c_row_stride;
    lines.columns = std::min(kTileBlock, c_.n - at_column_);
    lines.addend = moved(addend_, at);
    if (c_.hidden != nullptr) {
      const HiddenElements& e = c_.hidden->elements;
      lines.hidden = {moved(e.gate, at),   moved(e.up, at),     moved(e.d_hidden, at),
                      moved(e.hidden, at), moved(e.d_gate, at), moved(e.d_up, at)};
    }
    choose_stores(lines, is_large_, rows_);
    return rows_;
  }
  int64_t pieces() const override { return ceil_div(rows_ - done_, kPieceRows); }
  void do_piece() override {
    const int64_t rows = std::min(kPieceRows, rows_ - done_);
    write_back_kernels().rows(sums_ + done_ * kTileBlock, kTileBlock, rows,
                              std::min(kTileBlock, c_.n - at_column_),
                              bias_write_back(c_, at_row_ + done_, at_column_));
    done_ += rows;
  }

 private:
  static constexpr int64_t kPieceRows = 4;

  const GemmCall& c_;
  const float* bias_;
  int64_t row_;
  int64_t row_end_;
  int64_t column_;
  const uint16_t* addend_ = nullptr;
  bool is_large_;
  int64_t at_row_ = 0;
  int64_t at_column_ = 0;
  int64_t rows_ = 0;
  int64_t done_ = 0;
  alignas(64) float sums_[kBlockSums];
};

class TileGemm {
 public:
  TileGemm(const GemmCall& call, const GemmPlan& plan)
      : c_(call), plan_(plan), steps_(ceil_div(call.k, kTileK)) {
    has_bias_ = c_.bias.data != nullptr && c_.beta != 0.0F;
    widens_bias_ = has_bias_ && c_.bias.row_stride == 0 && c_.beta == 1.0F;
    makes_lines_ = c_.c_type == FloatType::bf16 && c_.alpha == 1.0F &&
                   (!has_bias_ || widens_bias_ || adds_matrix(c_));
  }

  void run() {
    if (makes_lines_ && widens_bias_) widen_bias();
    if (plan_.feeds) return run_fed();
    const int64_t blocks = ceil_div(c_.n, kTileBlock);
    const int64_t chunk = plan_.n_chunk / kTileBlock;
    float* const memory = tile_columns_scratch.get(
        static_cast<size_t>(std::min(chunk, blocks) * steps_ * kTilePairBytes / 4));
    columns_ = {reinterpret_cast<const char*>(memory), steps_ * kTilePairBytes};
    for (int64_t first = 0; first < blocks; first += chunk) {
      const int64_t count = std::min(chunk, blocks - first);
      const int64_t grain = std::max<int64_t>(1, kColumnsGrain / (kTileBlock * c_.k));
      parallel_for(count, std::max(grain, ceil_div(count, plan_.threads())),
                   [&](int64_t begin, int64_t end) { pack(first, begin, end); });
      parallel_for(plan_.threads(), 1, [&](int64_t begin, int64_t end) {
        for (int64_t piece = begin; piece < end; ++piece) {
          const int64_t j = piece % plan_.pieces_n;
          const int64_t from = count * j / plan_.pieces_n;
          const int64_t to = count * (j + 1) / plan_.pieces_n;
          run_piece(piece / plan_.pieces_n, first, from, to);
        }
      });
    }
  }

 private:
  void run_fed() {
    TiledRows rows = {nullptr, c_.m, steps_, fed_tile_depth(steps_)};
    rows.data = reinterpret_cast<uint16_t*>(tile_columns_scratch.get(
        static_cast<size_t>(TiledRows::bytes_of(c_.m, steps_) / int64_t{sizeof(float)})));
    const int64_t panels = rows.panels();
    const int64_t grain = std::max<int64_t>(1, kColumnsGrain / (kTileBlock * c_.k));
    parallel_for(panels, std::max(grain, ceil_div(panels, plan_.threads())),
                 [&](int64_t begin, int64_t end) {
                   const int64_t row = begin * kTileBlock;
                   pack_tile_rows({at(c_.a, row, 0), c_.a.type, c_.a.row_stride, c_.a.col_stride},
                                  std::min(end * kTileBlock, c_.m) - row, c_.k, rows, row);
                 });
    const int64_t blocks = ceil_div(c_.n, kTileBlock);
    parallel_for(plan_.pieces_n, 1, [&](int64_t begin, int64_t end) {
      for (int64_t j = begin; j < end; ++j)
        run_fed_piece(rows, blocks * j / plan_.pieces_n, blocks * (j + 1) / plan_.pieces_n);
    });
  }

  // All rows times blocks [begin, end) of columns.
  void run_fed_piece(const TiledRows& rows, int64_t begin, int64_t end) const {
    if (begin >= end) return;
    const int64_t column = begin * kTileBlock;
    const int64_t feed_floats = FedColumns::bytes_of(rows.depth) / int64_t{sizeof(float)};
    TileArgs args;
    args.rows = rows;
    args.last = end - begin;
    const int64_t waiting = choose_blocks(args);
    float* const memory = tile_feed_scratch.get(static_cast<size_t>(feed_floats + waiting));
    const FedColumns fed = {{at(c_.b, 0, column), c_.b.type, c_.b.col_stride, c_.b.row_stride},
                            c_.n - column,
                            c_.k,
                            reinterpret_cast<char*>(memory)};
    args.fed = &fed;
    args.waiting = memory + feed_floats;
    run_tiles(args, 0, c_.m, column);
  }

  void widen_bias() {
    float* const bias = tile_bias_scratch.get(static_cast<size_t>(c_.n + kTileBlock));
    const PackSource source = {c_.bias.data, c_.bias.type, 0, c_.bias.col_stride};
    pack_kernels().rows(source, 1, c_.n, bias, c_.n);
    std::fill(bias + c_.n, bias + c_.n + kTileBlock, 0.0F);
    bias_ = bias;
  }

  // Blocks [begin, end) of the chunk that begins at block `first`.
  void pack(int64_t first, int64_t begin, int64_t end) const {
    for (int64_t block = begin; block < end; ++block) {
      const int64_t column = (first + block) * kTileBlock;
      pack_tile_block({at(c_.b, 0, column), c_.b.type, c_.b.col_stride, c_.b.row_stride},
                      std::min(kTileBlock, c_.n - column), c_.k, steps_,
                      const_cast<char*>(columns_.at(block, 0)));
    }
  }

  // Piece i of the rows times blocks [begin, end) of the chunk.
  void run_piece(int64_t i, int64_t first, int64_t begin, int64_t end) const {
    const int64_t tiles = ceil_div(c_.m, kTileBlock);
    const int64_t row = tiles * i / plan_.pieces_m * kTileBlock;
    const int64_t row_end = std::min(c_.m, tiles * (i + 1) / plan_.pieces_m * kTileBlock);
    if (row >= row_end || begin >= end) return;
    const int64_t each = even_chunk(row_end - row, plan_.m_chunk, kTileBlock);
    for (int64_t at_row = row; at_row < row_end; at_row += each) {
      const int64_t m = std::min(each, row_end - at_row);
      run_rows(at_row, m, first, begin, end);
    }
  }

  void run_rows(int64_t row, int64_t m, int64_t first, int64_t begin, int64_t end) const {
    TileArgs args;
    args.rows = {nullptr, m, steps_, tile_depth(steps_)};
    args.first = begin;
    args.last = end;
    const int64_t waiting = choose_blocks(args);
    const int64_t row_floats = TiledRows::bytes_of(m, steps_) / int64_t{sizeof(float)};
    float* const memory = tile_rows_scratch.get(static_cast<size_t>(row_floats + waiting));
    args.rows.data = reinterpret_cast<uint16_t*>(memory);
    pack_tile_rows({at(c_.a, row, 0), c_.a.type, c_.a.row_stride, c_.a.col_stride}, m, c_.k,
                   args.rows, 0);
    args.weights = columns_;
    args.next = columns_.at(begin, 0);  // the next block of rows begins anew
    args.waiting = memory + row_floats;
    run_tiles(args, row, row + m, first * kTileBlock);
  }

  // Rows [row, row_end) of C; block 0 of the columns begins at `column`.
  void run_tiles(TileArgs& args, int64_t row, int64_t row_end, int64_t column) const {
    BlockToC work(c_, makes_lines_, bias_, row, row_end, column);
    args.work = &work;
    plan_.kernel->tiles(args);
    if (work.is_large()) end_streams();
  }

  const GemmCall& c_;
  const GemmPlan& plan_;
  const int64_t steps_;
  bool has_bias_;
  bool widens_bias_;
  bool makes_lines_;
  const float* bias_ = nullptr;
  TiledColumns columns_;
};

}  // namespace

void run_tile_gemm(const GemmCall& call, const GemmPlan& plan) { TileGemm(call, plan).run(); }

}  // namespace epilogue::simd
