// SPDX-License-Identifier: Apache-2.0
// Optimizer steps, one launch per kListTensors parameters.
#include "backend/cuda/optimizers.h"

#include <cmath>

#include "backend/cuda/error.h"
#include "backend/cuda/kernel_lists.h"
#include "backend/cuda/list_launches.h"
#include "backend/cuda/runtime.h"
#include "ops/ops.h"
#include "ops/optimizer_steps.h"

namespace epilogue::cuda {
namespace {

float rounded(double x) { return static_cast<float>(x); }

// The copies of one call have one dtype in the kernels.
const char* decline_copies(const Call& call, size_t copies) {
  if (const char* why = decline_lists(call)) return why;
  const ListCall lists(call);
  const DType dtype = copy_dtype(lists, copies);
  for (size_t i = 0; i < lists.size(); ++i)
    if (lists.at(copies, i).defined() && lists.at(copies, i).dtype() != dtype)
      return "needs copies of one dtype";
  return nullptr;
}

const float* number_of(const Tensor& t) {
  return t.defined() ? static_cast<const float*>(t.data()) : nullptr;
}
StepScale scale_of(const Call& call) {
  const ListCall lists(call);
  return {number_of(lists.single(call.op, 0)), number_of(lists.single(call.op, 1))};
}

template <bool kDecoupled>
void run_adam(const Call& call) {
  const AdamStep step = adam_step(call, kDecoupled);
  for (const ListTensors& tensors : list_launches(call))
    check(launch_adam(tensors, step, Runtime::get().stream()), "adam");
}

void run_sgd(const Call& call) {
  const SgdStep step = sgd_step(call);
  for (const ListTensors& tensors : list_launches(call))
    check(launch_sgd(tensors, step, Runtime::get().stream()), "sgd");
}

const char* decline_adam(const Call& call) { return decline_copies(call, kAdamCopies); }
const char* decline_sgd(const Call& call) { return decline_copies(call, kSgdCopies); }

}  // namespace

AdamStep adam_step(const Call& call, bool decoupled) {
  const AdamAttrs a(call);
  return {.scale = scale_of(call),
          .copy_dtype = copy_dtype(ListCall(call), kAdamCopies),
          .sign = a.maximize ? -1.0F : 1.0F,
          .clip = rounded(a.clip_coefficient),
          .lr = rounded(a.lr),
          .decay = decoupled ? rounded(1 - a.lr * a.weight_decay) : 1,
          .l2 = decoupled ? 0 : rounded(a.weight_decay),
          .beta1_weight = rounded(1 - a.beta1),
          .beta2 = rounded(a.beta2),
          .beta2_weight = rounded(1 - a.beta2),
          .log_beta1 = rounded(std::log(a.beta1)),
          .log_beta2 = rounded(std::log(a.beta2)),
          .eps = rounded(a.eps)};
}

SgdStep sgd_step(const Call& call) {
  const SgdAttrs a(call);
  return {.scale = scale_of(call),
          .copy_dtype = copy_dtype(ListCall(call), kSgdCopies),
          .sign = a.maximize ? -1.0F : 1.0F,
          .clip = rounded(a.clip_coefficient),
          .l2 = rounded(a.weight_decay),
          .momentum = rounded(a.momentum),
          .dampened = rounded(1 - a.dampening),
          .lr = rounded(a.lr),
          .nesterov = a.nesterov,
          .is_first = a.is_first_step};
}

std::span<const KernelList> optimizer_lists() {
  static const KernelList kLists[] = {
      {&kFusedAdam_, kOnly<"fused_adam", decline_adam, run_adam<false>, 0>},
      {&kFusedAdamW_, kOnly<"fused_adamw", decline_adam, run_adam<true>, 0>},
      {&kFusedSgd_, kOnly<"fused_sgd", decline_sgd, run_sgd, 0>}};
  return kLists;
}

}  // namespace epilogue::cuda
