// SPDX-License-Identifier: Apache-2.0
// CPU kernels of the optimizer steps: all parameters of a call as one stream of tiles.
#include <cmath>

#include "backend/cpu/kernel_lists.h"
#include "backend/cpu/list_tiles.h"
#include "backend/cpu/simd/optimizer.h"
#include "ops/ops.h"
#include "ops/optimizer_steps.h"

namespace epilogue::cpu {
namespace {

// The copies of one call have one dtype, and only f32 parameters have any.
const char* decline_copies(const Call& call, size_t copies) {
  if (const char* why = decline_lists(call)) return why;
  const ListCall lists(call);
  const DType copy = copy_dtype(lists, copies);
  if (copy == DType::f32) return nullptr;
  for (size_t i = 0; i < lists.size(); ++i)
    if (lists.at(0, i).dtype() != DType::f32 || !lists.at(copies, i).defined() ||
        lists.at(copies, i).dtype() != copy)
      return "needs f32 parameters with copies of one dtype";
  return nullptr;
}

template <class Kernel>
Kernel kernel_for(DType param, DType copy, const Kernel* of_f32, const Kernel* of_low) {
  if (param == DType::f32) return of_f32[static_cast<size_t>(float_type(copy))];
  return of_low[static_cast<size_t>(float_type(param))];
}

// Of parameter i, which is about to take its next step.
simd::AdamScalars adam_scalars(const Call& call, const ListCall& lists, size_t i, bool decoupled) {
  const AdamAttrs a(call);
  const Tensor& steps = lists.at(kAdamSteps, i);
  const double t = load_element(steps.dtype(), steps.data(), 0) + 1;
  const auto f = [](double x) { return static_cast<float>(x); };
  return {.grad_factor = f(inverse_grad_scale(call) * (a.maximize ? -1 : 1)),
          .clip = f(a.clip_coefficient),
          .decay = decoupled ? f(1 - a.lr * a.weight_decay) : 1,
          .l2 = decoupled ? 0 : f(a.weight_decay),
          .beta1_weight = f(1 - a.beta1),
          .beta2 = f(a.beta2),
          .beta2_weight = f(1 - a.beta2),
          .step_size = f(a.lr / (1 - std::pow(a.beta1, t))),
          .inverse_root = f(1 / std::sqrt(1 - std::pow(a.beta2, t))),
          .eps = f(a.eps)};
}

template <bool kDecoupled>
void run_adam(const Call& call) {
  if (found_inf(call)) return;
  const ListCall lists(call);
  std::vector<simd::AdamScalars> scalars;
  scalars.reserve(lists.size());
  for (size_t i = 0; i < lists.size(); ++i)
    scalars.push_back(adam_scalars(call, lists, i, kDecoupled));
  const auto& kernels = simd::optimizer_kernels();
  const simd::AdamKernel kernel = kernel_for(lists.at(0, 0).dtype(), copy_dtype(lists, kAdamCopies),
                                             kernels.adam_f32, kernels.adam_low);
  ListTiles(lists).parallel_for_each([&](const ListTile& tile) {
    const auto at = [&](AdamList list) {
      return address_of(lists.at(list, tile.tensor), tile.begin);
    };
    kernel({at(kAdamParams), at(kAdamGrads), at(kAdamExpAvgs), at(kAdamExpAvgSqs),
            at(kAdamMaxExpAvgSqs), at(kAdamCopies)},
           scalars[tile.tensor], static_cast<size_t>(tile.size));
  });
  for (size_t i = 0; i < lists.size(); ++i) {
    const Tensor& steps = lists.at(kAdamSteps, i);
    store_element(steps.dtype(), steps.data(), 0, load_element(steps.dtype(), steps.data(), 0) + 1);
  }
}

void run_sgd(const Call& call) {
  if (found_inf(call)) return;
  const ListCall lists(call);
  const SgdAttrs a(call);
  const auto f = [](double x) { return static_cast<float>(x); };
  const simd::SgdScalars scalars = {
      .grad_factor = f(inverse_grad_scale(call) * (a.maximize ? -1 : 1)),
      .clip = f(a.clip_coefficient),
      .l2 = f(a.weight_decay),
      .momentum = f(a.momentum),
      .dampened = f(1 - a.dampening),
      .lr = f(a.lr),
      .nesterov = a.nesterov,
      .is_first = a.is_first_step};
  const auto& kernels = simd::optimizer_kernels();
  const simd::SgdKernel kernel = kernel_for(lists.at(0, 0).dtype(), copy_dtype(lists, kSgdCopies),
                                            kernels.sgd_f32, kernels.sgd_low);
  ListTiles(lists).parallel_for_each([&](const ListTile& tile) {
    const auto at = [&](SgdList list) {
      return address_of(lists.at(list, tile.tensor), tile.begin);
    };
    kernel({at(kSgdParams), at(kSgdGrads), at(kSgdMomentumBuffers), at(kSgdCopies)}, scalars,
           static_cast<size_t>(tile.size));
  });
}

const char* decline_adam(const Call& call) { return decline_copies(call, kAdamCopies); }
const char* decline_sgd(const Call& call) { return decline_copies(call, kSgdCopies); }

constexpr KernelList kOptimizerLists[] = {
    {&kFusedAdam_, kOnly<"fused_adam", decline_adam, run_adam<false>, describe_lists>},
    {&kFusedAdamW_, kOnly<"fused_adamw", decline_adam, run_adam<true>, describe_lists>},
    {&kFusedSgd_, kOnly<"fused_sgd", decline_sgd, run_sgd, describe_lists>}};

}  // namespace

std::span<const KernelList> optimizer_lists() { return kOptimizerLists; }

}  // namespace epilogue::cpu
