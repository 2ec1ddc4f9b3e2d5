// SPDX-License-Identifier: Apache-2.0
// ChunkList: one thread appends, another may read what was published, no locks.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

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
      spares().put(c);
      c = next;
    }
  }
  ChunkList(const ChunkList&) = delete;
  ChunkList& operator=(const ChunkList&) = delete;

  void push_back(T value) {
    next() = std::move(value);
    publish();
  }

  // The next element, as an earlier session may have left it, to be filled in place; publish() then
  // adds it.
  T& next() {
    if (last_ == nullptr || last_count_ == kChunk) add_chunk();
    return last_->items[last_count_];
  }
  void publish() { last_->count.store(++last_count_, std::memory_order_release); }

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
  // Chunks of earlier sessions, kept because their pages are there already: a fresh one costs a
  // page fault per few events, while they are being timed.
  static constexpr size_t kMostSpares = 16;
  struct Spares {
    std::mutex mutex;
    std::vector<std::unique_ptr<Chunk>> chunks;

    Chunk* take() {
      const std::lock_guard<std::mutex> lock(mutex);
      if (chunks.empty()) return new Chunk();
      Chunk* chunk = chunks.back().release();
      chunks.pop_back();
      return chunk;
    }
    void put(Chunk* chunk) {
      const size_t used = chunk->count.load(std::memory_order_relaxed);
      for (size_t i = 0; i < used; ++i) chunk->items[i] = T();  // lets go of what it owns
      chunk->count.store(0, std::memory_order_relaxed);
      chunk->next.store(nullptr, std::memory_order_relaxed);
      const std::lock_guard<std::mutex> lock(mutex);
      if (chunks.size() < kMostSpares) {
        chunks.emplace_back(chunk);
      } else {
        delete chunk;
      }
    }
  };
  static Spares& spares() {
    static auto* spares = new Spares;
    return *spares;
  }

  void add_chunk() {
    Chunk* chunk = spares().take();
    (last_ == nullptr ? first_ : last_->next).store(chunk, std::memory_order_release);
    last_ = chunk;
    last_count_ = 0;
  }
  std::atomic<Chunk*> first_{nullptr};
  Chunk* last_ = nullptr;
  size_t last_count_ = 0;
};

}  // namespace epilogue::profiler
