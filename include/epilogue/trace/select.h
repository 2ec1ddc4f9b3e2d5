// SPDX-License-Identifier: Apache-2.0
// A part of a trace: one step, or a stretch of time.
#pragma once

#include <cstdint>
#include <optional>

#include "epilogue/base/result.h"
#include "epilogue/trace/event.h"

namespace epilogue::trace {

// A selection is a window of time. It has the events of the host that start in it, of every thread;
// the device work that was launched in it, whenever it ran, and the device work that ran in it,
// whoever launched it, so that it cuts kernels from their launches but launches from no kernel.
// Only ProfilerSteps that lie whole in it are kept. Its span, busy and idle times are those of the
// window; Trace::selection keeps the rest of the trace for them. A selection can be cut again.

// The window of the annotation ProfilerStep#`number`. Fails ("NoSuchStep") with one line that says
// which steps there are.
Result<Trace> select_step(Trace trace, int64_t number);

// [from, to) milliseconds after the recorded window began. An end that is not given is the trace's.
// Fails (FailureCode::empty_range) where `from` is not before `to` or nothing happens between them.
Result<Trace> select_range(Trace trace, std::optional<double> from_ms, std::optional<double> to_ms);

}  // namespace epilogue::trace
