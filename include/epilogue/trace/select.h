// SPDX-License-Identifier: Apache-2.0
// A part of a trace: one step, or a stretch of time.
#pragma once

#include <cstdint>
#include <optional>

#include "epilogue/base/result.h"
#include "epilogue/trace/event.h"

namespace epilogue::trace {

// What the annotation ProfilerStep#`number` spans on the host, of every thread, and the device work
// that was launched there, whenever it ran. Fails ("NoSuchStep") with one line that says which
// steps there are.
Result<Trace> select_step(Trace trace, int64_t number);

// The events, of host and device alike, that start within [from, to) milliseconds after the
// recorded window began. An end that is not given is the window's. Fails ("EmptyRange") where
// nothing is left.
Result<Trace> select_range(Trace trace, std::optional<double> from_ms, std::optional<double> to_ms);

}  // namespace epilogue::trace
