// SPDX-License-Identifier: Apache-2.0
// Fused kernels as plans run them: one kernel in the place of several ops, whatever its pattern.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "core/matrix_view.h"
#include "core/op.h"

namespace epilogue {

// How a fused kernel runs where its own choice is not wanted. An option says so if it
// may change the order of sums, and so the last bits of results.
struct KernelTuning {
  enum class Split : uint8_t { automatic, rows, columns, hidden };
  Split split = Split::automatic;  // another one may change bits
  // With Split::rows and Split::columns; 0: the kernel's own; another one may change bits.
  int64_t block_rows = 0;
  int threads = 0;         // 1: the caller alone; 0: as many as pay
  bool widens = false;     // bf16 weights as f32: twice the bytes; may change bits
  bool prefetches = true;  // whether a panel is fetched while the one before it is used
  bool operator==(const KernelTuning&) const = default;
};

// Rows that a backend runs at a time, where there are so many: weights come from L3 once per block.
inline constexpr int64_t kKernelBlockRows = 96;

// A fused node made ready to run: graph::FusedNode makes it. All but tune() are safe from several
// threads at once.
class FusedKernel {
 public:
  virtual ~FusedKernel() = default;
  // One view for each of the node's operands and results, in its order. `rows`: those of the node's
  // elements, as many as when it was captured unless its rows are free.
  virtual void run(int64_t rows, std::span<const MatrixView> operands,
                   std::span<const MatrixView> results) const = 0;
  // How a call over so many rows shows in a trace. `ops`: "mm_gelu_mul".
  virtual KernelInfo info(int64_t rows, std::string_view ops) const = 0;
  // The same for people: which kernel, how it cuts the work.
  virtual std::string describe(int64_t rows) const = 0;
  // For the calls that follow. False where it knows no such choice: nothing changes.
  virtual bool tune(const KernelTuning& /*tuning*/) { return false; }
  // Kernels that one call starts.
  virtual int64_t launches() const { return 1; }
  // Memory that a call works in.
  virtual int64_t scratch_bytes(int64_t /*rows*/) const { return 0; }
};

// The base of what a backend must know to make a fused kernel. Each kind of kernel has a struct of
// its own, and an OpDef as its name; patterns and backends know it, nobody else.
struct FusedSpec {
  virtual ~FusedSpec() = default;
};

// A kind of fused kernel that a backend has. `make` gets a spec of that kind; throws Error where
// there is no kernel for it.
struct FusedKernelMaker {
  const OpDef* kind;
  std::unique_ptr<FusedKernel> (*make)(const FusedSpec& spec);
};

}  // namespace epilogue
