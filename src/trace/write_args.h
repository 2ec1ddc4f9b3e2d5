// SPDX-License-Identifier: Apache-2.0
// The args object of each kind of event, with Kineto's keys in Kineto's order.
#pragma once

#include <string>
#include <vector>

#include "epilogue/trace/event.h"

namespace epilogue::trace {

// Renders args; what repeats (names, stacks, argument lists) is rendered once and kept.
class ArgsWriter {
 public:
  explicit ArgsWriter(const Trace& trace);

  // The quoted JSON string of an interned string.
  const std::string& quoted(StringId id);
  // The members of the event's args object, without braces; nothing when it has none.
  void append_args(std::string& out, const Event& event);
  static void append_memory_args(std::string& out, const MemoryEvent& memory);

 private:
  void append_op(std::string& out, const Event& event);
  void append_kernel(std::string& out, const Event& event);
  void append_copy(std::string& out, const Event& event);
  void append_python(std::string& out, const Event& event) const;
  void append_call(std::string& out, const Event& event) const;

  const Trace& trace_;
  std::vector<std::string> quoted_;  // by StringId; "" until first used
  std::vector<std::string> inputs_;  // by inputs id, likewise
};

}  // namespace epilogue::trace
