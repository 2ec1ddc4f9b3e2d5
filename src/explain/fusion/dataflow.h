// SPDX-License-Identifier: Apache-2.0
// Which op's output another op reads. Traces do not say: it is inferred from order and shapes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "explain/fusion/work_ops.h"

namespace epilogue::trace {

// Where an input comes from, as indices into WorkOps::ops.
struct InputSource {
  // The latest op of this shape and dtype whose output nobody had read, if nothing behind it may
  // have made or changed what is read.
  uint32_t producer = kNone;
  // Without one: the latest that somebody had read before, that is not sure, or of unknown output
  // that may be it.
  uint32_t maybe = kNone;
};

// Ops that may have read an output besides its consumers: their input fits it, and others too.
struct PossibleReaders {
  static constexpr size_t kKept = 3;
  std::array<uint32_t, kKept> ops{};
  uint32_t count = 0;  // may be above kKept
};

struct Dataflow {
  std::vector<std::vector<InputSource>> sources;  // per op, per tensor input
  std::vector<std::vector<uint32_t>> consumers;   // per op, those whose `producer` it is
  std::vector<PossibleReaders> possible_readers;  // per op

  // True where an op outside `group` may read the output of `op`: it has to reach memory.
  bool may_be_read_outside(uint32_t op, const std::vector<uint32_t>& group) const;
};

// False for the first tensor of a copy or a fill, and where an _out form writes: they are written
// only.
bool reads_input(const WorkOp& op, size_t input);

// Looks back over the ops of the same thread and region, at most kDataflowWindow of them. Views
// between two ops may have changed the sizes: equal numbers of elements, dtypes and last sizes make
// a match. An op of unknown output may have written whatever is like one of its inputs: nothing
// before it is a producer of that. It may have made any other tensor of its inputs' dtypes, as a
// view of a part may be the tensor that is read: a producer before these is sure only if the reader
// has further inputs of the kind, one for each.
inline constexpr uint32_t kDataflowWindow = 32;
Dataflow infer_dataflow(const Trace& trace, const WorkOps& work);

// True where running `last` right after `first` (an earlier op) would move it before an op that it
// depends on: some op between them reads from `first` or its like in `group` and feeds `last`.
bool is_path_between(const Dataflow& flow, const std::vector<uint32_t>& group_of, uint32_t first,
                     uint32_t last);

}  // namespace epilogue::trace
