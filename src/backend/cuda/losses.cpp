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
const char* decline(std::span<const Tensor> tensors) {
  for (const Tensor& t : tensors)
    if (t.defined() && !has_float_type(t.dtype())) return kNeedsFloatType;
  return nullptr;
}
const char* decline_forward(const Call& call) {
  const Tensor floating[] = {call.in[0], call.in[2], call.out[0]};
  return decline(floating);
}
const char* decline_backward(const Call& call) {
  if (call.in[4].dtype() != DType::f32) return "needs an f32 total weight";
  const Tensor floating[] = {call.in[0], call.in[1], call.in[3], call.out[0]};
  return decline(floating);
}

void run_forward(const Call& call) {
  const Tensor weight = dense(call.in[2]);
  ClassCall c;
  set_classes(c, call, call.in[0], call.in[1], weight);
  c.total_weight = static_cast<float*>(call.out[1].data());
  check(launch_nll(c, Runtime::get().stream()), "nll_loss");
}

void run_backward(const Call& call) {
  const Tensor weight = dense(call.in[3]);
  ClassCall c;
  set_classes(c, call, call.in[1], call.in[2], weight);
  set_gradient(c, call.in[0]);
  c.total_weight = static_cast<float*>(call.in[4].data());
  check(launch_nll_backward(c, Runtime::get().stream()), "nll_loss_backward");
}

const Kernel kForward[] = {
    {"cuda", decline_forward, run_forward, [](const Call& c, KernelInfo& info) {
       info.name = kernel_name("nll_loss", c.out[0].dtype());
     }}};
const Kernel kBackward[] = {
    {"cuda", decline_backward, run_backward, [](const Call& c, KernelInfo& info) {
       info.name = kernel_name("nll_loss_backward", c.out[0].dtype());
     }}};

}  // namespace

std::span<const KernelList> loss_lists() {
  static const KernelList kLists[] = {{&kNllLossForward, kForward}, {&kNllLossBackward, kBackward}};
  return kLists;
}

}  // namespace epilogue::cuda
