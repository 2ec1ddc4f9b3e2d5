// SPDX-License-Identifier: Apache-2.0
// Pointwise programs on the CPU, as kernels of their own.
#pragma once

#include <memory>

#include "core/program_kernel.h"

namespace epilogue::cpu {

// Throws Error as verify() does.
std::unique_ptr<ProgramKernel> make_program(const PointwiseProgram& program);

}  // namespace epilogue::cpu
