// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/simd/gemm/gemm.h"

#include <algorithm>

#include "backend/cpu/simd/gemm/call_operands.h"
#include "backend/cpu/simd/gemm/gemv.h"
#include "backend/cpu/simd/gemm/panel_gemm.h"
#include "backend/cpu/simd/gemm/plan.h"
#include "backend/cpu/simd/gemm/tile_gemm.h"
#include "backend/cpu/simd/panels/pack.h"
#include "backend/cpu/simd/scratch.h"
#include "base/thread_pool.h"

namespace epilogue::simd {
namespace {

// Rows of A, of the calling thread; each thread's sums.
thread_local Scratch row_scratch;
thread_local Scratch thread_scratch;

// Rows of A as contiguous f32: where they lie if they are that, else copied.
const float* contiguous_rows(const GemmCall& c) {
  const bool dense = c.a.col_stride == 1 || c.k == 1;
  if (c.a.type == FloatType::f32 && dense && (c.m == 1 || c.a.row_stride == c.k))
    return static_cast<const float*>(c.a.data);
  float* const rows = row_scratch.get(static_cast<size_t>(c.m * c.k));
  pack_kernels().rows({c.a.data, c.a.type, c.a.row_stride, c.a.col_stride}, c.m, c.k, rows, c.k);
  return rows;
}

void run_gemv(const GemmCall& c, const GemmPlan& plan) {
  const GemvKernels& gemv = gemv_kernels();
  const bool by_n = plan.path == GemmPath::gemv_n;
  const float* const x = contiguous_rows(c);
  parallel_for(plan.pieces_n, 1, [&](int64_t begin, int64_t end) {
    float* const sums = thread_scratch.get(static_cast<size_t>(2 * kGemvRows * kGemvColumns));
    const int64_t last = c.n * end / plan.pieces_n;
    for (int64_t column = c.n * begin / plan.pieces_n; column < last; column += kGemvColumns) {
      GemvArgs args = {};
      args.m = c.m;
      args.n = std::min(kGemvColumns, last - column);
      args.k = c.k;
      args.x = x;
      args.b = at(c.b, 0, column);
      args.b_type = c.b.type;
      args.b_stride = by_n ? c.b.row_stride : c.b.col_stride;
      args.sums = sums;
      args.piece = sums + kGemvRows * kGemvColumns;
      args.sums_stride = kGemvColumns;
      by_n ? gemv.n_contiguous(args) : gemv.k_contiguous(args);
      write_back_kernels().rows(sums, kGemvColumns, c.m, args.n, bias_write_back(c, 0, column));
    }
  });
}

// k = 0: beta * bias, or zeros.
void write_bias(const GemmCall& c) {
  float* const zeros = thread_scratch.get(static_cast<size_t>(c.n));
  std::fill_n(zeros, c.n, 0.0F);
  write_back_kernels().rows(zeros, 0, c.m, c.n, bias_write_back(c, 0, 0));
}

}  // namespace

bool makes_hidden(const GemmCall& call, PointwiseFn f) {
  const bool is_row = call.bias.data == nullptr || call.bias.row_stride == 0;
  return call.c_type == FloatType::bf16 && call.alpha == 1.0F && is_row &&
         hidden_lines(f, HiddenSums::gate) != nullptr && plan_gemm(call).path == GemmPath::tiles;
}

void gemm(const GemmCall& call) {
  const GemmPlan plan = plan_gemm(call);
  switch (plan.path) {
    case GemmPath::nothing: return;
    case GemmPath::no_sum: return write_bias(call);
    case GemmPath::gemv_n:
    case GemmPath::gemv_k: return run_gemv(call, plan);
    case GemmPath::panels: return run_panel_gemm(call, plan);
    case GemmPath::tiles: return run_tile_gemm(call, plan);
  }
}

}  // namespace epilogue::simd
