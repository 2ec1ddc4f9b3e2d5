// SPDX-License-Identifier: Apache-2.0
// Windows in, trace out: takes what the workers made of a window where their supposition held, and
// reads the rest itself.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "trace/read/byte_source.h"
#include "trace/read/document.h"
#include "trace/read/merge.h"
#include "trace/read/pipeline.h"
#include "trace/read/window_parser.h"

namespace epilogue::trace {

class Assembler {
 public:
  Assembler(size_t workers, PythonFrames frames)
      : merger_(workers + 1), own_worker_(workers), parser_(frames) {}

  // False when the text is no JSON.
  bool add(TextWindow& window);

  void set_share_done(double share) { merger_.set_share_done(share); }

  const DocumentScanner& document() const { return document_; }
  // Holds what the document's keys say and what was met on the way. `faults`: of the compressed
  // stream that the text came from.
  Trace finish(const StreamFaults& faults);

 private:
  bool read_on(bool is_final);
  bool read_events(bool is_final);

  DocumentScanner document_;
  Merger merger_;
  size_t own_worker_;  // the number of the parser here
  WindowParser parser_;
  bool in_list_ = false;
  // Text that was not used yet, and where it starts.
  std::string pending_;
  int64_t pending_offset_ = 0;
  size_t retry_size_ = 0;
};

}  // namespace epilogue::trace
