// SPDX-License-Identifier: Apache-2.0
// A user of the installed engine: a layer over its own memory, a gradient, a profile.
#include <epilogue/epilogue.h>

#include <cstdio>
#include <vector>

int main() {
  using namespace epilogue;
  std::vector<float> input(4 * 8, 0.5F);
  const Tensor x = Tensor::from_blob(input.data(), {4, 8});
  nn::Linear linear(8, 2);

  profiler::Profile prof;
  prof.start();
  const Tensor y = linear(x);
  sum(y).backward();
  prof.stop();

  const std::string table = trace::format_table(prof.key_averages());
  const bool listed = table.find("aten::linear") != std::string::npos;
  const Tensor grad = linear.weight.grad();
  const bool right = grad.defined() && grad.to_vector() == std::vector<double>(16, 2.0);
  std::printf("linear listed: %d, gradient right: %d\n", listed, right);
  return listed && right ? 0 : 1;
}
