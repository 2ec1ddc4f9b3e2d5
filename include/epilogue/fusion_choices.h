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

// Fewer bits, where a fused kernel of inference may hold weights (and rows) rounded. The weights
// themselves stay as they are; what the kernel packs of them is rounded. All choices but the
// default change results.
//
// int8: one scale per output channel, its largest magnitude / 127. int4: one bf16 scale per output
// channel and group of inputs, the one of some that leaves the least squared error; values are
// steps of -8 to 7, or with zero_points 0 to 15 less a step of their own.
enum class WeightBits : uint8_t { same, int8, int4 };
// int8: each row becomes integers times its largest magnitude / 127 before each product, whose sums
// (of each group with WeightBits::int4, of more than 8 rows) are exact. Not with WeightBits::same.
enum class ActivationBits : uint8_t { same, int8 };

struct Quantisation {
  WeightBits weights = WeightBits::same;
  ActivationBits activations = ActivationBits::same;
  int group = 128;           // of int4: 32 or 128
  bool zero_points = false;  // of int4
  bool operator==(const Quantisation&) const = default;
};

}  // namespace epilogue

#pragma GCC visibility pop
