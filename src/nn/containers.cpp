// SPDX-License-Identifier: Apache-2.0
// Modules made of modules that they do not know: Sequential and Block.
#include "epilogue/nn.h"

namespace epilogue::nn {

Sequential::Sequential(std::initializer_list<Layer> layers) : Module("Sequential") {
  for (const Layer& layer : layers) add(layer);
}

void Sequential::add(Layer layer) {
  if (layer.module_ == nullptr) throw Error("[Sequential] expected a layer, got null");
  register_child(std::to_string(layers_.size()), *layer.module_, layer.bytes_);
  layers_.push_back(std::move(layer.module_));
}

Tensor Sequential::forward(const Tensor& x) const {
  Tensor y = x;
  for (const auto& layer : layers_) y = (*layer)(y);
  return y;
}

Block::Block(int64_t dim, Norm norm, std::shared_ptr<Module> mlp, bool residual)
    : Module("Block"), mlp_(std::move(mlp)), residual_(residual) {
  if (mlp_ == nullptr) throw Error("[Block] expected a module, got null");
  if (norm == Norm::rms) norm_ = std::make_unique<RMSNorm>(Dims{dim});
  if (norm == Norm::layer) norm_ = std::make_unique<LayerNorm>(Dims{dim});
  if (norm_ != nullptr) register_module("norm", *norm_);
  register_module("mlp", *mlp_);
}

Tensor Block::forward(const Tensor& x) const {
  const Tensor y = (*mlp_)(norm_ != nullptr ? (*norm_)(x) : x);
  return residual_ ? x + y : y;
}

}  // namespace epilogue::nn
