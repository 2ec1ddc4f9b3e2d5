// SPDX-License-Identifier: Apache-2.0
// The steps that need all events.
#pragma once

#include <optional>
#include <vector>

#include "epilogue/trace/event.h"
#include "trace/read/partial.h"

namespace epilogue::trace {

// Processes and threads in the order in which the file names them; later names win.
void set_lane_names(Trace& trace, const std::vector<LaneName>& names);
// Arrows that have both ends, in the order of their starts in the file.
void set_flows(Trace& trace, const std::vector<FlowEnd>& ends);
// The recorded span, else from the first start to the last end.
void set_window(Trace& trace, const std::optional<RecordedSpan>& span);
// Older files do not say what was recorded: what is there was. Precondition: the metadata are set.
void infer_recorded(Trace& trace);
// Whether this project wrote the trace, of a CPU or of a GPU.
bool is_own_trace(const Trace& trace);
// "CUDA", "TPU", "KERNEL" or "", see Trace::device_label.
void set_device_label(Trace& trace);

}  // namespace epilogue::trace
