// SPDX-License-Identifier: Apache-2.0
// The text around the event list: finds where lists begin, keeps the metadata.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "epilogue/trace/event.h"
#include "trace/read/import_notes.h"

namespace epilogue::trace {

// Fed with the text outside the event lists, in pieces of any size. Not thread-safe.
class DocumentScanner {
 public:
  enum class Step { need_more, event_list, not_json };

  // Reads on at text.data() + used, which lies at `offset` of the file, and moves `used` on. Behind
  // the opening bracket of an event list it stops with kEventList: call list_closed() when that
  // list is done. kNeedMore: what was not used is to be given again with more behind it. With
  // `is_final` nothing follows.
  Step scan(std::string_view text, int64_t offset, bool is_final, size_t& used);
  void list_closed() { in_list_ = false; }

  // Puts devices, flags, base time and metadata in place.
  void finish(Trace& trace);

  bool is_bare_array() const { return is_bare_array_; }
  bool has_list() const { return has_list_; }
  bool has_document() const { return documents_ > 0; }
  // At the end of the text: some bracket was never closed.
  bool is_unclosed() const { return in_list_ || in_object_; }
  std::vector<std::string> keys() const;
  ImportNotes& notes() { return notes_; }

 private:
  enum class Found { member, need_more, list, broken };
  Found take_member(std::string_view text, bool is_final, size_t& used);
  void keep(std::string_view key, std::string_view value, int64_t offset);

  ImportNotes notes_;
  std::vector<std::pair<std::string, std::string>> members_;  // key, raw JSON
  int64_t offset_ = 0;
  int64_t documents_ = 0;
  bool in_object_ = false;
  bool in_list_ = false;
  bool has_list_ = false;
  bool is_bare_array_ = false;
};

}  // namespace epilogue::trace
