// SPDX-License-Identifier: Apache-2.0
// Traces as files: reads and writes Chrome trace JSON, cuts out a part of a trace.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "epilogue/base/result.h"
#include "epilogue/trace/event.h"

#pragma GCC visibility push(default)

namespace epilogue::trace {

// --- Reading ------------------------------------------------------------------------------------
// Reads Chrome/Kineto JSON traces: plain or gzip, an object or a bare array, of any PyTorch since
// 2021, NVIDIA, AMD, CPU, or our own. Broken parts are repaired or skipped event
// by event; Trace::import says what and how often. Also Perfetto's protobuf traces (.pftrace of
// PyTorch 2.15, plain or gzip): their slices and stages of a GPU, without counters and flows.
// Damaged ones fail (not_a_trace), and their bytes, 4 GiB at most, are held in memory. Also SQLite
// exports of Nsight Systems
// (`nsys export --type sqlite`), from a file or bytes in memory, not compressed.

// Python frames are up to 91 % of a file.
enum class PythonFrames : uint8_t {
  counted,  // ImportReport::python_functions_left_out alone
  beside,   // also name, time and thread, in Trace::frames
  events,   // as events with their side table, Trace::python
};

struct ReadOptions {
  PythonFrames python_frames = PythonFrames::counted;
  int threads = 0;  // 0: as many as the machine has
  // Called now and then on the caller's thread with the bytes of the file consumed so far and in
  // all (0: not known, a pipe). An exception from it ends the reading.
  std::function<void(int64_t done, int64_t total)> progress = {};
};

// Reads a file, or stdin if `path` is "-". Times are exact: decimal text to int64 ns, never
// through a double. Fails, with one line that names the file, if there is nothing to use: the
// file cannot be read (cannot_open), is empty (empty), is no JSON (not_json), or is JSON but no
// Chrome trace (not_a_trace: the message says what it looks like). Everything else is a trace;
// Trace::import says what was skipped. Uses threads of its own; safe to call from several.
Result<Trace> read_trace(const std::string& path, const ReadOptions& options = {});

// The same over what a file holds, in memory: text or gzip. `name` stands for the path in messages.
Result<Trace> read_trace_text(std::string_view text, std::string_view name,
                              const ReadOptions& options = {});

// --- Writing ------------------------------------------------------------------------------------
// Writes a trace as Kineto does: Chrome trace JSON that Perfetto, chrome://tracing, TensorBoard,
// HTA and TraceLens read.

// Writes `trace` to `path`, compressed when the path ends in ".gz". The file appears complete or
// not at all (temporary name, then rename); missing folders are made. Events are streamed, in the
// order of start time within each lane. Names with quotes, control characters or bad UTF-8 are
// escaped or repaired, never dropped. Failure: the file cannot be written.
Status write_chrome_trace(const Trace& trace, const std::string& path);

// The same document as a string (tests, small traces).
std::string chrome_trace_json(const Trace& trace, const std::string& trace_name);

// --- Selecting ----------------------------------------------------------------------------------
// A part of a trace: one step, or a stretch of time.

// A selection is a window of time. It holds three kinds of events: those of the host that start in
// the window, on every thread; device work that was launched in it, whenever that ran; and device
// work that ran in it, wherever that was launched. So a selected launch keeps its kernels, but a
// selected kernel may lack its launch. Only ProfilerSteps that lie whole in the window are kept.
// Its span, busy and idle times are those of the window; Trace::selection keeps the rest of the
// trace for them. A selection can be cut again.

// The window of the annotation ProfilerStep#`number`. Fails ("NoSuchStep") with one line that says
// which steps there are.
Result<Trace> select_step(Trace trace, int64_t number);

// [from, to) milliseconds after the recorded window began. An end that is not given is the trace's.
// Fails (FailureCode::empty_range) if `from` is not before `to` or nothing happens between them.
Result<Trace> select_range(Trace trace, std::optional<double> from_ms, std::optional<double> to_ms);

}  // namespace epilogue::trace

#pragma GCC visibility pop
