// SPDX-License-Identifier: Apache-2.0
// Events that the reader had to skip or mend, counted.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "epilogue/trace/event.h"

namespace epilogue::trace {

// Skips come first: one event each that is not in the trace.
enum class Note : uint8_t {
  truncated,
  bad_syntax,
  not_an_object,
  missing_field,
  bad_number,
  out_of_range,
  unsupported_phase,
  // Repairs: read all the same.
  unescaped_quote,
  control_character,
  bad_escape,
  bad_utf8,
  bare_word,
  extra_comma,
  duplicate_key,
  negative_duration,
  bad_argument,
  bad_metadata,
  byte_order_mark,
  second_document,
  unclosed,
  truncated_gzip,
  bad_checksum,
  trailing_bytes,
  trailing_text,
};
inline constexpr size_t kNotes = static_cast<size_t>(Note::trailing_text) + 1;

// Counts per note and where each was met first.
class ImportNotes {
 public:
  void add(Note note, int64_t offset);
  void add_all(const ImportNotes& other);
  bool has(Note note) const { return counts_[static_cast<size_t>(note)] > 0; }
  // Fills skips, repairs and skipped_events.
  void report(ImportReport& report) const;

 private:
  std::array<int64_t, kNotes> counts_{};
  std::array<int64_t, kNotes> first_offsets_{};
};

}  // namespace epilogue::trace
