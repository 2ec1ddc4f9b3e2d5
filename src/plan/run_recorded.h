// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "plan/compiled_entry.h"

namespace epilogue::plan {

// Runs the forward pass of an entry whose backward pass runs later, and makes the result one node
// of the autograd graph ("CompiledBackward0").
Tensor run_recorded(const Entry& entry, std::span<const Tensor> in);

}  // namespace epilogue::plan
