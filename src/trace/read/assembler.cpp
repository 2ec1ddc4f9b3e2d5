// SPDX-License-Identifier: Apache-2.0
#include "trace/read/assembler.h"

#include <utility>

#include "trace/read/finish_trace.h"

namespace epilogue::trace {
namespace {

// An event that does not end within so much is broken.
constexpr size_t kMaxEventBytes = size_t{1} << 24;

}  // namespace

bool Assembler::add(TextWindow& window) {
  WindowResult& result = window.result;
  std::string_view rest = window.text();
  if (window.is_parsed) merger_.learn(result.partial, window.worker);
  if (window.is_parsed && in_list_ && pending_.empty()) {
    merger_.add(result.partial, window.worker);
    in_list_ = !result.is_list_closed;
    if (!in_list_) document_.list_closed();
    rest.remove_prefix(result.used);
    pending_offset_ = window.offset + static_cast<int64_t>(result.used);
    // The rest that the worker could not use needs the text that follows.
    if (in_list_ && !window.is_last) {
      pending_ = rest;
      return true;
    }
  }
  pending_ += rest;
  return read_on(window.is_last);
}

bool Assembler::read_on(bool is_final) {
  while (!pending_.empty()) {
    if (in_list_) {
      if (!read_events(is_final)) return true;
      continue;
    }
    // A member that does not end yet is not looked at again before its text has doubled.
    if (pending_.size() < retry_size_ && !is_final) return true;
    size_t used = 0;
    const DocumentScanner::Step step = document_.scan(pending_, pending_offset_, is_final, used);
    if (step == DocumentScanner::Step::not_json) return false;
    pending_.erase(0, used);
    pending_offset_ += static_cast<int64_t>(used);
    retry_size_ = 2 * pending_.size();
    in_list_ = step == DocumentScanner::Step::event_list;
    if (!in_list_) return true;
  }
  return true;
}

// False when more text is needed.
bool Assembler::read_events(bool is_final) {
  const bool must_end = is_final || pending_.size() > kMaxEventBytes;
  WindowResult result;
  parser_.parse(pending_, pending_offset_, must_end, result);
  merger_.learn(result.partial, own_worker_);
  merger_.add(result.partial, own_worker_);
  pending_.erase(0, result.used);
  pending_offset_ += static_cast<int64_t>(result.used);
  if (!result.is_list_closed) return false;
  document_.list_closed();
  in_list_ = false;
  retry_size_ = 0;
  return true;
}

Trace Assembler::finish(const StreamFaults& faults) {
  ImportNotes& notes = document_.notes();
  const bool is_unclosed = document_.is_unclosed();
  if (is_unclosed) notes.add(Note::unclosed, pending_offset_);
  if (faults.is_truncated) notes.add(Note::truncated_gzip, pending_offset_);
  if (faults.has_bad_checksum) notes.add(Note::bad_checksum, pending_offset_);
  if (faults.has_trailing_bytes) notes.add(Note::trailing_bytes, pending_offset_);
  notes.add_all(merger_.notes());
  const int64_t usable_events = merger_.usable_events();
  Trace trace = merger_.finish();
  document_.finish(trace);
  infer_recorded(trace);
  set_device_label(trace);
  trace.import.events = usable_events;
  trace.import.is_truncated = faults.is_truncated || is_unclosed;
  trace.import.is_bare_array = document_.is_bare_array();
  notes.report(trace.import);
  return trace;
}

}  // namespace epilogue::trace
