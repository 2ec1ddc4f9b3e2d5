// SPDX-License-Identifier: Apache-2.0
// The workload train-step: one step of training an MLP towards a fixed random target.
#pragma once

#include "tools/epilogue/profile/workload.h"

namespace epilogue::tool {

// --optimizer, --amp and --accumulate; the default dtype becomes f32.
void add_train_step_flags(CLI::App& app, WorkloadOptions& options);

// zero_grad, forward and mean squared error of each micro-batch, backward, optimizer step. The
// batch is cut into --accumulate micro-batches; --amp runs forward and loss under autocast, f16
// with a GradScaler. Throws Error on misuse.
Workload make_train_step(const WorkloadOptions& options, DType dtype);

}  // namespace epilogue::tool
