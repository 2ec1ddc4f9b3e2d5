// SPDX-License-Identifier: Apache-2.0
// Where each input of aten::cat lands in the result: shared by its reference and its kernels.
#pragma once

#include "core/op.h"
#include "core/tensor_impl.h"
#include "ops/shape.h"

namespace epilogue {

// Calls body(part of the result, input) for every input with elements.
template <class Body>
void for_each_cat_part(const Call& call, Body&& body) {
  const Tensor& out = call.out[0];
  const int dim = named_dim(call, out.dim());
  int64_t start = 0;
  for (const Tensor& t : call.in) {
    if (t.numel() == 0) continue;
    body(detail::make_view(out, t.sizes(), out.strides(), start * out.strides()[dim]), t);
    start += t.sizes()[dim];
  }
}

}  // namespace epilogue
