// SPDX-License-Identifier: Apache-2.0
// Ops of a device that has no kernel for them.
#pragma once

#include "core/op.h"

namespace epilogue {

// The tensor whose device an op runs on: the first one, but a number as argument lies on the host
// and goes with tensors of every device. Null where none is defined.
inline const Tensor* placed_tensor(std::span<const Tensor> in) {
  const Tensor* number = nullptr;
  for (const Tensor& t : in) {
    if (!t.defined()) continue;
    if (!t.impl()->is_wrapped_number) return &t;
    if (number == nullptr) number = &t;
  }
  return number;
}

// The tensor itself (or an undefined one), or a contiguous copy on its device.
Tensor dense(const Tensor& t);

// Runs the call with the host's kernels: inputs are copied to the host, results back. Slow and
// right; traces show it as "epi_host_...". The op of strided copies (aten::copy_) must have a
// kernel.
void run_on_host(const Call& call);

// The host's kernel (or the reference) for a call whose tensors are the host's. (run_op.cpp)
void run_kernel_on_host(const Call& call);

}  // namespace epilogue
