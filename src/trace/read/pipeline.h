// SPDX-License-Identifier: Apache-2.0
// Reading, cutting and parsing a trace's text, overlapped:
//
//   reader thread: read or inflate -> cut between two events -> windows
//   workers:       window -> Partial, supposing that it starts inside the event list
//   caller:        takes windows in the order of the file and checks the supposition
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include "epilogue/base/result.h"
#include "trace/read/byte_source.h"
#include "trace/read/window_parser.h"

namespace epilogue::trace {

// A stretch of the text and what a worker made of it.
struct TextWindow {
  std::unique_ptr<char[]> buffer;
  size_t size = 0;
  int64_t offset = 0;  // of its first byte in the text
  bool is_last = false;
  std::optional<Failure> failure;  // the file could not be read further
  bool is_parsed = false;          // the first window is not: it starts with the document's head
  size_t worker = 0;
  WindowResult result;

  // Followed by '\0'.
  std::string_view text() const { return {buffer.get(), size}; }
};

class WindowPipeline {
 public:
  // The source must outlive the pipeline.
  WindowPipeline(ByteSource& source, PythonFrames frames, size_t workers);
  ~WindowPipeline();
  WindowPipeline(const WindowPipeline&) = delete;
  WindowPipeline& operator=(const WindowPipeline&) = delete;

  // The next window in the order of the file, null behind the last one. Rethrows what a thread
  // threw (out of memory).
  std::unique_ptr<TextWindow> next();
  // Gives a window back for reuse.
  void recycle(std::unique_ptr<TextWindow> window);

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace epilogue::trace
