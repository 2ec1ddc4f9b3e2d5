// SPDX-License-Identifier: Apache-2.0
// Chains of simple ops that stand for one op of PyTorch: norms, activations and rotary embeddings
// that were written by hand.
#pragma once

#include <optional>

#include "epilogue/trace/fusion.h"
#include "explain/fusion/work_ops.h"

namespace epilogue::trace {

struct ChainMatch {
  PatternKind kind = PatternKind::rms_norm;
  uint32_t first = 0;  // positions in WorkOps::ops, both included
  uint32_t last = 0;
  uint32_t stays = 0;  // what one kernel takes is about this op's time
};

// The chain whose middle (rsqrt, tanh, cat) is the op at `at`.
std::optional<ChainMatch> match_chain(const Trace& trace, const WorkOps& work, uint32_t at);

}  // namespace epilogue::trace
