// SPDX-License-Identifier: Apache-2.0
// How one GEMM is cut: which path and kernel, which blocks, how many threads. gemm() and traces
// share it.
#pragma once

#include <cstdint>

#include "backend/cpu/simd/gemm/gemm.h"
#include "backend/cpu/simd/panels/kernel_list.h"

namespace epilogue::simd {

enum class GemmPath : uint8_t {
  nothing,  // C is empty
  no_sum,   // k = 0: only the bias
  gemv_n,   // few rows, B's columns contiguous: gemv.h
  gemv_k,   // few rows, B's k contiguous
  panels,   // blocks over a panel kernel: panel_gemm.h
  tiles,    // both operands in tiles: tile_gemm.h
};

struct GemmPlan {
  GemmPath path = GemmPath::panels;
  // Of GemmPath::panels and tiles:
  const PanelKernelEntry* entry = nullptr;
  const PanelKernel* kernel = nullptr;  // the entry's at the level in use
  bool packs_a = true;                  // else A's rows are read where they lie
  bool packs_b = true;                  // else B is, but for a ragged last panel
  int64_t kc = 0;                       // depth of a panel of B, kc x width: it stays in L2
  int64_t k_chunk = 0;                  // depth of a chunk, kc or all of k
  int64_t m_chunk = 0;  // rows of a chunk: A, m_chunk x k_chunk, stays in L3; of tiles in L2
  int64_t n_chunk = 0;  // of tiles: columns of a chunk: B, k x n_chunk, stays in L3
  bool feeds = false;   // of tiles: B's columns are tiled beside the products before theirs
  int pieces_m = 1;     // threads over rows
  int pieces_n = 1;     // threads over columns

  int threads() const { return pieces_m * pieces_n; }
};
GemmPlan plan_gemm(const GemmCall& call);

// For traces: e.g. "epi_avx512_gemm_f32_6x64_tn_bias"; lives for ever. Types: one if A, B and C
// agree, else those of A, B, C ("bf16bf16f32"). Letters: as cuBLAS, column-major, would be told:
// first B (t: k is contiguous, nn.Linear's weight; n: n is), then A (n: k is contiguous). "_bias":
// a row vector is added; "_add": a matrix. "gemv" for at most 8 rows: B is read where it lies.
const char* kernel_name(const GemmCall& call, const GemmPlan& plan);

// And what it would be on a GPU.
struct GemmGrid {
  int64_t grid[3];   // blocks over n, over m, and chunks of k
  int64_t block[3];  // columns, rows and depth of one block
};
GemmGrid grid_of(const GemmCall& call, const GemmPlan& plan);

// gemv: columns that one thread sums at a time, so that their sums stay in L1.
inline constexpr int64_t kGemvColumns = 512;

// `total` in chunks of at most `most`, all about equal: 1025 is not 1024 and 1. A multiple of
// `multiple`.
int64_t even_chunk(int64_t total, int64_t most, int64_t multiple);

}  // namespace epilogue::simd
