// SPDX-License-Identifier: Apache-2.0
// Which source the kernels that findings name come from.
#pragma once

#include <span>

#include "epilogue/trace/explain.h"

namespace epilogue::trace {

// Adds to each finding the recorded sources of the kernels that it names.
void name_sources(std::span<const TritonKernel> kernels, std::span<Finding> findings);

}  // namespace epilogue::trace
