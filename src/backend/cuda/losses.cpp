// SPDX-License-Identifier: Apache-2.0
// The negative log likelihood and its backward op.
#include "ops/losses.h"

#include "backend/cuda/error.h"
#include "backend/cuda/kernel_lists.h"
#include "backend/cuda/kernels/kernels.h"
#include "backend/cuda/runtime.h"
#include "epilogue/ops.h"
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

// What both directions share. `weight` is contiguous.
NllCall nll_call(const Call& call, const Tensor& self, const Tensor& target, const Tensor& weight) {
  NllCall c;
  c.n = target.numel();
  c.classes = self.size(-1);
  c.row_stride = self.dim() == 2 ? self.strides()[0] : 0;
  c.class_stride = self.strides()[self.dim() - 1];
  c.target_stride = target.dim() == 1 ? target.strides()[0] : 0;
  c.ignore_index = call.attr<int64_t>(1);
  c.reduction = static_cast<int>(reduction_of(call, 0));
  c.dtype = self.dtype();
  c.self = self.data();
  c.target = static_cast<const int64_t*>(target.data());
  if (weight.defined()) {
    c.weight = weight.data();
    c.weight_dtype = weight.dtype();
  }
  c.out = call.out[0].data();
  return c;
}

Tensor dense_or_none(const Tensor& t) { return t.defined() ? dense(t) : t; }

void run_forward(const Call& call) {
  const Tensor weight = dense_or_none(call.in[2]);
  NllCall c = nll_call(call, call.in[0], call.in[1], weight);
  c.total_weight = static_cast<float*>(call.out[1].data());
  check(launch_nll(c, Runtime::get().stream()), "nll_loss");
}

void run_backward(const Call& call) {
  const Tensor weight = dense_or_none(call.in[3]);
  const Tensor& grad = call.in[0];
  NllCall c = nll_call(call, call.in[1], call.in[2], weight);
  c.grad = grad.data();
  c.grad_dtype = grad.dtype();
  c.grad_stride = grad.dim() == 1 ? grad.strides()[0] : 0;
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
