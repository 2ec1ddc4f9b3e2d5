// SPDX-License-Identifier: Apache-2.0
// Pauses: time in which the main thread of a run without a device did not run, since another
// process had its processor. Equal calls and equal gaps beside them show that it is no work.
#pragma once

#include <optional>
#include <vector>

#include "epilogue/trace/links.h"
#include "epilogue/trace/timeline.h"
#include "explain/index/intervals.h"

namespace epilogue::trace {

// Excess over the median of equal ones (ops of one name and equal inputs, the same two ops around a
// gap with the same Python functions), by start. Empty for a trace with a device. Not a pause: the
// first of its kind, what recurs at one place of the steps, what other threads work beside, and
// Python that waits (collectives, locks, files, the data loader).
IntervalSet find_pauses(const Trace& trace, const Links& links);

// Takes pauses out of the trace's time while it lives: what comes after them starts earlier, what
// is around them is shorter. Nesting and order stay, and so do links.
class TimeWithoutPauses {
 public:
  // Without `puts_back` the trace stays as it is then, and nothing is copied.
  TimeWithoutPauses(Trace& trace, const Links& links, bool puts_back);
  TimeWithoutPauses(const TimeWithoutPauses&) = delete;
  TimeWithoutPauses& operator=(const TimeWithoutPauses&) = delete;
  ~TimeWithoutPauses();

  const Pauses& pauses() const { return pauses_; }

 private:
  // All that has times.
  struct Times {
    std::vector<Event> events;
    std::vector<PythonFrame> frames;
    std::vector<MemoryEvent> memory;
    std::vector<Flow> flows;
    int64_t start_ns = 0;
    int64_t end_ns = 0;
  };

  Trace& trace_;
  std::optional<Times> before_;
  Pauses pauses_;
};

}  // namespace epilogue::trace
