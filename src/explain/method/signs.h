// SPDX-License-Identifier: Apache-2.0
// Signs of misuse (OpSign), recognised by the shapes, the arguments and the neighbours of calls.
#pragma once

#include <optional>
#include <span>

#include "explain/knowledge/op_knowledge.h"
#include "explain/method/counted_ops.h"

namespace epilogue::trace {

// An answer that shows a loss, if calls that take half of the time of `calls` (positions in `all`,
// by start) have the sign. Its action is empty where the row's remedy says it.
std::optional<CostAnswer> answer_of_sign(OpSign sign, const CountedOps& all,
                                         std::span<const uint32_t> calls);
// The same, of signs that belong to no row: kernels of many taps, products of rows that were
// gathered from far fewer, factorisations of a diagonal matrix.
std::optional<CostAnswer> answer_of_shapes(const CountedOps& all, std::span<const uint32_t> calls);

}  // namespace epilogue::trace
