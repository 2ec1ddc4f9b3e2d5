// SPDX-License-Identifier: Apache-2.0
#include "trace/read/string_table.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace epilogue::trace {
namespace {

constexpr size_t kFirstSlots = 1024;  // a power of two
constexpr size_t kBlockBytes = size_t{1} << 16;
// Odd constants of wyhash's family.
constexpr uint64_t kSeed = 0xa0761d6478bd642fULL;
constexpr uint64_t kMultiplier = 0xe7037ed1a0b428dbULL;

uint64_t mix(uint64_t a, uint64_t b) {
  const auto product = static_cast<unsigned __int128>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

uint64_t load(const char* from, size_t bytes) {
  uint64_t word = 0;
  std::memcpy(&word, from, bytes);
  return word;
}

}  // namespace

uint64_t hash_bytes(std::string_view text) {
  uint64_t hash = kSeed ^ text.size();
  const char* at = text.data();
  size_t left = text.size();
  for (; left > sizeof(uint64_t); left -= sizeof(uint64_t), at += sizeof(uint64_t))
    hash = mix(hash ^ load(at, sizeof(uint64_t)), kMultiplier);
  return left == 0 ? hash : mix(hash ^ load(at, left), kMultiplier);
}

StringTable::StringTable() : slots_(kFirstSlots) { intern(""); }

uint32_t StringTable::intern(std::string_view text) {
  const uint64_t hash = hash_bytes(text);
  size_t i = hash & (slots_.size() - 1);
  for (; slots_[i].data != nullptr; i = (i + 1) & (slots_.size() - 1)) {
    const Slot& slot = slots_[i];
    if (slot.hash == hash && std::string_view(slot.data, slot.size) == text) return slot.id;
  }
  const std::string_view kept = store(text);
  const auto id = static_cast<uint32_t>(count_++);
  slots_[i] = {hash, kept.data(), static_cast<uint32_t>(kept.size()), id};
  fresh_.push_back(kept);
  if (count_ * 2 > slots_.size()) grow();
  return id;
}

std::vector<std::string_view> StringTable::take_new() { return std::exchange(fresh_, {}); }

std::string_view StringTable::store(std::string_view text) {
  if (text.size() > block_left_ || block_at_ == nullptr) {
    block_left_ = std::max(kBlockBytes, text.size());
    blocks_.push_back(std::make_unique_for_overwrite<char[]>(block_left_));
    block_at_ = blocks_.back().get();
  }
  char* const to = block_at_;
  std::copy(text.begin(), text.end(), to);
  block_at_ += text.size();
  block_left_ -= text.size();
  return {to, text.size()};
}

void StringTable::grow() {
  std::vector<Slot> old(slots_.size() * 2);
  old.swap(slots_);
  for (const Slot& slot : old) {
    if (slot.data == nullptr) continue;
    size_t i = slot.hash & (slots_.size() - 1);
    while (slots_[i].data != nullptr) i = (i + 1) & (slots_.size() - 1);
    slots_[i] = slot;
  }
}

}  // namespace epilogue::trace
