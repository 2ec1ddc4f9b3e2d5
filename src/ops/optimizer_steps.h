// SPDX-License-Identifier: Apache-2.0
// Arguments of the optimizers' ops, by name: shared by their references and kernels.
#pragma once

#include "core/element.h"
#include "ops/list_call.h"
#include "ops/optimizer_lists.h"

namespace epilogue {

// aten::_fused_adam_ and aten::_fused_adamw_.
struct AdamAttrs {
  double lr, beta1, beta2, weight_decay, eps;
  bool amsgrad, maximize;
  double clip_coefficient;

  explicit AdamAttrs(const Call& call)
      : lr(call.attr<double>(0)),
        beta1(call.attr<double>(1)),
        beta2(call.attr<double>(2)),
        weight_decay(call.attr<double>(3)),
        eps(call.attr<double>(4)),
        amsgrad(call.attr<bool>(5)),
        maximize(call.attr<bool>(6)),
        clip_coefficient(call.attr<double>(7)) {}
};

// aten::_fused_sgd_.
struct SgdAttrs {
  double weight_decay, momentum, lr, dampening;
  bool nesterov, maximize, is_first_step;
  double clip_coefficient;

  explicit SgdAttrs(const Call& call)
      : weight_decay(call.attr<double>(0)),
        momentum(call.attr<double>(1)),
        lr(call.attr<double>(2)),
        dampening(call.attr<double>(3)),
        nesterov(call.attr<bool>(4)),
        maximize(call.attr<bool>(5)),
        is_first_step(call.attr<bool>(6)),
        clip_coefficient(call.attr<double>(7)) {}
};

// The dtype of the first copy; f32 where there is none.
inline DType copy_dtype(const ListCall& lists, size_t copies) {
  for (size_t i = 0; i < lists.size(); ++i)
    if (lists.at(copies, i).defined()) return lists.at(copies, i).dtype();
  return DType::f32;
}

// The two singles of these ops: grad_scale and found_inf, both 0-dim f32 or absent. They are read
// here, so these are for tensors of the host.
inline bool found_inf(const Call& call) {
  const Tensor& t = call.in[call.in.size() - 1];
  return t.defined() && load_element(t.dtype(), t.data(), 0) != 0;
}
// The factor that a gradient is multiplied by first. The scale's inverse is rounded to f32, as
// GradScaler does.
inline double inverse_grad_scale(const Call& call) {
  const Tensor& t = call.in[call.in.size() - 2];
  if (!t.defined()) return 1;
  return static_cast<double>(static_cast<float>(1 / load_element(t.dtype(), t.data(), 0)));
}

}  // namespace epilogue
