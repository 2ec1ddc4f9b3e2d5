// SPDX-License-Identifier: Apache-2.0
// Ops that compile() would run depth first: products with parameters, and the norms and pointwise
// ops before, between and behind them.
#pragma once

#include <cstdint>
#include <vector>

#include "explain/fusion/chain_model.h"
#include "explain/fusion/dataflow.h"

namespace epilogue::trace {

struct RowChainGroup {
  std::vector<uint32_t> members;  // indices into WorkOps::ops, ascending
  ChainWork work;
};

// Connected ops of one step, with at least one product, that ran without gradients. Groups whose
// dtype or sizes are not known, or differ in their rows, are left out.
std::vector<RowChainGroup> row_chain_groups(const Trace& trace, const WorkOps& work,
                                            const Dataflow& flow);

}  // namespace epilogue::trace
