// SPDX-License-Identifier: Apache-2.0
// Numbers for texts: a StringPool's little brother that is fast and remembers what is new.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

namespace epilogue::trace {

// Distinct texts count from 0; 0 is "". Not thread-safe, but the views that take_new() hands out
// stay valid and unchanged while the table lives.
class StringTable {
 public:
  StringTable();

  uint32_t intern(std::string_view text) { return intern(std::span(&text, 1)); }
  // As intern() of the parts joined by line feeds, which are joined only if they are new.
  uint32_t intern(std::span<const std::string_view> parts);
  size_t size() const { return count_; }
  // The texts that were interned since the last call, in order of their ids.
  std::vector<std::string_view> take_new();

 private:
  struct Slot {
    uint64_t hash = 0;
    const char* data = nullptr;  // null: free
    uint32_t size = 0;
    uint32_t id = 0;
  };
  std::string_view store(std::span<const std::string_view> parts);
  void grow();

  std::vector<Slot> slots_;
  std::vector<std::unique_ptr<char[]>> blocks_;
  size_t block_left_ = 0;
  char* block_at_ = nullptr;
  size_t count_ = 0;
  std::vector<std::string_view> fresh_;
};

// A fast hash for tables that live in one process.
uint64_t hash_bytes(std::string_view text);

}  // namespace epilogue::trace
