// SPDX-License-Identifier: Apache-2.0
// How one GEMM is cut: which path, which blocks, how many threads. gemm() and describe_gemm() share
// it.
#pragma once

#include <cstdint>

#include "backend/cpu/simd/gemm/gemm.h"
#include "backend/cpu/simd/gemm/kernels.h"

namespace epilogue::simd {

enum class GemmPath : uint8_t {
  no_sum,   // k = 0: only the bias
  gemv_n,   // few rows, B's columns contiguous
  gemv_k,   // few rows, B's k contiguous
  blocked,  // panels of f32
  pairs,    // panels of bf16 pairs (gemm_pairs.h)
};

struct GemmStrategy {
  GemmPath path = GemmPath::blocked;
  bool pack_a = true;   // else rows of A (f32, k contiguous) are read where they lie
  bool pack_b = true;   // else B (f32, n contiguous) is, but for a ragged last panel
  int64_t kc = 0;       // depth of a chunk: a panel of B, kc x nr, stays in L2
  int64_t m_chunk = 0;  // rows of a chunk: A, m_chunk x kc, stays in L3
  int pieces_m = 1;     // threads over rows
  int pieces_n = 1;     // threads over columns
};

// Needs m, n >= 1.
GemmStrategy choose_strategy(const GemmCall& call, const GemmKernels& kernels);

// gemv: columns that one thread sums at a time, so that their sums stay in L1.
inline constexpr int64_t kGemvColumns = 512;

// `total` in chunks of at most `most`, all about equal: 1025 is not 1024 and 1. A multiple of
// `multiple`.
int64_t even_chunk(int64_t total, int64_t most, int64_t multiple);

}  // namespace epilogue::simd
