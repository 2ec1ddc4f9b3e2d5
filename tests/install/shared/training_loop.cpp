// SPDX-License-Identifier: Apache-2.0
// A training loop: forward, backward, optimizer, eager and compiled.
#include <epilogue/epilogue.h>

int main() {
  using namespace epilogue;
  manual_seed(1);
  nn::MLP mlp(4, 16);
  const Tensor x = randn({32, 4});
  const Tensor target = x * 0.5;
  optim::AdamW optimizer(mlp.parameters(), {.lr = 1e-2});
  CompiledStep step =
      compile_step(mlp, [](const Tensor& y, const Tensor& t) { return mse_loss(y, t); });
  const double before = mse_loss(mlp(x), target).item();
  for (int i = 0; i < 50; ++i) {
    mse_loss(mlp(x), target).backward();
    optimizer.step();
    optimizer.zero_grad();
  }
  const double half = mse_loss(mlp(x), target).item();
  for (int i = 0; i < 50; ++i) step.train(x, target, [&] { optimizer.step(); });
  const double after = mse_loss(mlp(x), target).item();
  return half < before && after < half ? 0 : 1;
}
