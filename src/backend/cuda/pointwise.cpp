// SPDX-License-Identifier: Apache-2.0
// Pointwise ops: the table from op to function.
#include "backend/cuda/error.h"
#include "backend/cuda/kernel_lists.h"
#include "backend/cuda/runtime.h"
#include "backend/cuda/tensor_walk.h"
#include "ops/ops.h"

namespace epilogue::cuda {
namespace {

bool is_host_number(const Tensor& t) { return t.device().type == DeviceType::cpu; }

const char* decline(const Call& call) {
  if (!has_float_type(call.out[0].dtype())) return kNeedsFloatType;
  for (const Tensor& t : call.in)
    if (!has_float_type(t.dtype()) && !is_host_number(t)) return kNeedsFloatType;
  return nullptr;
}
const char* decline_threshold(const Call& call) {
  if (call.attr<double>(0) != 0) return "needs threshold 0";
  return decline(call);
}

// add and sub carry alpha; the others have no number.
template <PointwiseFn kFn>
float alpha_of(const Call& call) {
  if constexpr (kFn == PointwiseFn::add || kFn == PointwiseFn::sub)
    return static_cast<float>(call.attr<double>(0));
  return 1;
}

// Attribute 0 of gelu and its backward chooses the form.
template <PointwiseFn kFn>
PointwiseFn form_of(const Call& call) {
  if constexpr (kFn == PointwiseFn::gelu_erf)
    return call.attr<int64_t>(0) == 1 ? PointwiseFn::gelu_tanh : kFn;
  if constexpr (kFn == PointwiseFn::gelu_erf_backward)
    return call.attr<int64_t>(0) == 1 ? PointwiseFn::gelu_tanh_backward : kFn;
  return kFn;
}

template <PointwiseFn kFn>
void run(const Call& call) {
  check(launch_pointwise(form_of<kFn>(call), alpha_of<kFn>(call), make_walk(call.out[0], call.in),
                         Runtime::get().stream()),
        "pointwise");
}

template <PointwiseFn kFn>
void describe(const Call& call, KernelInfo& info) {
  info.name = kernel_name(pointwise_fn_name(form_of<kFn>(call)), call.out[0].dtype());
}

template <PointwiseFn kFn>
const Kernel kKernels[] = {{"cuda", kFn == PointwiseFn::relu_backward ? decline_threshold : decline,
                            run<kFn>, describe<kFn>}};

}  // namespace

std::span<const KernelList> pointwise_lists() {
  static const KernelList kLists[] = {
      {&kAdd, kKernels<PointwiseFn::add>},
      {&kSub, kKernels<PointwiseFn::sub>},
      {&kMul, kKernels<PointwiseFn::mul>},
      {&kDiv, kKernels<PointwiseFn::div>},
      {&kAdd_, kKernels<PointwiseFn::add>},
      {&kMul_, kKernels<PointwiseFn::mul>},
      {&kDiv_, kKernels<PointwiseFn::div>},
      {&kNeg, kKernels<PointwiseFn::neg>},
      {&kExp, kKernels<PointwiseFn::exp>},
      {&kRelu, kKernels<PointwiseFn::relu>},
      {&kSigmoid, kKernels<PointwiseFn::sigmoid>},
      {&kTanh, kKernels<PointwiseFn::tanh>},
      {&kSilu, kKernels<PointwiseFn::silu>},
      {&kGelu, kKernels<PointwiseFn::gelu_erf>},
      {&kThresholdBackward, kKernels<PointwiseFn::relu_backward>},
      {&kSigmoidBackward, kKernels<PointwiseFn::sigmoid_backward>},
      {&kTanhBackward, kKernels<PointwiseFn::tanh_backward>},
      {&kSiluBackward, kKernels<PointwiseFn::silu_backward>},
      {&kGeluBackward, kKernels<PointwiseFn::gelu_erf_backward>},
  };
  return kLists;
}

}  // namespace epilogue::cuda
