// SPDX-License-Identifier: Apache-2.0
#include "core/fused_call.h"

#include "base/clock.h"

namespace epilogue {

ShortText fused_kernel_name(std::string_view prefix, std::string_view what, std::string_view ops,
                            DType dtype) {
  ShortText name = prefix;
  for (const std::string_view part : {what, ops, dtype_name(dtype)}) {
    name += "_";
    name += part;
  }
  return name;
}

KernelInfo describe_row_chain(const RowChain& chain, int64_t rows, std::string_view ops,
                              DType dtype) {
  constexpr std::string_view kWhat = "row_chain";
  const std::string full = chain.kernel_name();
  const std::string_view prefix = std::string_view(full).substr(0, full.find(kWhat));
  const RowChainPlan plan = chain.plan(rows);
  KernelInfo info;
  info.name = fused_kernel_name(prefix.substr(0, prefix.size() - 1), kWhat, ops, dtype);
  info.grid = {plan.blocks, 1, 1};
  info.block = {plan.block_rows, 1, 1};
  info.threads = plan.threads;
  return info;
}

void run_fused(const FusedCall& call, std::span<Tensor> out, FunctionRef<void()> body) {
  RunObserver* const listener = run_observer();
  if (listener == nullptr) [[likely]]
    return body();
  struct Op {
    RunObserver* observer;
    ~Op() { observer->op_end(); }
  };
  const std::vector<Tensor> in = call.inputs();
  const FusedKernelNotes notes = call.notes();
  listener->op_begin(call.op, in, {}, -1);
  const Op op{listener};
  const int64_t begin = ticks();
  body();
  listener->kernel_ran({Call{call.op, in, {}, out}, nullptr, begin, ticks(), &notes});
}

}  // namespace epilogue
