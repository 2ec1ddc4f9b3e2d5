// SPDX-License-Identifier: Apache-2.0
// The loops of the pairs GEMM:
//
//   for rows m_chunk
//     all threads: A as bf16 rows         nothing to do where k is contiguous and needs no padding
//     each thread, its piece of C:
//       for panels of B
//         for k kc                        pack [kc, width] as pairs: it stays in L2
//           for blocks of rows            products; the last chunk of k writes C
#include "backend/cpu/simd/gemm/pairs.h"

#include <algorithm>

#include "backend/cpu/simd/gemm/call_operands.h"
#include "backend/cpu/simd/panels/pack.h"
#include "backend/cpu/simd/panels/pack_pairs.h"
#include "backend/cpu/simd/panels/packed_weights.h"
#include "backend/cpu/simd/scratch.h"
#include "base/thread_pool.h"

namespace epilogue::simd {
namespace {

// Shared by the threads of one call, owned by the calling thread; and each thread's own.
thread_local Scratch a_scratch;
thread_local Scratch row_scratch;
thread_local Scratch panel_scratch;
thread_local Scratch sums_scratch;

// Rows whose sums stay in L1 until they are written.
constexpr int64_t kBlockRows = 96;

int64_t round_up(int64_t n, int64_t multiple) { return (n + multiple - 1) / multiple * multiple; }

class PairsGemm {
 public:
  PairsGemm(const GemmCall& call, const GemmStrategy& strategy)
      : c_(call),
        s_(strategy),
        kernels_(packed_kernels()),
        depth_(padded_depth(call.k, PanelType::bf16_pairs, kernels_.layout)) {}

  void run() {
    for (int64_t row = 0; row < c_.m; row += s_.m_chunk) {
      const int64_t rows = std::min(s_.m_chunk, c_.m - row);
      prepare_a(row, rows);
      const int64_t blocks = (rows + kernels_.mr - 1) / kernels_.mr;
      const int64_t panels = (c_.n + kernels_.layout.width - 1) / kernels_.layout.width;
      parallel_for(int64_t{s_.pieces_m} * s_.pieces_n, 1, [&](int64_t begin, int64_t end) {
        for (int64_t piece = begin; piece < end; ++piece) {
          const int64_t i = piece / s_.pieces_n;
          const int64_t j = piece % s_.pieces_n;
          const int64_t first = blocks * i / s_.pieces_m * kernels_.mr;
          const int64_t last = std::min(blocks * (i + 1) / s_.pieces_m * kernels_.mr, rows);
          for (int64_t p = panels * j / s_.pieces_n; p < panels * (j + 1) / s_.pieces_n; ++p)
            if (first < last) run_panel(row, first, last - first, p);
        }
      });
    }
  }

 private:
  // Rows of A with contiguous k, zeros up to depth_.
  void prepare_a(int64_t row, int64_t rows) {
    if (c_.a.col_stride == 1 && depth_ == c_.k) {
      a_ = static_cast<const uint16_t*>(at(c_.a, row, 0));
      a_stride_ = c_.a.row_stride;
      return;
    }
    // Rows a multiple of 4 KiB apart would share few sets of the caches.
    constexpr int64_t line = 32;
    a_stride_ = round_up(depth_, line) + line;
    auto* const packed =
        reinterpret_cast<uint16_t*>(a_scratch.get(static_cast<size_t>((rows * a_stride_ + 1) / 2)));
    const auto pack = [&](int64_t begin, int64_t end) {
      constexpr int64_t some = 16;  // rows at a time: what a transposing copy reads together
      float* const f32 = row_scratch.get(static_cast<size_t>(some * a_stride_));
      for (int64_t i = begin; i < end; i += some) {
        const int64_t count = std::min(some, end - i);
        pack_kernels().rows(
            {at(c_.a, row + i, 0), FloatType::bf16, c_.a.row_stride, c_.a.col_stride}, count, c_.k,
            f32, a_stride_);
        for (int64_t r = 0; r < count; ++r)
          std::fill(f32 + r * a_stride_ + c_.k, f32 + (r + 1) * a_stride_, 0.0F);
        from_f32(FloatType::bf16, f32, packed + i * a_stride_,
                 static_cast<size_t>(count * a_stride_));
      }
    };
    parallel_for(rows, std::max<int64_t>(1, rows / (s_.pieces_m * s_.pieces_n)), pack);
    a_ = packed;
  }

  // Rows [row, row + m) of the chunk that begins at chunk_row, times one panel of B.
  void run_panel(int64_t chunk_row, int64_t row, int64_t m, int64_t panel) const {
    const int64_t width = kernels_.layout.width;
    const int64_t column = panel * width;
    const int64_t n = std::min(width, c_.n - column);
    const int64_t kept = depth_ <= s_.kc ? std::min(m, kBlockRows) : m;
    float* const sums = sums_scratch.get(static_cast<size_t>(kept * width));
    auto* const pairs = reinterpret_cast<uint16_t*>(
        panel_scratch.get(static_cast<size_t>(std::min(s_.kc, depth_) * width / 2)));
    for (int64_t k = 0; k < depth_; k += s_.kc) {
      const int64_t end = std::min(k + s_.kc, depth_);
      pack_pairs({at(c_.b, k, column), FloatType::bf16, c_.b.col_stride, c_.b.row_stride}, n,
                 std::min(end, c_.k) - k, end - k, width, pairs);
      for (int64_t i = 0; i < m; i += kBlockRows) {
        PanelArgs args;
        args.m = std::min(kBlockRows, m - i);
        args.k = end - k;
        args.a = a_ + (row + i) * a_stride_ + k;
        args.a_stride = a_stride_;
        args.panel = pairs;
        args.sums[0] = sums + (kept == m ? i * width : 0);
        args.accumulate = k > 0;
        kernels_.one[static_cast<size_t>(PanelType::bf16_pairs)](args);
        if (end == depth_)
          gemm_kernels().write_rows(args.sums[0], width, args.m, n,
                                    bias_write_back(c_, chunk_row + row + i, column));
      }
    }
  }

  const GemmCall& c_;
  const GemmStrategy& s_;
  const PackedKernels kernels_;
  const int64_t depth_;  // k with its padding
  const uint16_t* a_ = nullptr;
  int64_t a_stride_ = 0;
};

}  // namespace

void run_gemm_pairs(const GemmCall& call, const GemmStrategy& strategy) {
  PairsGemm(call, strategy).run();
}

}  // namespace epilogue::simd
