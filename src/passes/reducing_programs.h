// SPDX-License-Identifier: Apache-2.0
// Ops that reduce rows or columns, as programs: sums, means, softmax, norms and their gradients.
#pragma once

#include <optional>
#include <string>

#include "passes/program_builder.h"

namespace epilogue::passes {

// program_of(), and of ops that reduce over the last dimension or sum over all others. The results
// are those that the op was asked for.
std::optional<BoundProgram> any_program_of(const graph::Graph& graph, const graph::Node& node,
                                           std::string& reason);

// Whether every output of the program has the sizes of the value that it is: those of the program's
// elements, one number per row or one per column.
bool fits(const graph::Graph& graph, const BoundProgram& bound);

// The eps of a norm, which has a default of its own.
double norm_eps(const graph::Graph& graph, const graph::OpCall& call);

}  // namespace epilogue::passes
