// SPDX-License-Identifier: Apache-2.0
#include "profile/memory_categories.h"

#include <algorithm>
#include <optional>
#include <unordered_map>

namespace epilogue::profiler {
namespace {

static_assert(static_cast<int>(epilogue::MemoryCategory::unknown) ==
              static_cast<int>(MemoryCategory::unknown));

struct Moment {
  int64_t ticks;
  // At one tick an allocation comes before what is said of it, a free after.
  enum class Kind : uint8_t { allocation, said, freed } kind;
  size_t buffer;
  size_t index;  // in the buffer's memory records
  const MemoryRecord* memory;
  const CategoryRecord* category;
};

std::vector<Moment> moments_of(const std::vector<std::shared_ptr<ThreadBuffer>>& buffers) {
  std::vector<Moment> moments;
  for (size_t b = 0; b < buffers.size(); ++b) {
    size_t i = 0;
    buffers[b]->memory.for_each([&](const MemoryRecord& r) {
      const auto kind = r.bytes > 0 ? Moment::Kind::allocation : Moment::Kind::freed;
      moments.push_back({r.ticks, kind, b, i++, &r, nullptr});
    });
    buffers[b]->categories.for_each([&](const CategoryRecord& r) {
      moments.push_back({r.ticks, Moment::Kind::said, b, 0, nullptr, &r});
    });
  }
  std::stable_sort(moments.begin(), moments.end(), [](const Moment& x, const Moment& y) {
    return x.ticks != y.ticks ? x.ticks < y.ticks : x.kind < y.kind;
  });
  return moments;
}

class Categorizer {
 public:
  explicit Categorizer(const std::vector<std::shared_ptr<ThreadBuffer>>& buffers) {
    for (const auto& buffer : buffers) {
      size_t count = 0;
      buffer->memory.for_each([&](const MemoryRecord&) { ++count; });
      result_.of.emplace_back(count, MemoryCategory::unknown);
    }
  }

  MemoryCategories run(const std::vector<Moment>& moments) {
    for (const Moment& m : moments) {
      if (m.kind == Moment::Kind::allocation) live_[m.memory->address] = {m, {}};
      if (m.kind == Moment::Kind::said) say(*m.category);
      if (m.kind == Moment::Kind::freed) release(m);
    }
    for (const auto& [address, block] : live_) set(block.allocated, category_of(block, nullptr));
    return std::move(result_);
  }

 private:
  struct Block {
    Moment allocated;
    std::optional<MemoryCategory> said;
  };

  void set(const Moment& m, MemoryCategory category) { result_.of[m.buffer][m.index] = category; }

  void say(const CategoryRecord& r) {
    if (const auto block = live_.find(r.address); block != live_.end()) {
      block->second.said = r.category;
      return;
    }
    const auto [known, is_new] = before_.try_emplace(r.address, r.category);
    // A trace's figures of the start are the host's.
    if (is_new && r.device.type == DeviceType::cpu)
      result_.at_start[static_cast<size_t>(known->second)] += r.bytes;
  }

  void release(const Moment& m) {
    if (const auto block = live_.find(m.memory->address); block != live_.end()) {
      const MemoryCategory category = category_of(block->second, &m);
      set(block->second.allocated, category);
      set(m, category);
      live_.erase(block);
    } else if (const auto known = before_.find(m.memory->address); known != before_.end()) {
      set(m, known->second);
      before_.erase(known);
    }
  }

  // `freed` is null where the block outlives the session.
  static MemoryCategory category_of(const Block& block, const Moment* freed) {
    if (block.said) return *block.said;
    const MemoryRecord& from = *block.allocated.memory;
    if (from.node == 0) return MemoryCategory::unknown;
    const bool within = freed != nullptr && freed->buffer == block.allocated.buffer &&
                        freed->memory->node == from.node;
    if (within) return MemoryCategory::temporary;
    return from.is_backward ? MemoryCategory::autograd_detail : MemoryCategory::activation;
  }

  MemoryCategories result_;
  std::unordered_map<const void*, Block> live_;
  std::unordered_map<const void*, MemoryCategory> before_;  // allocated before the session
};

}  // namespace

std::string MemoryCategories::at_start_json() const {
  std::string json;
  for (size_t c = 0; c < kMemoryCategories; ++c) {
    if (at_start[c] == 0) continue;
    json += json.empty() ? "" : ", ";
    json += '"';
    json += memory_category_name(static_cast<MemoryCategory>(c));
    json += "\": " + std::to_string(at_start[c]);
  }
  return "{" + json + "}";
}

MemoryCategories categorize_memory(const std::vector<std::shared_ptr<ThreadBuffer>>& buffers) {
  return Categorizer(buffers).run(moments_of(buffers));
}

}  // namespace epilogue::profiler
