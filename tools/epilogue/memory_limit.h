// SPDX-License-Identifier: Apache-2.0
// Sizes that no machine has, and sizes that this one has not.
#pragma once

#include <string>

#include "epilogue/dtype.h"

namespace epilogue::tool {

// Bytes that this process may use: the machine's memory, or less where its control group says so.
double memory_limit_bytes();

// Throws Error, naming `flags`, where tensors of so many elements, all of which are needed at once,
// do not fit. The count is a double, which no sizes overflow.
void require_memory(const std::string& flags, double elements, DType dtype);

}  // namespace epilogue::tool
