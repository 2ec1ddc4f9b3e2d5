// SPDX-License-Identifier: Apache-2.0
// Pointwise ops: one kernel for each row of the table of functions.
#include "ops/pointwise/pointwise.h"
#include "backend/cuda/error.h"
#include "backend/cuda/kernel_lists.h"
#include "backend/cuda/runtime.h"
#include "backend/cuda/tensor_walk.h"
#include "ops/shape.h"

namespace epilogue::cuda {
namespace {

bool is_host_number(const Tensor& t) { return t.device().type == DeviceType::cpu; }

template <PointwiseFn kFn>
const char* decline_pointwise(const Call& call) {
  constexpr const PointwiseRow& kRow = pointwise_row(kFn);
  if (!has_form(kRow, call.attrs)) return kRow.form.needs;
  const DType computed =
      kRow.result == PointwiseResult::truth ? result_dtype(call.in) : call.out[0].dtype();
  if (!has_float_type(computed)) return kNeedsFloatType;
  for (const Tensor& t : call.in.subspan(kRow.has_condition ? 1 : 0))
    if (!has_float_type(t.dtype()) && !is_host_number(t)) return kNeedsFloatType;
  return nullptr;
}

template <PointwiseFn kFn>
void run(const Call& call) {
  check(launch_pointwise(kFn, parameters_of(pointwise_row(kFn), call.attrs),
                         make_walk(call.out[0], call.in), Runtime::get().stream()),
        "pointwise");
}

template <PointwiseFn kFn>
void describe_pointwise(const Call& call, KernelInfo& info) {
  info.name = kernel_name(pointwise_fn_name(kFn), call.out[0].dtype());
}

template <size_t... kIndex>
constexpr std::array<Kernel, kPointwiseFns> all_kernels(std::index_sequence<kIndex...>) {
  return {Kernel{"cuda", decline_pointwise<kPointwiseTable[kIndex].fn>,
                 run<kPointwiseTable[kIndex].fn>,
                 describe_pointwise<kPointwiseTable[kIndex].fn>}...};
}

// Those of the op's forms.
std::vector<Kernel> kernels_of(const OpDef& op) {
  static constexpr std::array<Kernel, kPointwiseFns> kAll = all_kernels(PointwiseFnSequence());
  std::vector<Kernel> kernels;
  for (const PointwiseRow& row : kPointwiseTable)
    if (row.op == op.name) kernels.push_back(kAll[static_cast<size_t>(row.fn)]);
  return kernels;
}

}  // namespace

std::span<const KernelList> pointwise_lists() {
  static const PointwiseKernelLists lists(kernels_of);
  return lists.span();
}

}  // namespace epilogue::cuda
