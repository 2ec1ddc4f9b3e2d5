// SPDX-License-Identifier: Apache-2.0
#include "trace/read/string_table.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "trace/read/same_text.h"

namespace epilogue::trace {
namespace {

constexpr size_t kFirstSlots = 1024;  // a power of two
constexpr size_t kBlockBytes = size_t{1} << 16;
constexpr char kJoint = '\n';
// Odd constants of wyhash's family.
constexpr uint64_t kSeed = 0xa0761d6478bd642fULL;
constexpr uint64_t kMultiplier = 0xe7037ed1a0b428dbULL;

uint64_t mix(uint64_t a, uint64_t b) {
  const auto product = static_cast<unsigned __int128>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

// True if `text` is the parts joined by line feeds.
bool is_joined(std::string_view text, std::span<const std::string_view> parts) {
  for (size_t i = 0; i < parts.size(); ++i) {
    const size_t n = parts[i].size();
    const bool is_last = i + 1 == parts.size();
    if (text.size() < n || (is_last ? text.size() != n : text.size() == n || text[n] != kJoint))
      return false;
    if (!same_text(text.substr(0, n), parts[i])) return false;
    text.remove_prefix(is_last ? n : n + 1);
  }
  return true;
}

}  // namespace

uint64_t hash_bytes(std::string_view text) {
  constexpr size_t kWord = sizeof(uint64_t);
  uint64_t hash = kSeed ^ text.size();
  const char* at = text.data();
  size_t left = text.size();
  // Four at a time: one multiplication need not wait for the one before it.
  if (left > 4 * kWord) {
    uint64_t lanes[4] = {hash, hash + 1, hash + 2, hash + 3};
    for (; left > 4 * kWord; left -= 4 * kWord, at += 4 * kWord)
      for (size_t i = 0; i < 4; ++i)
        lanes[i] = mix(lanes[i] ^ load_word<uint64_t>(at + i * kWord), kMultiplier);
    hash = mix(lanes[0] ^ lanes[1], kMultiplier) ^ mix(lanes[2] ^ lanes[3], kSeed);
  }
  for (; left > kWord; left -= kWord, at += kWord)
    hash = mix(hash ^ load_word<uint64_t>(at), kMultiplier);
  if (left == 0) return hash;
  uint64_t last = 0;
  std::memcpy(&last, at, left);
  return mix(hash ^ last, kMultiplier);
}

StringTable::StringTable() : slots_(kFirstSlots) { intern(""); }

uint32_t StringTable::intern(std::span<const std::string_view> parts) {
  uint64_t hash = 0;
  for (const std::string_view part : parts) hash = hash * kMultiplier + hash_bytes(part);
  size_t i = hash & (slots_.size() - 1);
  for (; slots_[i].data != nullptr; i = (i + 1) & (slots_.size() - 1)) {
    const Slot& slot = slots_[i];
    if (slot.hash == hash && is_joined({slot.data, slot.size}, parts)) return slot.id;
  }
  const std::string_view kept = store(parts);
  const auto id = static_cast<uint32_t>(count_++);
  slots_[i] = {hash, kept.data(), static_cast<uint32_t>(kept.size()), id};
  fresh_.push_back(kept);
  if (count_ * 2 > slots_.size()) grow();
  return id;
}

std::vector<std::string_view> StringTable::take_new() { return std::exchange(fresh_, {}); }

std::string_view StringTable::store(std::span<const std::string_view> parts) {
  size_t size = parts.size() - 1;
  for (const std::string_view part : parts) size += part.size();
  if (size > block_left_ || block_at_ == nullptr) {
    block_left_ = std::max(kBlockBytes, size);
    blocks_.push_back(std::make_unique_for_overwrite<char[]>(block_left_));
    block_at_ = blocks_.back().get();
  }
  char* const begin = block_at_;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (i > 0) *block_at_++ = kJoint;
    block_at_ = std::copy(parts[i].begin(), parts[i].end(), block_at_);
  }
  block_left_ -= size;
  return {begin, size};
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
