// SPDX-License-Identifier: Apache-2.0
// Backend: where kernels come from. Core declares it; backend/* defines it.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "core/op.h"
#include "core/program_kernel.h"
#include "core/row_chain.h"

namespace epilogue {

class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string_view name() const = 0;
  // Kernels of an op, best first; empty where only the reference exists. The span and what it
  // names live as long as the process.
  virtual const std::span<const Kernel>& kernels(const OpDef& op) const = 0;
  // Fused kernels. Both throw Error where the backend has none for the shapes or dtypes.
  virtual std::unique_ptr<RowChain> make_row_chain(const RowChainSpec& spec) const = 0;
  virtual std::unique_ptr<ProgramKernel> make_program(const PointwiseProgram& program) const = 0;
};

// Defined in backend/cpu.
Backend& cpu_backend();
// Defined in backend/cuda or backend/no_cuda: nullptr where there is none, with the reason.
Backend* cuda_backend();
std::string cuda_status();

}  // namespace epilogue
