// SPDX-License-Identifier: Apache-2.0
// One element of the event list -> the schema.
#pragma once

#include <cstdint>
#include <string_view>

#include "epilogue/trace/file.h"
#include "trace/read/args_builder.h"
#include "trace/read/json/json_cursor.h"
#include "trace/read/partial.h"
#include "trace/read/recent_args.h"

namespace epilogue::trace {

// Old and new names, and those of other vendors' devices.
Category category_of(std::string_view name);

class EventParser {
 public:
  explicit EventParser(PythonFrames frames) : frames_(frames) {}

  // Where the next events go.
  void start_window(Partial& partial) { partial_ = &partial; }
  void finish_window() { args_.take_new(*partial_); }

  // Reads the object at the cursor, whose text starts at `offset` of the file. False when it is
  // broken or not complete: then nothing was added. True also for events that are skipped (which
  // is noted) or of no interest.
  bool parse(JsonCursor& cursor, int64_t offset);

 private:
  // The members of an event as they are written; "" when there is none.
  struct Members {
    std::string_view ph, cat, name, pid, tid, ts, dur, id;
    bool is_empty = true;  // no key at all
    // Null for a key that does not count.
    std::string_view* member(uint32_t key_code);
  };
  struct Lane {
    int32_t pid = 0;
    int64_t tid = 0;
  };

  bool take_members(JsonCursor& cursor, Members& members);
  bool take_args(JsonCursor& cursor, const Members& members);
  bool is_no_event(const Members& members) const;
  void keep_beside(const Members& members);
  void build(const Members& members);
  void build_span(const Members& members);
  void build_recorded_span(const Members& members, int64_t ts_ns, int64_t dur_ns);
  void build_instant(const Members& members);
  void build_flow_end(const Members& members, bool is_start);
  void build_name(const Members& members);
  bool take_time(std::string_view text, int64_t& ns);
  bool take_duration(std::string_view text, int64_t ts_ns, int64_t& dur_ns);
  Lane lane(const Members& members);
  void note(Note note) { partial_->notes.add(note, offset_); }

  PythonFrames frames_;
  ArgsBuilder args_;
  RecentArgs<KernelArgs> recent_kernels_;
  RecentArgs<RuntimeArgs> recent_calls_;
  RawArgs raw_;
  Partial* partial_ = nullptr;
  int64_t offset_ = 0;
};

}  // namespace epilogue::trace
