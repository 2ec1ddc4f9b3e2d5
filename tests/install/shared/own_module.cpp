// SPDX-License-Identifier: Apache-2.0
// A user with a module of their own: several inputs, a mode, an attribute; compiled.
#include <epilogue/epilogue.h>

using namespace epilogue;

struct Gate : nn::Module {
  Gate() : Module("Gate") { register_module("proj", proj); }
  Tensor forward(const Tensor& x, const Tensor& gate) const {
    return proj(x) * sigmoid(gate) * scale;
  }
  nn::Linear proj{8, 4};
  double scale = 1;
};

int main() {
  const NoGrad inference;
  Gate gate;
  const Compiled fast = compile(gate);
  const Tensor x = randn({3, 8});
  const Tensor g = randn({3, 4});
  const auto same = [&] {
    const std::vector<double> a = fast(x, g).to_vector();
    const std::vector<double> b = gate.forward(x, g).to_vector();
    for (size_t i = 0; i < a.size(); ++i)
      if (std::abs(a[i] - b[i]) > 1e-5) return false;
    return true;
  };
  const bool first = same();
  gate.scale = 2;
  gate.proj.weight = ones({4, 8});
  return first && same() ? 0 : 1;
}
