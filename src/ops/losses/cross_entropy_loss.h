// SPDX-License-Identifier: Apache-2.0
// The fused cross entropy's arithmetic per row, shared by reference and kernels.
//
// With z the logits, lp = log(softmax(z)), t the class, w the class weights, e the smoothing, C the
// number of classes and W the sum of the weights:
//   loss   = -(1 - e) w[t] lp[t] - (e / C) sum_c w[c] lp[c]
//   dz[c]  = ((1 - e) w[t] + (e / C) W) softmax(z)[c] - (e / C) w[c] - (1 - e) w[t] [c == t]
// and 0 where t is ignored. A mean divides by the sum of w[t] over what is not ignored.
#pragma once

#include "core/element.h"
#include "ops/losses/losses.h"

namespace epilogue {

struct CrossEntropyRows {
  Reduction reduction;
  int64_t ignore_index;
  double kept;    // 1 - e
  double spread;  // e / C
  int64_t classes;
  double weight_sum;  // W
  const OpDef& op;
  const Tensor& target;
  const Tensor& weight;

  CrossEntropyRows(const Call& call, const Tensor& self, const Tensor& targets,
                   const Tensor& weights)
      : reduction(reduction_of(call, 0)),
        ignore_index(call.attr<int64_t>(1)),
        kept(1 - call.attr<double>(2)),
        classes(self.size(-1)),
        op(call.op),
        target(targets),
        weight(weights) {
    spread = classes == 0 ? 0 : call.attr<double>(2) / static_cast<double>(classes);
    weight_sum = static_cast<double>(classes);
    if (!weight.defined()) return;
    weight_sum = 0;
    for (int64_t c = 0; c < classes; ++c) weight_sum += weight_of(c);
  }

  // The class of a row, or kIgnored.
  int64_t class_at(int64_t row) const {
    const int64_t stride = target.dim() == 0 ? 0 : target.strides()[0];
    return class_of(op, target.data_as<int64_t>()[row * stride], ignore_index, classes);
  }
  double weight_of(int64_t c) const {
    return weight.defined() ? load_element(weight.dtype(), weight.data(), c * weight.strides()[0])
                            : 1;
  }
};

}  // namespace epilogue
