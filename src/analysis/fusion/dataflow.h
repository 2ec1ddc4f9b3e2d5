// SPDX-License-Identifier: Apache-2.0
// Which op's output another op reads. Traces do not say: it is inferred from order and shapes.
#pragma once

#include <cstdint>
#include <vector>

#include "analysis/fusion/work_ops.h"

namespace epilogue::trace {

// Where an input comes from, as indices into WorkOps::ops.
struct InputSource {
  uint32_t producer = kNone;  // the latest op of this shape and dtype whose output nobody had read
  // Without one: the latest that somebody had read before, or of unknown output that may be it.
  uint32_t maybe = kNone;
};

struct Dataflow {
  std::vector<std::vector<InputSource>> sources;  // per op, per tensor input
  std::vector<std::vector<uint32_t>> consumers;   // per op, those whose `producer` it is
  // The output may be read again later (it was somebody's `maybe`): it has to reach memory.
  std::vector<bool> is_shared;
};

// False for the first tensor of a copy or a fill: it is written only.
bool reads_input(const WorkOp& op, size_t input);

// Looks back over the ops of the same thread and region, at most kDataflowWindow of them. Views
// between two ops may have changed the sizes: equal numbers of elements, dtypes and last sizes make
// a match. An op of unknown output may have written whatever is like one of its inputs: nothing
// before it is a producer of that.
inline constexpr uint32_t kDataflowWindow = 32;
Dataflow infer_dataflow(const Trace& trace, const WorkOps& work);

// True where running `last` right after `first` (an earlier op) would move it before an op that it
// depends on: some op between them reads from `first` or its like in `group` and feeds `last`.
bool is_path_between(const Dataflow& flow, const std::vector<uint32_t>& group_of, uint32_t first,
                     uint32_t last);

}  // namespace epilogue::trace
