// SPDX-License-Identifier: Apache-2.0
// Kernels that stand for several ops, as the run observer sees them: one op range with one kernel.
#pragma once

#include "base/thread_pool.h"
#include "core/observer.h"
#include "core/row_chain.h"

namespace epilogue {

// The ATen ops that a fused kernel stands for, as its name and its args in a trace show them.
struct FusedOps {
  FusedOps() = default;
  // In the order in which they would run: {"aten::mm", "aten::gelu"}.
  explicit FusedOps(std::span<const std::string_view> aten_names);

  std::string short_names;  // "mm_gelu"; "_etc" stands for what a kernel's name has no room for
  std::shared_ptr<const std::string> full_names;  // "aten::mm, aten::gelu"
};

// "mm, gelu": ATen ops without their namespace.
std::string op_list(std::span<const std::string_view> aten_names, std::string_view separator);

// The kernel's name: "epi_avx512_row_chain_mm_gelu_mul_bf16".
ShortText fused_kernel_name(std::string_view prefix, std::string_view what, std::string_view ops,
                            DType dtype);

// How a row chain's execution over `rows` rows shows in the trace. `ops`: "mm_gelu_mul".
KernelInfo describe_row_chain(const RowChain& chain, int64_t rows, std::string_view ops,
                              DType dtype);

// What an observed call needs beyond the call itself; asked for only while someone listens.
struct FusedCall {
  const OpDef& op;
  FunctionRef<std::vector<Tensor>()> inputs;
  FunctionRef<FusedKernelNotes()> notes;
};

// Runs `body` and tells the run observer, if there is one.
void run_fused(const FusedCall& call, std::span<const Tensor> out, FunctionRef<void()> body);

}  // namespace epilogue
