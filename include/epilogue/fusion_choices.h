// SPDX-License-Identifier: Apache-2.0
// Choices that the public API, the passes and the kernels all name.
#pragma once

#include <cstdint>

#pragma GCC visibility push(default)

namespace epilogue {

// What a forward pass keeps for its backward pass. automatic: what is cheaper to keep than to
// compute again, by a cost model. save: all that the backward pass reads. recompute: as little as
// possible; products run again where the rows that they read are there anyway.
enum class Saved : uint8_t { automatic, save, recompute };

// Which products run on packed weights, where what follows can join them. A weight that was written
// since the last call is packed anew. automatic: all; in training, where each step writes the
// weights, those with rows enough to gain by it. never: as eager runs them.
enum class Packed : uint8_t { automatic, always, never };

// What normalises rows before an MLP.
enum class Norm : uint8_t { none, rms, layer };

// How an RMS norm's weight w meets the normalised row n, where x is bf16 or f16 (in f32 `product`
// and `rounded` are the same).
enum class NormWeight : uint8_t {
  product,   // n w in f32, then rounded: torch.nn.RMSNorm
  rounded,   // n is rounded before the product: Llama's and Qwen's
  one_plus,  // n (1 + w) in f32, then rounded: Gemma's
};

}  // namespace epilogue

#pragma GCC visibility pop
