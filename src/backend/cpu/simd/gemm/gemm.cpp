// SPDX-License-Identifier: Apache-2.0
// The GEMM's loops: chunks of rows and of k, threads over pieces of C, panels of B packed when due.
//
//   for rows m_chunk                  A [m_chunk, kc] fits L3
//     for k kc                        sums of earlier chunks wait in C, or in f32 partials
//       all threads: A as f32 rows    nothing to do for f32 with contiguous k
//       each thread, its piece of C:
//         for panels nr of B          pack [kc, nr]: it stays in the thread's L2
//           for rows mr of A          micro-kernel mr x nr
//
// A panel of B is used by all rows of the chunk while it is in L2, so it is packed there, by the
// thread that needs it: no shared copy of B, which for few rows would cost more than the product.
#include "backend/cpu/simd/gemm/gemm.h"

#include <algorithm>

#include "backend/cpu/simd/gemm/call_operands.h"
#include "backend/cpu/simd/gemm/gemv.h"
#include "backend/cpu/simd/gemm/kernels.h"
#include "backend/cpu/simd/gemm/pairs.h"
#include "backend/cpu/simd/gemm/plan.h"
#include "backend/cpu/simd/panels/pack.h"
#include "backend/cpu/simd/scratch.h"
#include "base/thread_pool.h"

namespace epilogue::simd {
namespace {

// Shared by the threads of one call, owned by the calling thread; and each thread's own.
thread_local Scratch packed_a_scratch;
thread_local Scratch partial_scratch;
thread_local Scratch thread_scratch;

// One chunk: rows of C and depth of k.
struct Chunk {
  int64_t row;
  int64_t rows;
  int64_t k;
  int64_t depth;
};

// The bias joins the first chunk of k, so that C may be the bias itself; later chunks add to what
// is there. Only the last one writes a 16-bit C: sums are rounded once.
WriteBack chunk_write_back(const GemmCall& c, const Chunk& chunk, float* partial) {
  WriteBack to = bias_write_back(c, chunk.row, 0);
  const bool first = chunk.k == 0;
  const bool last = chunk.k + chunk.depth == c.k;
  if (first && last) return to;
  const bool in_place = c.c_type == FloatType::f32;
  float* const sums = in_place ? static_cast<float*>(to.out) : partial;
  const int64_t stride = in_place ? c.c_row_stride : c.n;
  if (!first) {
    to.scale = 1.0F;
    to.addend = sums;
    to.addend_type = FloatType::f32;
    to.addend_row_stride = stride;
    to.addend_col_stride = 1;
  }
  if (!last) {
    to.out = sums;
    to.out_type = FloatType::f32;
    to.out_row_stride = stride;
  }
  return to;
}

class BlockedGemm {
 public:
  BlockedGemm(const GemmCall& call, const GemmStrategy& strategy, const GemmKernels& kernels)
      : c_(call), s_(strategy), kernels_(kernels) {}

  void run() {
    const bool partials = c_.c_type != FloatType::f32 && s_.kc < c_.k;
    Chunk chunk{};
    for (chunk.row = 0; chunk.row < c_.m; chunk.row += s_.m_chunk) {
      chunk.rows = std::min(s_.m_chunk, c_.m - chunk.row);
      float* const partial =
          partials ? partial_scratch.get(static_cast<size_t>(chunk.rows * c_.n)) : nullptr;
      for (chunk.k = 0; chunk.k < c_.k; chunk.k += s_.kc) {
        chunk.depth = std::min(s_.kc, c_.k - chunk.k);
        run_chunk(chunk, partial);
      }
    }
  }

 private:
  void run_chunk(const Chunk& chunk, float* partial) {
    prepare_a(chunk);
    const WriteBack to = chunk_write_back(c_, chunk, partial);
    const int64_t row_tiles = (chunk.rows + kernels_.mr - 1) / kernels_.mr;
    const int64_t panels = (c_.n + kernels_.nr - 1) / kernels_.nr;
    const int64_t pieces = int64_t{s_.pieces_m} * s_.pieces_n;
    parallel_for(pieces, 1, [&](int64_t begin, int64_t end) {
      for (int64_t piece = begin; piece < end; ++piece) {
        const int64_t i = piece / s_.pieces_n;
        const int64_t j = piece % s_.pieces_n;
        run_piece(chunk, to, row_tiles * i / s_.pieces_m * kernels_.mr,
                  std::min(row_tiles * (i + 1) / s_.pieces_m * kernels_.mr, chunk.rows),
                  panels * j / s_.pieces_n * kernels_.nr,
                  std::min(panels * (j + 1) / s_.pieces_n * kernels_.nr, c_.n));
      }
    });
  }

  void prepare_a(const Chunk& chunk) {
    if (!s_.pack_a) {
      a_ = static_cast<const float*>(at(c_.a, chunk.row, chunk.k));
      a_row_stride_ = c_.a.row_stride;
      return;
    }
    // An odd number of cache lines: rows a power of two apart would share few sets of the caches.
    a_row_stride_ = (chunk.depth + 15) / 16 * 16;
    if (a_row_stride_ % 32 == 0) a_row_stride_ += 16;
    float* const packed = packed_a_scratch.get(static_cast<size_t>(chunk.rows * a_row_stride_));
    const int64_t pieces = int64_t{s_.pieces_m} * s_.pieces_n;
    const int64_t grain = std::max(kPackGrain / chunk.depth, (chunk.rows + pieces - 1) / pieces);
    parallel_for(chunk.rows, grain, [&](int64_t begin, int64_t end) {
      const PackSource source = {at(c_.a, chunk.row + begin, chunk.k), c_.a.type, c_.a.row_stride,
                                 c_.a.col_stride};
      pack_kernels().rows(source, end - begin, chunk.depth, packed + begin * a_row_stride_,
                          a_row_stride_);
    });
    a_ = packed;
  }

