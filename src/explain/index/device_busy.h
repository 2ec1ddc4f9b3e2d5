// SPDX-License-Identifier: Apache-2.0
// Device work as sets of moments.
#pragma once

#include <optional>

#include "epilogue/trace/event.h"
#include "epilogue/trace/links.h"
#include "explain/index/intervals.h"

namespace epilogue::trace {

// The events of a trace, and of a selection those around it, which say what went on meanwhile.
template <class Fn>
void for_each_event_around(const Trace& trace, Fn&& fn) {
  for (const Event& event : trace.events) fn(event);
  if (!trace.selection) return;
  for (const Event& event : trace.selection->outside) fn(event);
}

// The moments that a trace shows: of a selection its window, else all.
Interval shown_window(const Trace& trace);
// The part of an event within a window; empty (not longer than 0) if there is none.
Interval clipped(const Event& event, const Interval& window);

// The device that worked longest in the moments shown; empty where there is no device work.
std::optional<int32_t> busiest_device(const Trace& trace, const Links& links);
// When the device ran kernels, copies or fills, of the moments shown.
IntervalSet device_busy(const Trace& trace, const Links& links, int32_t device);

}  // namespace epilogue::trace
