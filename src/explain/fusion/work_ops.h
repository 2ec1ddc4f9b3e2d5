// SPDX-License-Identifier: Apache-2.0
// The ops of a trace that do work themselves, with what they take in and give out, in the order in
// which the program issued them.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "epilogue/trace/links.h"
#include "explain/index/aten_ops.h"
#include "explain/knowledge/op_knowledge.h"

namespace epilogue::trace {

// An op whose own launch calls started kernels; in a trace without device work, an op that calls no
// other op and is no view, or that computes and calls nothing but copies, fills and views.
struct WorkOp {
  uint32_t event = kNone;   // in Trace::events
  StringId name = 0;        // the event's
  uint32_t region = kNone;  // its step, else its outermost annotation (steps.h)
  OpClass op_class = OpClass::unknown;
  bool is_transcendental = false;
  bool is_transfer = false;            // copies between host and device, or may do so
  bool is_in_pattern = false;          // set by find_patterns()
  OpFuses fuses = OpFuses::pointwise;  // as its row says, or, without one, by its class
  size_t operands = SIZE_MAX;          // inputs that it reads at most (most_operands())
  int64_t device_ns = 0;               // of its kernels; without device work: the op's own time
  int64_t host_ns =
      0;  // the op's duration on the host, or the outermost ATen op's that only led here
  uint32_t host_ops = 1;  // ops within that, itself included: the profiler's cost per op
  uint32_t kernels = 0;   // without the copies and fills beside them
  StringId kernel = 0;    // name of its longest device work; 0 without any
  // In WorkOps: ops that repeat their arguments share them.
  std::span<const TensorShape> inputs;  // empty: shapes were not recorded
  const TensorShape* output = nullptr;  // null where it does not follow from the inputs
};

// A view that shows a part of a tensor: a row, a slice, a chunk. What it shows may be read in place
// of what an op wrote, and may be written.
struct PartView {
  uint32_t before = 0;  // the first op behind it, in WorkOps::ops
  int64_t whole = 0;    // elements of the tensor
  int64_t part = 0;     // elements that the view shows
  std::string_view type;
};

struct WorkOps {
  WorkOps() = default;
  WorkOps(WorkOps&&) noexcept = default;  // no copies: ops point into the shapes
  WorkOps& operator=(WorkOps&&) noexcept = default;

  std::vector<WorkOp> ops;       // by thread, then by start
  std::vector<PartView> parts;   // by `before`; none where the trace has no arguments of views
  bool has_device_work = false;  // else the host's time is the work's
  bool has_shapes = false;
  // A launch is the kernel itself (our CPU device): the host's time contains the device's.
  bool is_synchronous = false;
  std::deque<std::vector<TensorShape>> input_shapes;
  std::deque<TensorShape> output_shapes;
};

// Empty where launches have lost their kernels.
WorkOps work_ops(const Trace& trace, const Links& links);

}  // namespace epilogue::trace
