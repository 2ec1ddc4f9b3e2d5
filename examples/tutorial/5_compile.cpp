// SPDX-License-Identifier: Apache-2.0
// Fusing: compile() finds the fusions by itself and says what it did.
#include <chrono>
#include <cstdio>

#include "epilogue/autograd.h"
#include "epilogue/compile.h"
#include "epilogue/nn.h"

using namespace epilogue;

// The fastest of some calls, in microseconds.
template <class F>
double fastest_us(F&& f) {
  double best = 1e30;
  for (int i = 0; i < 30; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    f();
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
    best = std::min(best, took.count());
  }
  return best;
}

int main() {
  manual_seed(0);
  const auto mlp =
      nn::make_mlp({.dim = 64, .hidden = 256, .norm = nn::Norm::rms, .residual = true});
  const Tensor x = randn({64, 64});
  const NoGrad inference;
  Compiled fast = compile(*mlp);
  const Tensor expected = (*mlp)(x);
  const Tensor got = fast(x);  // the first call captures, fuses and plans
  const double distance = sum(mul(sub(got, expected), sub(got, expected))).item();
  std::printf("%s\n", fast.explain().c_str());
  std::printf("eager %.1f us, compiled %.1f us; squared distance of the results %.1e\n",
              fastest_us([&] { (*mlp)(x); }), fastest_us([&] { fast(x); }), distance);
  return fast.stats().kernels == 1 && distance < 1e-8 ? 0 : 1;
}
