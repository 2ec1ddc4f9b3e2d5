// SPDX-License-Identifier: Apache-2.0
// Kernels that are called by name serve inference alone.
#pragma once

#include "core/observer.h"
#include "epilogue/tensor.h"

namespace epilogue::nn {

// Fails while a function is being compiled, and where gradients are on and a tensor requires one.
// fail(expected, got) throws; wants_gradient() is asked only where gradients are on.
template <class Fail, class WantsGradient>
void require_inference(const Fail& fail, const WantsGradient& wants_gradient) {
  if (thread_state().capture != nullptr)
    fail("a function that is compiled to call ops, not fused kernels",
         "a call while it is being compiled");
  if (thread_state().grad_enabled && wants_gradient())
    fail("no_grad: there is no backward pass", "a tensor that requires a gradient");
}

inline bool wants_gradient(const Tensor& t) { return t.defined() && t.requires_grad(); }

}  // namespace epilogue::nn
