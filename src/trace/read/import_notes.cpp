// SPDX-License-Identifier: Apache-2.0
#include "trace/read/import_notes.h"

#include <algorithm>
#include <string_view>

namespace epilogue::trace {
namespace {

struct NoteText {
  std::string_view id;
  std::string_view detail;
  bool is_doubtful = false;
};

// In the order of Note.
constexpr std::array<NoteText, kNotes> kTexts = {{
    {"truncated", "the file ends inside this event"},
    {"bad-syntax", "not JSON, and not repairable"},
    {"not-an-object", "an element of the event list that is no object"},
    {"missing-field", "a span without a name, a start or a duration"},
    {"bad-number", "a start or a duration that is no number"},
    {"number-out-of-range", "a time or a size that no recording can have"},
    {"unsupported-phase", "a kind of event that PyTorch does not write"},
    {"unescaped-quote", "a quotation mark inside a string, taken as part of it"},
    {"control-character", "a control character inside a string, taken as part of it"},
    {"bad-escape", "a backslash that escapes nothing, taken as it is"},
    {"bad-utf8", "bytes that are not UTF-8, replaced"},
    {"bare-word", "inf, nan or N/A instead of a number, taken as unknown"},
    {"extra-comma", "a comma before a closing bracket"},
    {"duplicate-key", "a key twice in one object: the last one counts"},
    {"negative-durations",
     "events that end before they start, taken as empty: times that they are part of are too small",
     true},
    {"bad-argument", "an argument of an unexpected form, taken as unknown"},
    {"bad-metadata", "a metadata value that is not JSON, kept as text"},
    {"byte-order-mark", "before the document"},
    {"second-document", "another document behind the first: their events are joined"},
    {"unclosed-document", "the file ends before its closing brackets"},
    {"truncated-gzip", "the compressed stream ends early or is damaged"},
    {"bad-checksum",
     "the checksum of the compressed data does not match: what was read may be wrong", true},
    {"trailing-bytes", "bytes behind the compressed data, ignored", true},
    {"trailing-text", "text behind the document, ignored", true},
}};

}  // namespace

void ImportNotes::add(Note note, int64_t offset) {
  const auto i = static_cast<size_t>(note);
  first_offsets_[i] = counts_[i] == 0 ? offset : std::min(first_offsets_[i], offset);
  ++counts_[i];
}

void ImportNotes::add_all(const ImportNotes& other) {
  for (size_t i = 0; i < kNotes; ++i) {
    if (other.counts_[i] == 0) continue;
    const int64_t offset = other.first_offsets_[i];
    first_offsets_[i] = counts_[i] == 0 ? offset : std::min(first_offsets_[i], offset);
    counts_[i] += other.counts_[i];
  }
}

void ImportNotes::report(ImportReport& report) const {
  for (size_t i = 0; i < kNotes; ++i) {
    if (counts_[i] == 0) continue;
    const bool is_skip = i < static_cast<size_t>(Note::unescaped_quote);
    (is_skip ? report.skips : report.repairs)
        .push_back({.id = std::string(kTexts[i].id),
                    .detail = std::string(kTexts[i].detail),
                    .count = counts_[i],
                    .first_offset = first_offsets_[i],
                    .is_doubtful = kTexts[i].is_doubtful});
    if (is_skip) report.skipped_events += counts_[i];
  }
}

}  // namespace epilogue::trace
