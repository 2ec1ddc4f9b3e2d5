// SPDX-License-Identifier: Apache-2.0
// Ops that a kernel of PyTorch's own does in one go.
#pragma once

#include <vector>

#include "epilogue/trace/fusion.h"
#include "explain/fusion/work_ops.h"

namespace epilogue::trace {

// By saving. The ops of optimizers are taken out of further fusion: their remedy is another one.
std::vector<Pattern> find_patterns(const Trace& trace, WorkOps& work);

}  // namespace epilogue::trace
