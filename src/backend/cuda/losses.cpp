// SPDX-License-Identifier: Apache-2.0
// The negative log likelihood and its backward op.
#include "backend/cuda/class_call.h"
#include "backend/cuda/error.h"
#include "backend/cuda/kernel_lists.h"
#include "backend/cuda/runtime.h"
#include "ops/device.h"
#include "ops/ops.h"

namespace epilogue::cuda {
namespace {

// `tensors` are the floating ones.
const char* decline_loss_types(std::span<const Tensor> tensors) {
  for (const Tensor& t : tensors)
    if (t.defined() && !has_float_type(t.dtype())) return kNeedsFloatType;
  return nullptr;
}
const char* decline_loss(const Call& call) {
  const Tensor floating[] = {call.in[0], call.in[2], call.out[0]};
  return decline_loss_types(floating);
}
const char* decline_loss_backward(const Call& call) {
  if (call.in[4].dtype() != DType::f32) return "needs an f32 total weight";
  const Tensor floating[] = {call.in[0], call.in[1], call.in[3], call.out[0]};
  return decline_loss_types(floating);
}

void run_loss(const Call& call) {
  const Tensor weight = dense(call.in[2]);
  ClassCall c;
  set_classes(c, call, call.in[0], call.in[1], weight);
  c.total_weight = static_cast<float*>(call.out[1].data());
  check(launch_nll(c, Runtime::get().stream()), "nll_loss");
}

void run_loss_backward(const Call& call) {
  const Tensor weight = dense(call.in[3]);
  ClassCall c;
  set_classes(c, call, call.in[1], call.in[2], weight);
  set_gradient(c, call.in[0]);
  c.total_weight = static_cast<float*>(call.in[4].data());
  check(launch_nll_backward(c, Runtime::get().stream()), "nll_loss_backward");
}

}  // namespace

std::span<const KernelList> loss_lists() {
  static const KernelList kLists[] = {
      {&kNllLossForward, kOnly<"nll_loss", decline_loss, run_loss>},
      {&kNllLossBackward, kOnly<"nll_loss_backward", decline_loss_backward, run_loss_backward>}};
  return kLists;
}

}  // namespace epilogue::cuda
