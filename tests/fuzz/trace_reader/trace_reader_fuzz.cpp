// SPDX-License-Identifier: Apache-2.0
// libFuzzer entry: any bytes are a trace or a failure; what is read adds up, its indices are in
// range, and the table and the writer can take it.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "epilogue/trace/file.h"
#include "epilogue/trace/table.h"

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace epilogue::trace;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto read =
      read_trace_text(text, "fuzz", {.python_frames = PythonFrames::events, .threads = 1});
  if (!read) {
    require(!read.failure().message.empty());
    return 0;
  }
  const Trace& trace = read.value();
  for (const Event& e : trace.events) {
    require(e.name < trace.strings.size() && e.dur_ns >= 0 && e.end_ns() >= e.ts_ns);
    if (const OpArgs* args = trace.op_args(e))
      require(args->inputs == kNone || args->inputs < trace.inputs.size());
  }
  int64_t skipped = 0;
  for (const ImportNote& note : trace.import.skips) skipped += note.count;
  require(skipped == trace.import.skipped_events);
  require(trace.import.events >= static_cast<int64_t>(trace.events.size() + trace.memory.size()));
  key_averages(trace, {.group_by_input_shape = true});
  // A trace that was read once reads again without a fault.
  const auto again = read_trace_text(chrome_trace_json(trace, "fuzz"), "again",
                                     {.python_frames = PythonFrames::events, .threads = 1});
  require(again.ok() && again.value().import.skipped_events == 0 &&
          again.value().events.size() == trace.events.size());
  return 0;
}
