// SPDX-License-Identifier: Apache-2.0
// Traces of the XLA profiler (JAX, TensorFlow): *.trace.json.gz of jax.profiler.trace().
#pragma once

#include "epilogue/trace/event.h"
#include "epilogue/trace/file.h"

namespace epilogue::trace {

// The XLA profiler gives its events no category; the names of their processes and threads say what
// they are (tsl/profiler/utils/xplane_schema.cc):
//
//   /host:CPU                 threads of the host: "$file.py:12 f" is a frame of Python,
//   "cuLaunch..."
//                             with a correlation_id a call of the driver, an event with a step_num
//                             a step, all else an op of the runtime (TraceMe)
//   /device:GPU:N, Stream #S  kernels, copies and fills of stream S
//   /device:TPU:N, XLA Ops    ops of the device; loops and calls enclose the ops that they run
//   either,    XLA Modules    the runs of compiled functions: annotations of the device
//   either,    other threads  the same once more, by step, op and source: left out
//
// A GPU's "XLA Ops" are derived from its streams and left out too. Device N is pid N afterwards.
//
// Precondition: names of lanes are set, and an event without a category has the text of its args in
// OpArgs::other_args (ArgsBuilder::uncategorised). A trace that has none of these processes keeps
// its events, and loses these args.
void settle_xla(Trace& trace, PythonFrames frames);

}  // namespace epilogue::trace
