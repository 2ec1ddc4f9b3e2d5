// SPDX-License-Identifier: Apache-2.0
// The panel after this one, brought into L2 while this one is multiplied.
//
// A panel comes from L3 once per block of rows. The first micro-kernel over it would wait for it
// and those after it not; spread over all of them, the fetch hides behind arithmetic. Plain code,
// to be included above target regions.
#pragma once

#include "backend/cpu/simd/packed_gemm.h"

namespace epilogue::simd {

class NextPanel {
 public:
  // Piece `piece` of `pieces`; each makes `steps` steps over a panel, of `step_bytes` each.
  NextPanel(const void* next, int64_t pieces, int64_t piece, int64_t steps, int64_t step_bytes) {
    if (next == nullptr || pieces < kMinPieces) return;
    step_ = step_bytes / pieces;
    at_ = static_cast<const char*>(next) + piece * steps * step_;
  }
  void fetch(int64_t step) const {
    if (at_ == nullptr) return;
    for (int64_t i = 0; i < step_; i += kLine)
      __builtin_prefetch(at_ + step * step_ + i, 0, kIntoL2);
  }

 private:
  // With fewer, memory is the limit already.
  static constexpr int64_t kMinPieces = 4;
  static constexpr int64_t kLine = 64;
  static constexpr int kIntoL2 = 2;
  const char* at_ = nullptr;
  int64_t step_ = 0;
};

}  // namespace epilogue::simd
