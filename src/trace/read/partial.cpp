// SPDX-License-Identifier: Apache-2.0
#include "trace/read/partial.h"

namespace epilogue::trace {

void Partial::clear() {
  events.clear();
  ops.clear();
  kernels.clear();
  runtime_calls.clear();
  syncs.clear();
  python.clear();
  frames.clear();
  memory.clear();
  flow_ends.clear();
  lane_names.clear();
  span.reset();
  usable_events = 0;
  python_functions_left_out = 0;
  notes = {};
  new_strings.clear();
  new_inputs.clear();
}

}  // namespace epilogue::trace
