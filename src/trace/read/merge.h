// SPDX-License-Identifier: Apache-2.0
// Joins partials, in the order of the file, to a trace.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "epilogue/trace/event.h"
#include "trace/read/partial.h"

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

}  // namespace epilogue::trace
