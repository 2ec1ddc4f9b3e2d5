// SPDX-License-Identifier: Apache-2.0
// Work and traffic of an op that is no matrix product, from its name and inputs.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "epilogue/trace/gemms.h"

namespace epilogue::trace {

struct OpProblem {
  RooflineKind kind = RooflineKind::elementwise;
  std::optional<double> flops;  // empty: no count is agreed on (backward passes of norms)
  double bytes = 0;             // every tensor that the op reads or writes, once
};

// Empty if the op is none of these kinds, or its shapes were not recorded or do not fit.
std::optional<OpProblem> op_problem(std::string_view op, std::span<const OpInput> inputs);

// True for kinds whose kernels are often launched by ops further in (aten::_flash_attention_forward
// within aten::_scaled_dot_product_flash_attention).
bool owns_inner_kernels(RooflineKind kind);

}  // namespace epilogue::trace
