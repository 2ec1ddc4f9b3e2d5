// SPDX-License-Identifier: Apache-2.0
// Modules: a GeGLU MLP, its parameters by name, and a module of one's own.
#include <cstdio>

#include "epilogue/autograd.h"
#include "epilogue/nn.h"

using namespace epilogue;

// Two MLPs and a residual: whatever is registered has named parameters, a dtype and a training
// mode.
struct TwoBlocks : nn::Module {
  TwoBlocks() : Module("TwoBlocks"), first(64, 256), second(64, 256) {
    register_module("first", first);
    register_module("second", second);
  }
  Tensor forward(const Tensor& x) const override { return add(x, second(first(x))); }
  nn::GatedMLP first;  // down_proj(gelu(gate_proj(x)) * up_proj(x))
  nn::GatedMLP second;
};

int main() {
  manual_seed(0);
  TwoBlocks model;
  model.to(DType::bf16);
  for (const auto& [name, tensor] : model.named_parameters())
    std::printf("%-24s %s\n", name.c_str(), to_string(tensor.sizes()).c_str());
  const NoGrad inference;
  const Tensor y = model(randn({8, 64}, DType::bf16));
  std::printf("%lld parameters; y is %s of %s\n", static_cast<long long>(model.num_parameters()),
              to_string(y.sizes()).c_str(), std::string(dtype_name(y.dtype())).c_str());
  return model.num_parameters() == 2 * 3 * 64 * 256 ? 0 : 1;
}
