// SPDX-License-Identifier: Apache-2.0
// What the fused kernels of a backend can do. Passes and plans ask for these; which processor or
// device is behind them is the backend's affair.
#pragma once

#include <algorithm>
#include <span>

#include "core/fused_kernel.h"

namespace epilogue {

struct Capabilities {
  // A row chain may have outputs beside what flows on: what a backward pass saves.
  bool chains_store_values = false;
  // Programs load bytes as 0 and 1, so that a mask can be an operand.
  bool programs_read_masks = false;
  // Operands of programs may repeat rows, or have them apart (MatrixView::levels).
  bool programs_repeat_rows = false;
  // Programs reduce rows and columns.
  bool programs_reduce = false;
  // Products of bf16 run on a unit of their own: programs can run beside them.
  bool overlaps_bf16_programs = false;
  // Calls of up to so many rows are recorded and repeated by one call (Backend::record): their
  // launches cost more than their kernels.
  int64_t most_recorded_rows = 0;
  // A kernel has ended when its call returns, so that the host's clock times it.
  bool ends_with_call = false;
  // Kinds of fused kernels beside programs and row chains.
  std::span<const FusedKernelMaker> fused_kernels = {};

  // Makes kernels of this kind; null where the backend has none.
  const FusedKernelMaker* maker_of(const OpDef& kind) const {
    const auto found = std::ranges::find(fused_kernels, &kind, &FusedKernelMaker::kind);
    return found == fused_kernels.end() ? nullptr : &*found;
  }
};

}  // namespace epilogue
