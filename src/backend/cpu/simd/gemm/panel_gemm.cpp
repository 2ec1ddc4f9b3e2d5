// SPDX-License-Identifier: Apache-2.0
// Chunks of rows and of k, threads over pieces of C, panels of B packed when due:
//
//   for rows m_chunk                  A [m_chunk, k_chunk] fits L3
//     for k k_chunk                   sums of earlier chunks wait in C, or in f32 partials
//       all threads: A's rows         nothing to do where they are as the kernel wants them
//       each thread, its piece of C:
//         for panels of B
//           for k kc                  pack [kc, width]: it stays in the thread's L2
//             for rows of A           the kernel; after the last k the results
//
// A panel of B is used by all rows of the chunk while it is in L2, so it is packed there, by the
// thread that needs it: no shared copy of B, which for few rows would cost more than the product.
#include "backend/cpu/simd/gemm/panel_gemm.h"

#include <algorithm>

#include "backend/cpu/simd/gemm/call_operands.h"
#include "backend/cpu/simd/panels/pack_operands.h"
#include "backend/cpu/simd/scratch.h"
#include "base/ceil_div.h"
#include "base/thread_pool.h"

namespace epilogue::simd {
namespace {

// Shared by the threads of one call, owned by the calling thread; and each thread's own.
thread_local Scratch packed_a_scratch;
thread_local Scratch partial_scratch;
thread_local Scratch panel_scratch;
thread_local Scratch sums_scratch;

// Elements of A that are worth another thread's packing: f32 is copied, bf16 converted on the way,
// which takes several times as long.
constexpr int64_t kPackGrain = 64 << 10;
constexpr int64_t kConvertGrain = 8 << 10;
// Rows whose sums stay in L1 until they are written.
constexpr int64_t kBlockRows = 96;

size_t floats_of(int64_t bytes) { return static_cast<size_t>(bytes + 3) / sizeof(float); }

// One chunk: rows of C and depth of k.
struct Chunk {
  int64_t row;
  int64_t rows;
  int64_t k;
  int64_t depth;  // with the layout's padding
};

// The bias joins the first chunk of k, so that C may be the bias itself; later chunks add to what
// is there. Only the last one writes a 16-bit C: sums are rounded once.
WriteBack chunk_write_back(const GemmCall& c, const Chunk& chunk, float* partial) {
  WriteBack to = bias_write_back(c, chunk.row, 0);
  const bool first = chunk.k == 0;
  const bool last = chunk.k + chunk.depth >= c.k;
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

class PanelGemm {
 public:
  PanelGemm(const GemmCall& call, const GemmPlan& plan)
      : c_(call),
        plan_(plan),
        kernel_(*plan.kernel),
        layout_(kernel_.layout),
        depth_(layout_.padded(call.k)) {}

  void run() {
    const bool partials = c_.c_type != FloatType::f32 && plan_.k_chunk < depth_;
    Chunk chunk{};
    for (chunk.row = 0; chunk.row < c_.m; chunk.row += plan_.m_chunk) {
      chunk.rows = std::min(plan_.m_chunk, c_.m - chunk.row);
      float* const partial =
          partials ? partial_scratch.get(static_cast<size_t>(chunk.rows * c_.n)) : nullptr;
      for (chunk.k = 0; chunk.k < depth_; chunk.k += plan_.k_chunk) {
        chunk.depth = std::min(plan_.k_chunk, depth_ - chunk.k);
        run_chunk(chunk, partial);
      }
    }
  }

 private:
  void run_chunk(const Chunk& chunk, float* partial) {
    prepare_a(chunk);
    const WriteBack to = chunk_write_back(c_, chunk, partial);
    const int64_t mr = kernel_.mr;
    const int64_t width = layout_.width;
    const int64_t row_tiles = ceil_div(chunk.rows, mr);
    const int64_t panels = ceil_div(c_.n, width);
    parallel_for(plan_.threads(), 1, [&](int64_t begin, int64_t end) {
      for (int64_t piece = begin; piece < end; ++piece) {
        const int64_t i = piece / plan_.pieces_n;
        const int64_t j = piece % plan_.pieces_n;
        run_piece(chunk, to, row_tiles * i / plan_.pieces_m * mr,
                  std::min(row_tiles * (i + 1) / plan_.pieces_m * mr, chunk.rows),
                  panels * j / plan_.pieces_n * width,
                  std::min(panels * (j + 1) / plan_.pieces_n * width, c_.n));
      }
    });
  }

  // How much of the chunk's k is there, without padding.
  int64_t filled(const Chunk& chunk) const { return std::min(chunk.depth, c_.k - chunk.k); }

  void prepare_a(const Chunk& chunk) {
    if (!plan_.packs_a) {
      a_ = at(c_.a, chunk.row, chunk.k);
      a_stride_ = c_.a.row_stride;
      return;
    }
    // An odd number of cache lines: rows a power of two apart would share few sets of the caches.
    const int64_t line = 64 / layout_.row_bytes;
    a_stride_ = ceil_div(chunk.depth, line) * line;
    if (a_stride_ % (2 * line) == 0) a_stride_ += line;
    const int64_t bytes = chunk.rows * a_stride_ * layout_.row_bytes;
    void* const packed = packed_a_scratch.get(floats_of(bytes));
    const int64_t elements = layout_.rows == FloatType::f32 ? kPackGrain : kConvertGrain;
    const int64_t grain = std::max(elements / chunk.depth, ceil_div(chunk.rows, plan_.threads()));
    parallel_for(chunk.rows, grain, [&](int64_t begin, int64_t end) {
      const PackSource source = {at(c_.a, chunk.row + begin, chunk.k), c_.a.type, c_.a.row_stride,
                                 c_.a.col_stride};
      pack_rows(layout_, source, end - begin, filled(chunk), chunk.depth,
                advance(packed, layout_.rows, begin * a_stride_), a_stride_);
    });
    a_ = packed;
  }

  // Rows [row, row_end) of the chunk times columns [column, column_end).
  void run_piece(const Chunk& chunk, const WriteBack& to, int64_t row, int64_t row_end,
                 int64_t column, int64_t column_end) const {
    if (row >= row_end || column >= column_end) return;
    const int64_t width = layout_.width;
    if (!plan_.packs_b) {
      // All whole panels at once; the micro-kernel must not read beyond a ragged last one.
      const int64_t n = (column_end - column) / width * width;
      kernel_.block({row_end - row, n, chunk.depth, f32_rows(row), a_stride_,
                     static_cast<const float*>(at(c_.b, chunk.k, column)), c_.b.row_stride,
                     moved(to, row, column)});
      column += n;
    }
    for (; column < column_end; column += width) {
      const int64_t n = std::min(width, column_end - column);
      if (kernel_.block != nullptr) {
        const void* const panel = packed_panel(chunk.k, chunk.depth, column, n);
        kernel_.block({row_end - row, n, chunk.depth, f32_rows(row), a_stride_,
                       static_cast<const float*>(panel), width, moved(to, row, column)});
      } else {
        run_panel(chunk, moved(to, row, column), row, row_end - row, column, n);
      }
    }
  }

  const float* f32_rows(int64_t row) const {
    return static_cast<const float*>(a_) + row * a_stride_;
  }

  // B's rows [k, k + depth) and columns [column, column + n), in this thread's scratch.
  const void* packed_panel(int64_t k, int64_t depth, int64_t column, int64_t n) const {
    void* const panel = panel_scratch.get(floats_of(layout_.width * depth * layout_.weight_bytes));
    pack_panel(layout_, {at(c_.b, k, column), c_.b.type, c_.b.col_stride, c_.b.row_stride}, n,
               std::min(depth, c_.k - k), depth, panel);
    return panel;
  }

  // m rows from `row` on times one panel of n columns; sums of several kc wait for the last one.
  void run_panel(const Chunk& chunk, const WriteBack& to, int64_t row, int64_t m, int64_t column,
                 int64_t n) const {
    const int64_t width = layout_.width;
    const bool waits = chunk.depth > plan_.kc;
    float* const sums =
        sums_scratch.get(static_cast<size_t>((waits ? m : std::min(m, kBlockRows)) * width));
    for (int64_t k = 0; k < chunk.depth; k += plan_.kc) {
      const int64_t depth = std::min(plan_.kc, chunk.depth - k);
      PanelArgs args;
      args.k = depth;
      args.a_stride = a_stride_;
      args.panel = packed_panel(chunk.k + k, depth, column, n);
      args.accumulate = k > 0;
      for (int64_t i = 0; i < m; i += kBlockRows) {
        args.m = std::min(kBlockRows, m - i);
        args.a = advance(a_, layout_.rows, (row + i) * a_stride_ + k);
        args.sums[0] = sums + (waits ? i * width : 0);
        kernel_.one(args);
        if (k + depth == chunk.depth)
          write_back_kernels().rows(args.sums[0], width, args.m, n, moved(to, i, 0));
      }
    }
  }

  const GemmCall& c_;
  const GemmPlan& plan_;
  const PanelKernel& kernel_;
  const PanelLayout& layout_;
  const int64_t depth_;  // k with the layout's padding
  const void* a_ = nullptr;
  int64_t a_stride_ = 0;
};

}  // namespace

void run_panel_gemm(const GemmCall& call, const GemmPlan& plan) { PanelGemm(call, plan).run(); }

}  // namespace epilogue::simd
