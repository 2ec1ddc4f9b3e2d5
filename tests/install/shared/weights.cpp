// SPDX-License-Identifier: Apache-2.0
// A user who owns weights, updates them from outside, and lends them to a fused kernel.
#include <epilogue/epilogue.h>

#include <vector>

int main() {
  using namespace epilogue;
  const NoGrad inference;
  std::vector<float> stored(16 * 32, 0.25F);  // [in, out], as GPT-2 has it
  const Tensor conv = Tensor::from_blob(stored.data(), {16, 32});
  const Tensor weights[] = {transpose(conv, 0, 1)};
  const int64_t before = memory_stats().packed_bytes;
  {
    const FusedMlp layer = FusedMlp::plain(weights, {}, nn::Activation::relu);
    const Tensor x = ones({2, 16});
    if (layer(x).to_vector() != std::vector<double>(64, 4.0)) return 1;
    for (float& w : stored) w = 0.5F;
    conv.increment_version();
    if (layer(x).to_vector() != std::vector<double>(64, 8.0)) return 2;
    if (memory_stats().packed_bytes == before) return 3;
  }
  return memory_stats().packed_bytes == before ? 0 : 4;
}
