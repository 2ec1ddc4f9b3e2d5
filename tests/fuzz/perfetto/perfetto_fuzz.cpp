// SPDX-License-Identifier: Apache-2.0
// libFuzzer entry: any bytes, taken for a trace of Perfetto, are a trace or a failure of one line;
// the JSON that they are translated to is read without a fault.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "epilogue/trace/file.h"
#include "trace/perfetto/perfetto_source.h"
#include "trace/read/byte_source.h"

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace epilogue::trace;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  // Other inputs are the business of trace_reader_fuzz.
  if (!is_perfetto(bytes)) return 0;
  const auto read =
      read_trace_text(bytes, "fuzz", {.python_frames = PythonFrames::events, .threads = 1});
  if (!read) {
    require(!read.failure().message.empty() &&
            read.failure().message.find('\n') == std::string::npos);
    return 0;
  }
  const Trace& trace = read.value();
  for (const ImportNote& note : trace.import.skips)
    require(note.id != "bad-syntax" && note.id != "truncated" && note.id != "not-an-object");
  for (const Event& e : trace.events)
    require(e.name < trace.strings.size() && e.dur_ns >= 0 && e.end_ns() >= e.ts_ns);
  return 0;
}
