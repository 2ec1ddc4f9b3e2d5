// SPDX-License-Identifier: Apache-2.0
// Pointwise programs as kernels of their own.
#pragma once

#include <memory>

#include "core/pointwise_program.h"
#include "core/program_kernel.h"

namespace epilogue::cuda {

std::unique_ptr<ProgramKernel> make_program(const PointwiseProgram& program);

}  // namespace epilogue::cuda
