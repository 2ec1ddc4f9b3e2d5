// SPDX-License-Identifier: Apache-2.0
// Windows in, trace out: takes what the workers made of a window where their supposition held, and
// reads the rest itself.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "epilogue/trace/event.h"
#include "trace/read/byte_source.h"
#include "trace/read/document.h"
#include "trace/read/partial.h"
#include "trace/read/pipeline.h"
#include "trace/read/window_parser.h"

namespace epilogue::trace {

class Merger {
 public:
  // `workers`: how many numberings of strings there are.
  explicit Merger(size_t workers) : numbers_(workers) {}

  // Every partial of a worker must come through learn(), in the order in which it made them; add()
  // takes those that count.
  void learn(Partial& partial, size_t worker);
  void add(Partial& partial, size_t worker);

  // How much of the file is read, 0 to 1, as far as that is known: tables are sized by it.
  void set_share_done(double share) { share_done_ = share; }

  const ImportNotes& notes() const { return notes_; }
  int64_t usable_events() const { return usable_events_; }
  // Ends the trace: names of lanes, arrows, the recorded window, what was recorded, device label.
  Trace finish();

 private:
  struct Numbers {
    std::vector<StringId> strings;  // by the worker's number
    std::vector<uint32_t> inputs;
  };
  template <class T>
  void make_room(std::vector<T>& table, size_t more) const;
  template <class T>
  void append(std::vector<T>& to, const std::vector<T>& from) const;
  void add_events(const Partial& partial, const Numbers& numbers);
  void add_args(Partial& partial, const Numbers& numbers);

  Trace trace_;
  std::vector<Numbers> numbers_;
  ImportNotes notes_;
  std::vector<FlowEnd> flow_ends_;
  std::vector<LaneName> lane_names_;
  std::optional<RecordedSpan> span_;
  double share_done_ = 1;
  int64_t usable_events_ = 0;
  int64_t python_functions_left_out_ = 0;
};

class Assembler {
 public:
  Assembler(size_t workers, PythonFrames frames)
      : merger_(workers + 1), frames_(frames), own_worker_(workers), parser_(frames) {}

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
  PythonFrames frames_;
  size_t own_worker_;  // the number of the parser here
  WindowParser parser_;
  bool in_list_ = false;
  // Text that was not used yet, and where it starts.
  std::string pending_;
  int64_t pending_offset_ = 0;
  size_t retry_size_ = 0;
};

}  // namespace epilogue::trace
