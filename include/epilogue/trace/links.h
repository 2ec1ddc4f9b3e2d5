// SPDX-License-Identifier: Apache-2.0
// Who launched what: joins kernels, launch calls, ops and steps of one trace. Every analysis starts
// from here.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "epilogue/trace/event.h"

#pragma GCC visibility push(default)

namespace epilogue::trace {

// The four vectors beside the events hold indices into Trace::events, kNone if there is none.
struct Links {
  // For ops and launch calls: the innermost op (cpu_op) around it on its thread. Annotations and
  // Python frames are no parents: they may overlap ops in part.
  std::vector<uint32_t> parent;
  // For device work (kernels, copies, fills): the runtime or driver call of its correlation; if
  // neither carries one (ROCm until 2023), the only call of its External id.
  std::vector<uint32_t> launch;
  // For device work: the innermost op around its launch call; if it carries no correlation and no
  // call is known, the op that its External id names. For a launch call: its parent.
  std::vector<uint32_t> op;
  // For ops, launch calls and device work: position in `steps`. Device work belongs to the step
  // that launched it, whenever it ran; work launched before the window belongs to none.
  std::vector<uint32_t> step;

  std::vector<uint32_t> steps;        // ProfilerStep#N annotations of the host, by start
  std::vector<uint32_t> device_work;  // kernels, copies and fills, by start
  std::vector<uint32_t> launches;     // calls that start kernels or graphs, by start

  int64_t kernels = 0;
  int64_t kernels_without_launch = 0;    // launched before the recording, or the call was lost
  int64_t kernels_launched_outside = 0;  // their launch is not of the selection (Trace::selection)
  int64_t launches_without_kernel = 0;   // kernel and graph launches, not copies
  int64_t linked_by_external_id = 0;     // device work without a correlation
  // Device work whose External id names another op than the nesting does, or none: traces of 2022
  // to early 2024 wrote the correlation there.
  int64_t external_id_disagrees = 0;
};

Links link(const Trace& trace);

// Work of replayed CUDA and HIP graphs with the ops that captured it (captured_ops() of serving.h):
// a replay is one call of the host and names none.
struct CapturedOps {
  struct Op {
    std::string name;         // "aten::mm"
    std::string shapes = {};  // of its inputs, as the table has them: "[[4, 8], [8, 16]]"; or ""
    uint32_t parent = kNone;  // the op around it, in `ops`
  };
  std::vector<Op> ops;       // each call of the capture that launched work, and those around it
  std::vector<uint32_t> op;  // by event of the trace: in `ops`; kNone: not of a graph, or not known
  int64_t graph_ns = 0;      // work of graphs, added up
  int64_t named_ns = 0;      // of that, with an op

  uint32_t op_of(uint32_t event) const { return event < op.size() ? op[event] : kNone; }
};

// True for "cudaLaunchKernel", "hipGraphLaunch", "epiLaunchKernel", ...: calls that start kernels.
bool is_kernel_launch_name(std::string_view name);
// True for the ones of graphs: one call, many kernels.
bool is_graph_launch_name(std::string_view name);

}  // namespace epilogue::trace

#pragma GCC visibility pop
