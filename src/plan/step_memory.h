// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "epilogue/compile_step.h"
#include "plan/compiled_entry.h"

namespace epilogue::plan {

// Plans the step's memory anew for everything that it could save.
StepMemory step_memory(const Entry& entry, const CompileOptions& options);

}  // namespace epilogue::plan
