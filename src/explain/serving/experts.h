// SPDX-License-Identifier: Apache-2.0
// How uneven the tokens of experts are, where the rows of products tell it.
#pragma once

#include <vector>

#include "epilogue/trace/serving.h"

namespace epilogue::trace {

// Of layers within the steps, which are sorted by start. A layer counts if its router says how many
// experts there are and how many each token takes, and the rows of the experts' products add up to
// that many tokens.
std::vector<ExpertImbalance> expert_imbalance(const Trace& trace, const Links& links,
                                              const std::vector<ServingStep>& steps);

}  // namespace epilogue::trace
