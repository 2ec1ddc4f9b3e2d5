// SPDX-License-Identifier: Apache-2.0
// Gradients: y = sum(x^2) has the gradient 2 x; gradcheck compares any function with differences.
#include <cmath>
#include <cstdio>

#include "epilogue/autograd.h"
#include "epilogue/ops.h"

int main() {
  using namespace epilogue;
  manual_seed(0);
  Tensor x = randn({3}, DType::f64);
  x.set_requires_grad(true);
  const Tensor y = sum(mul(x, x));  // ops on x leave nodes behind
  y.backward();                     // which are walked from the last to the first
  const std::vector<double> at = x.to_vector();
  const std::vector<double> slope = x.grad().to_vector();
  for (size_t i = 0; i < at.size(); ++i)
    std::printf("x = %7.4f   dy/dx = %7.4f\n", at[i], slope[i]);

  const Tensor inputs[] = {x};
  const GradcheckResult check = gradcheck(
      [](std::span<const Tensor> in) { return std::vector<Tensor>{gelu(in[0], Gelu::tanh)}; },
      inputs);
  std::printf("gelu against finite differences: %s\n", check.ok ? "equal" : check.message.c_str());
  return check.ok && std::abs(slope[0] - 2 * at[0]) < 1e-12 ? 0 : 1;
}
