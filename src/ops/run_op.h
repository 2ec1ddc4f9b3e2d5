// SPDX-License-Identifier: Apache-2.0
// run_op: the one place where ops run.
#pragma once

#include <initializer_list>
#include <span>
#include <string>

#include "core/observer.h"
#include "core/op.h"

namespace epilogue {

// Infers the results, allocates them, runs the first kernel that does not decline (the op's
// reference is the last resort) and tells the observers. Ops with no elements to write launch
// nothing. Thread-safe. Throws Error on misuse.
Outputs run_op(const OpDef& op, std::span<const Tensor> in, std::span<const Attr> attrs = {});

// The first result.
Tensor run_op(const OpDef& op, std::initializer_list<Tensor> in,
              std::initializer_list<Attr> attrs = {});

// Which kernel would run, and why the better ones would not: one line per kernel.
std::string explain_kernels(const OpDef& op, std::span<const Tensor> in,
                            std::span<const Attr> attrs = {});

}  // namespace epilogue
