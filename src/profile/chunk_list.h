// SPDX-License-Identifier: Apache-2.0
// ChunkList: one thread appends, another may read what was published, no locks.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <memory>
#include <utility>

namespace epilogue::profiler {

// Elements never move. push_back belongs to the owning thread; for_each may run on another one and
// sees every element whose push_back happened before.
template <class T, size_t kChunk = 1024>
class ChunkList {
 public:
  ChunkList() = default;
  ~ChunkList() {
    for (Chunk* c = first_.load(); c != nullptr;) {
      Chunk* next = c->next.load();
      delete c;
      c = next;
    }
  }
  ChunkList(const ChunkList&) = delete;
  ChunkList& operator=(const ChunkList&) = delete;

  T& push_back(T value) {
    if (last_ == nullptr || last_count_ == kChunk) add_chunk();
    T& slot = last_->items[last_count_];
    slot = std::move(value);
    last_->count.store(++last_count_, std::memory_order_release);
    return slot;
  }

  template <class Body>
  void for_each(Body&& body) const {
    for (const Chunk* c = first_.load(std::memory_order_acquire); c != nullptr;
         c = c->next.load(std::memory_order_acquire)) {
      const size_t n = c->count.load(std::memory_order_acquire);
      for (size_t i = 0; i < n; ++i) body(c->items[i]);
    }
  }

 private:
  struct Chunk {
    std::array<T, kChunk> items;
    std::atomic<size_t> count{0};
    std::atomic<Chunk*> next{nullptr};
  };
  void add_chunk() {
    // Value-initialised: the pages are touched here, not one by one while events are timed.
    auto* chunk = new Chunk();
    (last_ == nullptr ? first_ : last_->next).store(chunk, std::memory_order_release);
    last_ = chunk;
    last_count_ = 0;
  }
  std::atomic<Chunk*> first_{nullptr};
  Chunk* last_ = nullptr;
  size_t last_count_ = 0;
};

}  // namespace epilogue::profiler
