// SPDX-License-Identifier: Apache-2.0
// From an op's recorded arguments to the trace's Input Dims, types and Concrete Inputs.
#pragma once

#include <string_view>
#include <vector>

#include "epilogue/trace/event.h"
#include "profile/recorder.h"

namespace epilogue::profiler {

// One argument of an ATen schema such as "(Tensor self, Tensor mat2, *, Scalar alpha=1)".
enum class ArgKind { tensor, tensor_list, other };
std::vector<ArgKind> schema_args(std::string_view schema);

// In the order of the schema, as PyTorch writes them.
std::vector<trace::OpInput> trace_inputs(const OpDef& op, const OpInputs& inputs);

}  // namespace epilogue::profiler
