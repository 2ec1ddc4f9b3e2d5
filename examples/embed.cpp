// SPDX-License-Identifier: Apache-2.0
// Embedding: run an MLP on memory that the program owns, without copies.
#include <cstdio>
#include <vector>

#include "epilogue/autograd.h"
#include "epilogue/nn.h"
#include "epilogue/runtime.h"

int main() {
  using namespace epilogue;
  std::vector<float> image(784, 0.5F);  // the caller's buffer
  bool released = false;
  {
    const Tensor x =
        Tensor::from_blob(image.data(), {1, 784}, DType::f32, [&](void*) { released = true; });
    nn::MLP classifier(784, 128, 1, nn::Activation::relu);
    const NoGrad inference;
    const Tensor y = classifier(x);
    std::printf("epilogue %s, %s, %d threads: %s\n", version().data(), active_isa_name().c_str(),
                num_threads(), to_string(y).c_str());
    if (x.data() != image.data()) return 1;
  }
  return released ? 0 : 1;
}
