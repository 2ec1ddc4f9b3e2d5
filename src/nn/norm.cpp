// SPDX-License-Identifier: Apache-2.0
// LayerNorm and RMSNorm.
#include "epilogue/nn.h"
#include "ops/norms.h"

namespace epilogue::nn {
namespace {

// Before the parameters are made.
Dims checked_shape(const char* name, const Dims& shape, double eps) {
  if (shape.rank() == 0)
    throw Error(std::string("[") + name + "] expected a shape of one dimension or more, got []");
  if (!is_norm_eps(eps))
    throw Error(std::string("[") + name + "] expected a finite eps >= 0, got " +
                std::to_string(eps));
  return shape;
}

}  // namespace

LayerNorm::LayerNorm(Dims shape, double eps, bool affine)
    : Module("LayerNorm"), shape_(checked_shape("LayerNorm", shape, eps)), eps_(eps) {
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
    : Module("RMSNorm"), shape_(checked_shape("RMSNorm", shape, eps.value_or(0))), eps_(eps) {
  if (affine) weight = ones(shape);
  register_parameter("weight", weight);
}

Tensor RMSNorm::forward(const Tensor& x) const { return rms_norm(x, shape_, weight, eps_); }

}  // namespace epilogue::nn
