// SPDX-License-Identifier: Apache-2.0
// LayerNorm and RMSNorm.
#include "epilogue/nn.h"

namespace epilogue::nn {

LayerNorm::LayerNorm(Dims shape, double eps, bool affine)
    : Module("LayerNorm"), shape_(shape), eps_(eps) {
  if (affine) {
    weight = ones(shape);
    bias = zeros(shape);
  }
  register_parameter("weight", weight);
  register_parameter("bias", bias);
}

Tensor LayerNorm::forward(const Tensor& x) const {
  return layer_norm(x, shape_, weight, bias, eps_);
}

RMSNorm::RMSNorm(Dims shape, std::optional<double> eps, bool affine)
    : Module("RMSNorm"), shape_(shape), eps_(eps) {
  if (affine) weight = ones(shape);
  register_parameter("weight", weight);
}

Tensor RMSNorm::forward(const Tensor& x) const { return rms_norm(x, shape_, weight, eps_); }

}  // namespace epilogue::nn
