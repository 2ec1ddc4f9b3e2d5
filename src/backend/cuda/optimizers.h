// SPDX-License-Identifier: Apache-2.0
// What the optimizers' kernels are told of a call. Reads no device memory.
#pragma once

#include "backend/cuda/kernels/lists.h"
#include "core/op.h"

namespace epilogue::cuda {

// Of aten::_fused_adam_, or (decoupled) aten::_fused_adamw_.
AdamStep adam_step(const Call& call, bool decoupled);
// Of aten::_fused_sgd_.
SgdStep sgd_step(const Call& call);

}  // namespace epilogue::cuda
