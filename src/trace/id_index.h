// SPDX-License-Identifier: Apache-2.0
// Finds events by the ids that join them: External id, correlation.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "epilogue/trace/event.h"

namespace epilogue::trace {

// From an id to the first event that carries it. Ids mostly count up: then a table does; ids that
// are scattered over 64 bits (HIP, merged files) are searched in a sorted list.
class IdIndex {
 public:
  void add(int64_t id, uint32_t event) { entries_.push_back({id, event}); }

  void finish() {
    if (entries_.empty()) return;
    const auto by_id = [](const Entry& a, const Entry& b) { return a.id < b.id; };
    const auto [low, high] = std::minmax_element(entries_.begin(), entries_.end(), by_id);
    low_ = low->id;
    const uint64_t range = static_cast<uint64_t>(high->id) - static_cast<uint64_t>(low_);
    if (range < entries_.size() * kTableSlotsPerEntry + kTableSlotsPerEntry) {
      table_.assign(range + 1, kNone);
      for (const Entry& e : entries_) {
        uint32_t& slot = table_[offset(e.id)];
        slot = std::min(slot, e.event);
      }
      entries_ = {};
      return;
    }
    std::sort(entries_.begin(), entries_.end(), [](const Entry& a, const Entry& b) {
      return a.id != b.id ? a.id < b.id : a.event < b.event;
    });
  }

  uint32_t find(int64_t id) const {
    if (!table_.empty()) return offset(id) < table_.size() ? table_[offset(id)] : kNone;
    const auto found = std::lower_bound(entries_.begin(), entries_.end(), id,
                                        [](const Entry& e, int64_t key) { return e.id < key; });
    return found != entries_.end() && found->id == id ? found->event : kNone;
  }

 private:
  struct Entry {
    int64_t id;
    uint32_t event;
  };
  static constexpr uint64_t kTableSlotsPerEntry = 16;  // 64 bytes of table at most per event

  uint64_t offset(int64_t id) const {
    return static_cast<uint64_t>(id) - static_cast<uint64_t>(low_);
  }

  std::vector<Entry> entries_;
  std::vector<uint32_t> table_;
  int64_t low_ = 0;
};

}  // namespace epilogue::trace
