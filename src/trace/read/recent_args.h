// SPDX-License-Identifier: Apache-2.0
// Runs of one kernel have equal args, but for their times: what was seen lately is stored once.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "epilogue/trace/event.h"

namespace epilogue::trace {

// Which entries of a table were appended lately, by a hash. It forgets: of two args that meet in a
// slot the later stays. So it has a fixed size, and args that never repeat cost a look, no memory.
template <class Args>
class RecentArgs {
 public:
  // The number of an entry of `table` equal to `args`; appended unless one is known. The table may
  // have been cleared since the last call.
  uint32_t append_once(std::vector<Args>& table, const Args& args, uint64_t hash) {
    uint32_t& at = slots_[hash % kSlots];
    if (at < table.size() && table[at] == args) return at;
    at = static_cast<uint32_t>(table.size());
    table.push_back(args);
    return at;
  }

 private:
  static constexpr size_t kSlots = 1024;
  std::array<uint32_t, kSlots> slots_ = {};
};

// Hashes the members in which kernels differ.
uint64_t hash_args(const KernelArgs& args);
uint64_t hash_args(const RuntimeArgs& args);

}  // namespace epilogue::trace
