// SPDX-License-Identifier: Apache-2.0
// Values beside the events of a trace, of which few have one.
#pragma once

#include <cstdint>
#include <vector>

#include "epilogue/trace/event.h"

namespace epilogue::trace {

// Takes 4 bytes for an event without a value.
template <class T>
class SparseColumn {
 public:
  explicit SparseColumn(size_t events) : slots_(events, kNone) {}

  // The event's value, made where it has none. Valid until the next one is made.
  T& operator[](uint32_t event) {
    uint32_t& slot = slots_[event];
    if (slot == kNone) {
      slot = static_cast<uint32_t>(values_.size());
      values_.emplace_back();
    }
    return values_[slot];
  }
  // Null where the event has none.
  const T* find(uint32_t event) const {
    return slots_[event] == kNone ? nullptr : &values_[slots_[event]];
  }
  // Number of events with a value.
  size_t size() const { return values_.size(); }

 private:
  std::vector<uint32_t> slots_;
  std::vector<T> values_;
};

}  // namespace epilogue::trace
