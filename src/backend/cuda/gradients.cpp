// SPDX-License-Identifier: Apache-2.0
// Ops on the list of a model's gradients: clipping, norms, GradScaler's check.
#include <cmath>

#include "backend/cuda/error.h"
#include "backend/cuda/kernel_lists.h"
#include "backend/cuda/list_launches.h"
#include "backend/cuda/runtime.h"
#include "ops/ops.h"

namespace epilogue::cuda {
namespace {

void map(const Call& call, double factor, double low, double high) {
  const auto f = [](double x) { return static_cast<float>(x); };
  for (const ListTensors& tensors : list_launches(call))
    check(launch_list_map(tensors, f(factor), f(low), f(high), Runtime::get().stream()),
          "list_map");
}
void run_mul(const Call& call) { map(call, call.attr<double>(0), -HUGE_VAL, HUGE_VAL); }
void run_clamp_min(const Call& call) { map(call, 1, call.attr<double>(0), HUGE_VAL); }
void run_clamp_max(const Call& call) { map(call, 1, -HUGE_VAL, call.attr<double>(0)); }

void run_unscale(const Call& call) {
  const ListCall lists(call);
  auto* const found_inf = static_cast<float*>(lists.single(call.op, 0).data());
  const auto* const inverse = static_cast<const float*>(lists.single(call.op, 1).data());
  for (const ListTensors& tensors : list_launches(call))
    check(launch_list_unscale(tensors, found_inf, inverse, Runtime::get().stream()),
          "list_unscale");
}

const char* decline_norm(const Call& call) {
  const auto order = call.attr<double>(0);
  if (order != 1 && order != 2 && !std::isinf(order)) return "needs order 1, 2 or infinity";
  return decline_lists(call);
}

void run_norm(const Call& call) {
  const auto p = call.attr<double>(0);
  const NormOrder order = std::isinf(p) ? NormOrder::largest
                          : p == 1      ? NormOrder::one
                                        : NormOrder::two;
  auto* out = static_cast<float*>(call.out[0].data());
  for (const ListTensors& tensors : list_launches(call)) {
    // Freed at once: whoever gets the memory next writes it later in the stream.
    const Tensor scratch = empty({tensors.blocks()}, DType::f64, kDevice);
    check(launch_list_norm(tensors, order, static_cast<double*>(scratch.data()), out,
                           Runtime::get().stream()),
          "list_norm");
    out += tensors.count;
  }
}

}  // namespace

std::span<const KernelList> gradient_lists() {
  static const KernelList kLists[] = {
      {&kForeachNorm, kOnly<"foreach_norm", decline_norm, run_norm, 0>},
      {&kForeachMul_, kOnly<"foreach_mul", decline_lists, run_mul, 0>},
      {&kForeachClampMin_, kOnly<"foreach_clamp_min", decline_lists, run_clamp_min, 0>},
      {&kForeachClampMax_, kOnly<"foreach_clamp_max", decline_lists, run_clamp_max, 0>},
      {&kAmpNonFiniteCheckAndUnscale_,
       kOnly<"non_finite_check_and_unscale", decline_lists, run_unscale, 0>}};
  return kLists;
}

}  // namespace epilogue::cuda
