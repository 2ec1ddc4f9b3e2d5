// SPDX-License-Identifier: Apache-2.0
// What stands between the products of an MLP, forward and backward, each in one pass over memory,
// and these products. For callers that train and hold the results' memory: epilogue.torch.
#pragma once

#include <string_view>

#include "epilogue/tensor.h"

#pragma GCC visibility push(default)

namespace epilogue {

// Tensors are contiguous, on the host, of one size, and all f32, bf16 or f16. `up` is undefined in
// an MLP without a gate. Arithmetic is in f32, and each result is rounded once. Results lie apart
// from each other and from what is read. Throw Error where this does not hold, or on an activation
// other than "silu", "relu", "gelu", "gelu_tanh", "quick_gelu" (x sigmoid(1.702 x)) and
// "squared_relu" (relu(x)^2). No gradient is recorded.

// out = act(gate) * up
void mlp_hidden_into(std::string_view activation, const Tensor& gate, const Tensor& up,
                     const Tensor& out);

// Each may be undefined: it is not wanted. `up` is undefined without a gate.
struct MlpGradients {
  Tensor hidden = {};  // act(gate) * up once more, which the last weight's gradient reads
  Tensor gate = {};    // d_hidden * up * act'(gate)
  Tensor up = {};      // d_hidden * act(gate)
};
void mlp_gradients_into(std::string_view activation, const Tensor& d_hidden, const Tensor& gate,
                        const Tensor& up, const MlpGradients& out);

// out = a b, + `added` where it is defined. Matrices on the host: a [m, k], b [k, n], any strides,
// of one dtype, f32, bf16 or f16; `added`, of any of these, broadcasts to [m, n] and may be `out`
// itself; out's columns are contiguous, its rows apart. Sums are f32, each result is rounded once.
// Throws Error where this does not hold. No gradient is recorded.
void product_into(const Tensor& a, const Tensor& b, const Tensor& added, const Tensor& out);

// The two together: of products of bf16 on tiles what follows is made of the f32 sums, a block at a
// time beside the next one's products, elsewhere by the functions above. Throw what they throw.
//
// out = a b + added, which is up, or the gate where `gate` is undefined; hidden = act(gate) * up
void product_hidden_into(std::string_view activation, const Tensor& a, const Tensor& b,
                         const Tensor& added, const Tensor& gate, const Tensor& out,
                         const Tensor& hidden);
// d_hidden = a b, which is not kept
void product_gradients_into(std::string_view activation, const Tensor& a, const Tensor& b,
                            const Tensor& gate, const Tensor& up, const MlpGradients& out);

}  // namespace epilogue

#pragma GCC visibility pop
