// SPDX-License-Identifier: Apache-2.0
// What the losses over classes share: their arguments as kernels take them.
#pragma once

#include "backend/cuda/kernels/kernels.h"
#include "ops/losses/losses.h"

namespace epilogue::cuda {

// `weight` is contiguous or undefined; it must outlive the call, as the others do.
inline void set_classes(ClassCall& c, const Call& call, const Tensor& self, const Tensor& target,
                        const Tensor& weight) {
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
}

// One gradient, or one per row.
inline void set_gradient(ClassCall& c, const Tensor& grad) {
  c.grad = grad.data();
  c.grad_dtype = grad.dtype();
  c.grad_stride = grad.dim() == 1 ? grad.strides()[0] : 0;
}

}  // namespace epilogue::cuda
