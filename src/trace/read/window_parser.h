// SPDX-License-Identifier: Apache-2.0
// A stretch of the event list -> a Partial.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "trace/read/event_parser.h"
#include "trace/read/json/token_index.h"
#include "trace/read/partial.h"

namespace epilogue::trace {

struct WindowResult {
  Partial partial;
  // How much of the window was used: all of it, or up to an event that does not end in it, or to
  // behind the bracket that closes the list.
  size_t used = 0;
  bool is_list_closed = false;
};

// Reads windows one after the other. Not thread-safe; one per thread.
class WindowParser {
 public:
  explicit WindowParser(PythonFrames frames) : events_(frames) {}

  // `text` starts between two events and lies at `offset` of the file. With `is_final`, nothing
  // follows: an event that does not end is lost. Earlier contents of `result` are gone, but its
  // memory is used again. Precondition: text.data()[text.size()] is '\0'.
  void parse(std::string_view text, int64_t offset, bool is_final, WindowResult& result);

 private:
  bool parse_indexed(WindowResult& result);
  void parse_one_by_one(WindowResult& result);
  size_t parse_slow(Partial& partial, size_t at);
  bool parse_slice(Partial& partial, std::string_view slice, int64_t offset);
  bool parse_valid(const std::string& slice, int64_t offset);

  std::string_view text_;
  int64_t offset_ = 0;
  bool is_final_ = false;
  TokenIndex index_;
  EventParser events_;
  std::string slice_;
};

}  // namespace epilogue::trace
