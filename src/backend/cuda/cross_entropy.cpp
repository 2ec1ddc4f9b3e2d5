// SPDX-License-Identifier: Apache-2.0
// The fused cross entropy and its backward op.
#include "backend/cuda/class_call.h"
#include "backend/cuda/error.h"
#include "backend/cuda/kernel_lists.h"
#include "backend/cuda/runtime.h"
#include "ops/device.h"
#include "ops/ops.h"

namespace epilogue::cuda {
namespace {

const char* decline_cross_entropy_types(const Tensor& self, const Tensor& weight) {
  const bool takes_weight = !weight.defined() || has_float_type(weight.dtype());
  return has_float_type(self.dtype()) && takes_weight ? nullptr : kNeedsFloatType;
}
const char* decline_cross_entropy(const Call& call) {
  return decline_cross_entropy_types(call.in[0], call.in[2]);
}
const char* decline_cross_entropy_backward(const Call& call) {
  for (const size_t f32_input : {4, 5})
    if (call.in[f32_input].dtype() != DType::f32 || !call.in[f32_input].is_contiguous())
      return "needs the f32 statistics of the forward kernel";
  return has_float_type(call.in[0].dtype()) ? decline_cross_entropy_types(call.in[1], call.in[3])
                                            : kNeedsFloatType;
}

// What both directions share. `weight` is contiguous.
CrossEntropyCall make_call(const Call& call, const Tensor& self, const Tensor& target,
                           const Tensor& weight) {
  CrossEntropyCall c;
  set_classes(c, call, self, target, weight);
  const auto smoothing = call.attr<double>(2);
  c.kept = static_cast<float>(1 - smoothing);
  c.spread = c.classes == 0 ? 0 : static_cast<float>(smoothing / static_cast<double>(c.classes));
  return c;
}

void run_cross_entropy(const Call& call) {
  const Tensor weight = dense(call.in[2]);
  CrossEntropyCall c = make_call(call, call.in[0], call.in[1], weight);
  // Freed at once: whoever gets the memory next writes it later in the stream.
  const Tensor losses = empty({c.n}, DType::f32, kDevice);
  c.losses = static_cast<float*>(losses.data());
  c.stats = static_cast<float*>(call.out[1].data());
  c.total_weight = static_cast<float*>(call.out[2].data());
  check(launch_cross_entropy(c, Runtime::get().stream()), "cross_entropy");
}

void run_cross_entropy_backward(const Call& call) {
  const Tensor weight = dense(call.in[3]);
  CrossEntropyCall c = make_call(call, call.in[1], call.in[2], weight);
  set_gradient(c, call.in[0]);
  c.stats = static_cast<float*>(call.in[4].data());
  c.total_weight = static_cast<float*>(call.in[5].data());
  check(launch_cross_entropy_backward(c, Runtime::get().stream()), "cross_entropy_backward");
}

}  // namespace

std::span<const KernelList> cross_entropy_lists() {
  static const KernelList kLists[] = {
      {&kCrossEntropyForward, kOnly<"cross_entropy", decline_cross_entropy, run_cross_entropy, 0>},
      {&kCrossEntropyBackward, kOnly<"cross_entropy_backward", decline_cross_entropy_backward,
                                     run_cross_entropy_backward, 1>}};
  return kLists;
}

}  // namespace epilogue::cuda
