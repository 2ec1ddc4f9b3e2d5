// SPDX-License-Identifier: Apache-2.0
#include "explain/answer/load.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "epilogue/base/error.h"
#include "epilogue/trace/file.h"
#include "explain/timeline/pauses.h"

namespace epilogue::trace {
namespace {

// "PATH: skipped 3 of 210 events: bad-syntax (2), truncated (1); the first at byte 204", or "".
std::string skip_warning(const ImportReport& report) {
  if (report.skipped_events == 0)
    return report.is_truncated ? report.path + ": the file ends early; this is what came before"
                               : "";
  std::string reasons;
  int64_t first = report.skips.front().first_offset;
  for (const ImportNote& note : report.skips) {
    reasons += fmt::format("{}{} ({})", reasons.empty() ? "" : ", ", note.id, note.count);
    first = std::min(first, note.first_offset);
  }
  return fmt::format("{}: skipped {} of {} events: {}; the first at byte {}", report.path,
                     report.skipped_events, report.events + report.skipped_events, reasons, first);
}

void warn_of(const ImportReport& report, const AnswerHooks& hooks) {
  if (const std::string warning = skip_warning(report); !warning.empty()) warn(hooks, warning);
  for (const ImportNote& note : report.repairs)
    if (note.is_doubtful)
      warn(hooks,
           fmt::format("{}: {} ({}at byte {})", report.path, note.detail,
                       note.count == 1 ? "" : fmt::format("{} in all, the first ", note.count),
                       note.first_offset));
}

Result<Trace> read_whole(const TraceInput& input, PythonFrames frames, const AnswerHooks& hooks) {
  ReadOptions options;
  options.python_frames = frames;
  const std::function<void(int64_t, int64_t)> watch =
      hooks.watch_reading ? hooks.watch_reading() : nullptr;
  options.progress = [&](int64_t done, int64_t total) {
    if (watch) watch(done, total);
    poll(hooks);
  };
  const std::string& name = input.name.empty() ? input.path : input.name;
  Result<Trace> trace =
      input.bytes ? read_trace_text(*input.bytes, name, options) : read_trace(input.path, options);
  if (trace && !input.name.empty()) trace.value().import.path = name;
  poll(hooks);
  return trace;
}

}  // namespace

Result<std::optional<GraphReference>> read_capture(const std::optional<TraceInput>& input,
                                                   const AnswerHooks& hooks) {
  if (!input) return std::optional<GraphReference>();
  const Result<Trace> trace = load_trace(*input, PythonFrames::events, hooks);
  if (!trace) return trace.failure();
  return std::optional<GraphReference>(std::in_place,
                                       GraphReference(trace.value(), link(trace.value())));
}

void warn_of_capture(const std::string& path, const AnswerHooks& hooks) {
  warn(hooks, path + ": replays no graph, so that the capture names nothing");
}

void refuse_capture_for_ranks(const std::string& folder, size_t traces) {
  throw Error(fmt::format("[capture] expected one trace beside a capture, got {} of the folder {}",
                          traces, folder));
}

Result<Trace> load_trace(const TraceInput& input, PythonFrames frames, const AnswerHooks& hooks) {
  Result<Trace> trace = read_whole(input, frames, hooks);
  if (!trace) return trace;
  // What has no event that can be read says nothing: that is no answer.
  const ImportReport& import = trace.value().import;
  if (import.events == 0 && import.skipped_events > 0)
    return Failure{FailureCode::empty, skip_warning(import)};
  warn_of(import, hooks);
  if (input.step) trace = select_step(std::move(trace).value(), *input.step);
  if (trace && (input.from_ms || input.to_ms))
    trace = select_range(std::move(trace).value(), input.from_ms, input.to_ms);
  return trace;
}

Explanation explain_without_pauses(Trace& trace, const Links& links, ExplainOptions options,
                                   bool puts_back) {
  const TimeWithoutPauses without(trace, links, puts_back);
  options.pauses = without.pauses();
  return explain(trace, links, options);
}

}  // namespace epilogue::trace
