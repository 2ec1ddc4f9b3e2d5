// SPDX-License-Identifier: Apache-2.0
// Autograd: fit y = 3x - 2 with gradients and a hand-written step.
#include <cmath>
#include <cstdio>

#include "epilogue/autograd.h"
#include "epilogue/nn.h"

int main() {
  using namespace epilogue;
  manual_seed(0);
  nn::Linear layer(1, 1);
  const Tensor x = uniform({64, 1}, -1, 1);
  const Tensor target = x * 3.0 - 2.0;
  double loss_value = 0;
  for (int step = 0; step < 200; ++step) {
    const Tensor loss = mse_loss(layer(x), target);
    loss.backward();
    loss_value = loss.item();
    const NoGrad update;
    for (const Tensor& p : layer.parameters()) add_(p, p.grad(), -0.1);
    layer.zero_grad();
  }
  std::printf("y = %.3f x + %.3f, loss %.2g\n", layer.weight.item(), layer.bias.item(), loss_value);
  return std::abs(layer.weight.item() - 3) < 1e-2 && std::abs(layer.bias.item() + 2) < 1e-2 ? 0 : 1;
}
