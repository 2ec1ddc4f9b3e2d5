// SPDX-License-Identifier: Apache-2.0
#include "core/fused_call.h"

#include "base/clock.h"
#include "core/backend.h"

namespace epilogue {
namespace {

// Leaves room for prefix and dtype in the 95 characters of a kernel's name.
constexpr size_t kMaxOpsChars = 60;
constexpr std::string_view kLeftOut = "_etc";

std::string_view without_namespace(std::string_view aten_name) {
  const size_t colons = aten_name.find("::");
  return colons == std::string_view::npos ? aten_name : aten_name.substr(colons + 2);
}

std::string joined(std::span<const std::string_view> names, std::string_view separator) {
  std::string text;
  for (const std::string_view name : names) {
    if (!text.empty()) text += separator;
    text += name;
  }
  return text;
}

}  // namespace

std::string op_list(std::span<const std::string_view> aten_names, std::string_view separator) {
  std::vector<std::string_view> names;
  names.reserve(aten_names.size());
  for (const std::string_view name : aten_names) names.push_back(without_namespace(name));
  return joined(names, separator);
}

FusedOps::FusedOps(std::span<const std::string_view> aten_names)
    : short_names(op_list(aten_names, "_")),
      full_names(std::make_shared<const std::string>(joined(aten_names, ", "))) {
  for (size_t kept = aten_names.size(); short_names.size() > kMaxOpsChars && kept > 0; --kept)
    short_names = op_list(aten_names.first(kept - 1), "_") + std::string(kLeftOut);
}

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

void run_fused(const FusedCall& call, std::span<const Tensor> out, FunctionRef<void()> body) {
  RunObserver* const listener = run_observer();
  if (listener == nullptr) [[likely]]
    return body();
  struct Op {
    RunObserver* observer;
    ~Op() { observer->op_end(); }
  };
  const std::vector<Tensor> in = call.inputs();
  std::vector<Tensor> results(out.begin(), out.end());
  const FusedKernelNotes notes = call.notes();
  listener->op_begin(call.op, in, {}, -1);
  const Op op{listener};
  const Device device = out[0].device();
  DeviceTimer* const timer =
      device.type == DeviceType::cpu ? nullptr : device_backend(device).timer();
  const int64_t begin = ticks();
  const int64_t begin_mark = timer != nullptr ? timer->mark() : -1;
  body();
  const int64_t end_mark = timer != nullptr ? timer->mark() : -1;
  listener->kernel_ran(
      {Call{call.op, in, {}, results}, nullptr, begin, ticks(), &notes, begin_mark, end_mark});
}

}  // namespace epilogue