  // Rows [row, row_end) of the chunk times columns [column, column_end).
  void run_piece(const Chunk& chunk, const WriteBack& to, int64_t row, int64_t row_end,
                 int64_t column, int64_t column_end) const {
    if (row >= row_end || column >= column_end) return;
    BlockArgs args{};
    args.m = row_end - row;
    args.k = chunk.depth;
    args.a = a_ + row * a_row_stride_;
    args.a_row_stride = a_row_stride_;
    if (!s_.pack_b) {
      // All whole panels at once; the micro-kernel must not read beyond a ragged last one.
      args.n = (column_end - column) / kernels_.nr * kernels_.nr;
      args.b = static_cast<const float*>(at(c_.b, chunk.k, column));
      args.b_row_stride = c_.b.row_stride;
      args.out = moved(to, row, column);
      kernels_.block(args);
      column += args.n;
    }
    for (; column < column_end; column += kernels_.nr) {
      args.n = std::min(kernels_.nr, column_end - column);
      float* const panel = thread_scratch.get(static_cast<size_t>(kernels_.nr * chunk.depth));
      pack_kernels().panel({at(c_.b, chunk.k, column), c_.b.type, c_.b.col_stride, c_.b.row_stride},
                           args.n, chunk.depth, panel);
      args.b = panel;
      args.b_row_stride = kernels_.nr;
      args.out = moved(to, row, column);
      kernels_.block(args);
    }
  }

  static WriteBack moved(WriteBack to, int64_t row, int64_t column) {
    to.out = advance(to.out, to.out_type, row * to.out_row_stride + column);
    if (to.addend != nullptr)
      to.addend = advance(to.addend, to.addend_type,
                          row * to.addend_row_stride + column * to.addend_col_stride);
    return to;
  }

  // Elements of A that are worth another thread's packing.
  static constexpr int64_t kPackGrain = 64 << 10;

  const GemmCall& c_;
  const GemmStrategy& s_;
  const GemmKernels& kernels_;
  const float* a_ = nullptr;
  int64_t a_row_stride_ = 0;
};

// Rows of A as contiguous f32: where they lie if they are that, else copied.
const float* contiguous_rows(const GemmCall& c) {
  const bool dense = c.a.col_stride == 1 || c.k == 1;
  if (c.a.type == FloatType::f32 && dense && (c.m == 1 || c.a.row_stride == c.k))
    return static_cast<const float*>(c.a.data);
  float* const rows = packed_a_scratch.get(static_cast<size_t>(c.m * c.k));
  pack_kernels().rows({c.a.data, c.a.type, c.a.row_stride, c.a.col_stride}, c.m, c.k, rows, c.k);
  return rows;
}

void run_gemv(const GemmCall& c, const GemmStrategy& s, const GemmKernels& kernels) {
  const GemvKernels& gemv = gemv_kernels();
  const bool by_n = s.path == GemmPath::gemv_n;
  const float* const x = contiguous_rows(c);
  parallel_for(s.pieces_n, 1, [&](int64_t begin, int64_t end) {
    float* const sums = thread_scratch.get(static_cast<size_t>(kGemvRows * kGemvColumns));
    const int64_t last = c.n * end / s.pieces_n;
    for (int64_t column = c.n * begin / s.pieces_n; column < last; column += kGemvColumns) {
      GemvArgs args = {};
      args.m = c.m;
      args.n = std::min(kGemvColumns, last - column);
      args.k = c.k;
      args.x = x;
      args.b = at(c.b, 0, column);
      args.b_type = c.b.type;
      args.b_stride = by_n ? c.b.row_stride : c.b.col_stride;
      args.sums = sums;
      args.sums_stride = kGemvColumns;
      by_n ? gemv.n_contiguous(args) : gemv.k_contiguous(args);
      kernels.write_rows(sums, kGemvColumns, c.m, args.n, bias_write_back(c, 0, column));
    }
  });
}

// k = 0: beta * bias, or zeros.
void write_bias(const GemmCall& c, const GemmKernels& kernels) {
  float* const zeros = thread_scratch.get(static_cast<size_t>(c.n));
  std::fill_n(zeros, c.n, 0.0F);
  kernels.write_rows(zeros, 0, c.m, c.n, bias_write_back(c, 0, 0));
}

}  // namespace

void gemm(const GemmCall& call) {
  if (call.m == 0 || call.n == 0) return;
  const GemmKernels& kernels = gemm_kernels();
  const GemmStrategy strategy = choose_strategy(call, kernels);
  switch (strategy.path) {
    case GemmPath::no_sum: return write_bias(call, kernels);
    case GemmPath::gemv_n:
    case GemmPath::gemv_k: return run_gemv(call, strategy, kernels);
    case GemmPath::blocked: return BlockedGemm(call, strategy, kernels).run();
    case GemmPath::pairs: return run_gemm_pairs(call, strategy);
  }
}

}  // namespace epilogue::simd
