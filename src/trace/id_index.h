// SPDX-License-Identifier: Apache-2.0
// Finds events by the ids that join them: External id, correlation.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "epilogue/trace/event.h"

namespace epilogue::trace {

// From an id to the first event that carries it. Ids mostly count up: then a table does; ids that
// are scattered over 64 bits (HIP, merged files) are searched in a sorted list. Which it is follows
// from the ids, so each is given twice: announce() for each, then add() for each, then finish().
class IdIndex {
 public:
  void announce(int64_t id) {
    low_ = std::min(low_, id);
    high_ = std::max(high_, id);
    ++count_;
  }

  // True if find() sees an id as soon as it is added, before finish(). To ask once all are
  // announced.
  bool is_dense() const {
    return count_ == 0 || range() < count_ * kTableSlotsPerEntry + kTableSlotsPerEntry;
  }

  void add(int64_t id, uint32_t event) {
    if (table_.empty() && entries_.empty()) make_room();
    if (table_.empty()) {
      entries_.push_back({id, event});
    } else {
      uint32_t& slot = table_[offset(id)];
      slot = std::min(slot, event);
    }
  }

  void finish() {
    const auto comes_before = [](const Entry& a, const Entry& b) {
      return a.id != b.id ? a.id < b.id : a.event < b.event;
    };
    if (!std::is_sorted(entries_.begin(), entries_.end(), comes_before))
      std::sort(entries_.begin(), entries_.end(), comes_before);
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
  static constexpr uint64_t kTableSlotsPerEntry =
      4;  // 16 bytes of table at most per event, as in a list

  uint64_t range() const { return static_cast<uint64_t>(high_) - static_cast<uint64_t>(low_); }

  void make_room() {
    if (is_dense())
      table_.assign(range() + 1, kNone);
    else
      entries_.reserve(count_);
  }

  uint64_t offset(int64_t id) const {
    return static_cast<uint64_t>(id) - static_cast<uint64_t>(low_);
  }

  std::vector<Entry> entries_;
  std::vector<uint32_t> table_;
  int64_t low_ = std::numeric_limits<int64_t>::max();
  int64_t high_ = std::numeric_limits<int64_t>::min();
  size_t count_ = 0;
};

}  // namespace epilogue::trace
