// SPDX-License-Identifier: Apache-2.0
// What stands between the products of an MLP, forward and backward, each in one pass over memory.
// For callers that train and make the products themselves: epilogue.torch.
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

}  // namespace epilogue

#pragma GCC visibility pop
