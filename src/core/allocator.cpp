// SPDX-License-Identifier: Apache-2.0
#include "core/allocator.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstdlib>
#include <mutex>
#include <vector>

#include "base/assert.h"
#include "base/large_memory.h"
#include "base/units.h"
#include "core/backend.h"
#include "epilogue/base/error.h"
#include "epilogue/tensor.h"

namespace epilogue {
namespace {

// Classes: 64 * {1, 1.25, 1.5, 1.75} * 2^k, rounded up to 64. A request wastes at most a quarter.
constexpr size_t kMinBlock = 64;
constexpr int kClasses = 4 * 44;                       // up to 2^50 bytes
constexpr size_t kThreadCacheBlock = size_t{1} << 20;  // larger blocks go to the shared lists
constexpr size_t kThreadCacheBytes = size_t{32} << 20;
constexpr size_t kMappedBlock = 2 * kLargeBytes;
// A thread counts up to so many bytes by itself before it tells the others: calls of many threads
// that each allocate a small result would wait for one cache line otherwise.
constexpr int64_t kThreadPendingBytes = 64 << 10;

struct SizeClass {
  int index;
  size_t bytes;
};

SizeClass size_class(size_t bytes) {
  const size_t n = std::max(bytes, kMinBlock);
  const int k = std::bit_width(n - 1) - 1;  // 2^k < n <= 2^(k+1), except n == 64
  if (n == kMinBlock) return {0, kMinBlock};
  const size_t base = size_t{1} << k;
  const size_t step = base / 4;
  const size_t quarter = (n - base + step - 1) / step;  // 1..4
  const size_t block = (base + quarter * step + kMinBlock - 1) / kMinBlock * kMinBlock;
  return {4 * (k - 6) + static_cast<int>(quarter), block};
}

// The living threads' own counts (ThreadCounts) come on top.
struct Counters {
  std::atomic<int64_t> allocated{0};
  std::atomic<int64_t> peak{0};
  std::atomic<int64_t> reserved{0};
  std::atomic<int64_t> allocations{0};
  std::atomic<int64_t> system_allocations{0};
  std::atomic<int64_t> packed{0};
};
Counters counters;
std::atomic<MemoryObserver*> listener{nullptr};

void raise_peak(int64_t bytes) {
  int64_t peak = counters.peak.load(std::memory_order_relaxed);
  while (bytes > peak &&
         !counters.peak.compare_exchange_weak(peak, bytes, std::memory_order_relaxed)) {
  }
}

// Bytes that a thread has not published yet. Written by this thread alone, without locked
// instructions; read by all. With one thread all counts are exact; with more, the peak is exact but
// for kThreadPendingBytes of each.
class ThreadCounts {
 public:
  int64_t allocations() const { return allocations_.load(std::memory_order_relaxed); }
  int64_t pending() const { return pending_.load(std::memory_order_relaxed); }
  int64_t highest() const { return highest_.load(std::memory_order_relaxed); }
  void forget_highest() { highest_.store(pending(), std::memory_order_relaxed); }

  void add(int64_t bytes) {
    if (bytes > 0) allocations_.store(allocations() + 1, std::memory_order_relaxed);
    const int64_t now = pending() + bytes;
    pending_.store(now, std::memory_order_relaxed);
    if (now > highest()) highest_.store(now, std::memory_order_relaxed);
    if (now > kThreadPendingBytes || now < -kThreadPendingBytes) tell();
  }
  // Returns the bytes that are live.
  int64_t tell() {
    const int64_t change = pending();
    const int64_t before = counters.allocated.fetch_add(change, std::memory_order_relaxed);
    raise_peak(before + highest());
    pending_.store(0, std::memory_order_relaxed);
    highest_.store(0, std::memory_order_relaxed);
    return before + change;
  }

 private:
  std::atomic<int64_t> allocations_{0};
  std::atomic<int64_t> pending_{0};  // bytes
  std::atomic<int64_t> highest_{0};  // of pending_ since it was last published
};

struct FreeBlock {
  FreeBlock* next;
};

// Free blocks of all threads. Never destroyed: tensors may die after static destructors ran.
struct SharedLists {
  std::mutex mutex;
  std::vector<ThreadCounts*> threads;
  std::array<std::vector<void*>, kClasses> blocks;
};
SharedLists& shared_lists() {
  static auto* lists = new SharedLists;
  return *lists;
}

void return_to_system(void* block, size_t bytes) {
  counters.reserved.fetch_sub(static_cast<int64_t>(bytes), std::memory_order_relaxed);
  if (bytes >= kMappedBlock) return unmap_large(block, bytes);
  std::free(block);
}

// Intrusive lists of small blocks, without locks. Its blocks go to the shared lists when it ends.
class ThreadCache {
 public:
  ~ThreadCache() { flush(); }

  void* take(SizeClass c) {
    FreeBlock*& head = heads_[static_cast<size_t>(c.index)];
    if (head == nullptr) return nullptr;
    FreeBlock* block = head;
    head = block->next;
    bytes_ -= c.bytes;
    return block;
  }

  bool put(void* address, SizeClass c) {
    if (bytes_ + c.bytes > kThreadCacheBytes) return false;
    auto* block = static_cast<FreeBlock*>(address);
    FreeBlock*& head = heads_[static_cast<size_t>(c.index)];
    block->next = head;
    head = block;
    bytes_ += c.bytes;
    return true;
  }

  void flush() {
    SharedLists& shared = shared_lists();
    const std::lock_guard<std::mutex> lock(shared.mutex);
    for (size_t i = 0; i < heads_.size(); ++i) {
      for (FreeBlock* block = heads_[i]; block != nullptr;) {
        FreeBlock* next = block->next;
        shared.blocks[i].push_back(block);
        block = next;
      }
      heads_[i] = nullptr;
    }
    bytes_ = 0;
  }

 private:
  static constexpr size_t kSmallClasses = 4 * 15;  // covers kThreadCacheBlock
  std::array<FreeBlock*, kSmallClasses> heads_{};
  size_t bytes_ = 0;
};

// True once the thread's cache is gone: a tensor freed by a later thread-local destructor then goes
// to the shared lists. A variable of its own, as nothing in a destroyed object may be read.
constinit thread_local bool cache_is_gone = false;
struct CacheSlot;
// The thread's, once it has one: looking there needs no guard.
constinit thread_local CacheSlot* known_slot = nullptr;
struct CacheSlot {
  ThreadCache cache;
  ThreadCounts counts;

  CacheSlot() {
    SharedLists& shared = shared_lists();
    const std::lock_guard<std::mutex> lock(shared.mutex);
    shared.threads.push_back(&counts);
  }
  ~CacheSlot() {
    cache_is_gone = true;
    known_slot = nullptr;
    SharedLists& shared = shared_lists();
    const std::lock_guard<std::mutex> lock(shared.mutex);
    std::erase(shared.threads, &counts);
    counts.tell();
    counters.allocations.fetch_add(counts.allocations(), std::memory_order_relaxed);
  }
};
thread_local CacheSlot slot;

// Null once the thread's cache is gone.
CacheSlot* find_slot() {
  if (known_slot == nullptr && !cache_is_gone) [[unlikely]]
    known_slot = &slot;
  return known_slot;
}

struct Totals {
  int64_t allocations;
  int64_t allocated;
  int64_t peak;
};
Totals totals() {
  SharedLists& shared = shared_lists();
  const std::lock_guard<std::mutex> lock(shared.mutex);
  const int64_t published = counters.allocated.load(std::memory_order_relaxed);
  Totals t = {counters.allocations.load(std::memory_order_relaxed), published,
              counters.peak.load(std::memory_order_relaxed)};
  for (const ThreadCounts* thread : shared.threads) {
    t.allocations += thread->allocations();
    t.allocated += thread->pending();
    t.peak = std::max(t.peak, published + thread->highest());
  }
  t.peak = std::max(t.peak, t.allocated);
  return t;
}

void* take_shared(SizeClass c) {
  SharedLists& shared = shared_lists();
  const std::lock_guard<std::mutex> lock(shared.mutex);
  std::vector<void*>& list = shared.blocks[static_cast<size_t>(c.index)];
  if (list.empty()) return nullptr;
  void* block = list.back();
  list.pop_back();
  return block;
}

// Large activations and weights are swept end to end, on huge pages.
void* new_block(size_t bytes) {
  return bytes >= kMappedBlock ? map_large(bytes) : std::aligned_alloc(kTensorAlignment, bytes);
}

void* from_system(SizeClass c) {
  void* block = new_block(c.bytes);
  if (block == nullptr) {
    release_cached_memory();
    block = new_block(c.bytes);
  }
  if (block == nullptr) return nullptr;
  counters.reserved.fetch_add(static_cast<int64_t>(c.bytes), std::memory_order_relaxed);
  counters.system_allocations.fetch_add(1, std::memory_order_relaxed);
  return block;
}

// An allocation, or a free where bytes < 0.
void count_bytes(CacheSlot* own, const void* address, int64_t bytes) {
  if (own != nullptr) {
    own->counts.add(bytes);
  } else {
    if (bytes > 0) counters.allocations.fetch_add(1, std::memory_order_relaxed);
    raise_peak(counters.allocated.fetch_add(bytes, std::memory_order_relaxed) + bytes);
  }
  if (MemoryObserver* o = memory_observer(); o != nullptr) [[unlikely]]
    o->on_memory({}, address, bytes, totals().allocated,
                 counters.reserved.load(std::memory_order_relaxed));
}

}  // namespace

void set_memory_observer(MemoryObserver* o) { listener.store(o, std::memory_order_release); }
MemoryObserver* memory_observer() { return listener.load(std::memory_order_acquire); }

void announce_category(Device device, const void* address, int64_t bytes, MemoryCategory category) {
  if (MemoryObserver* o = memory_observer(); o != nullptr) [[unlikely]]
    o->on_category(device, address, bytes, category);
}

size_t block_bytes(size_t bytes) { return size_class(bytes).bytes; }

void* allocate_bytes(size_t bytes) {
  if (bytes == 0) return nullptr;
  if (bytes > (size_t{1} << 49))
    throw Error("[allocate] expected a size below 512 TiB, got " + std::to_string(bytes) +
                " bytes");
  const SizeClass c = size_class(bytes);
  CacheSlot* const own = find_slot();
  void* block = nullptr;
  if (c.bytes <= kThreadCacheBlock && own != nullptr) block = own->cache.take(c);
  if (block == nullptr) block = take_shared(c);
  if (block == nullptr) block = from_system(c);
  if (block == nullptr) {
    const MemoryStats s = memory_stats();
    throw Error("[allocate] out of memory: wanted " + format_bytes(static_cast<double>(bytes)) +
                " with " + format_bytes(static_cast<double>(s.allocated_bytes)) + " live and " +
                format_bytes(static_cast<double>(s.reserved_bytes)) + " reserved");
  }
  count_bytes(own, block, static_cast<int64_t>(bytes));
  return block;
}

void free_bytes(void* address, size_t bytes) noexcept {
  if (address == nullptr) return;
  CacheSlot* const own = find_slot();
  count_bytes(own, address, -static_cast<int64_t>(bytes));
  const SizeClass c = size_class(bytes);
  if (c.bytes <= kThreadCacheBlock && own != nullptr && own->cache.put(address, c)) return;
  SharedLists& shared = shared_lists();
  const std::lock_guard<std::mutex> lock(shared.mutex);
  shared.blocks[static_cast<size_t>(c.index)].push_back(address);
}

void count_packed_bytes(int64_t bytes) {
  counters.packed.fetch_add(bytes, std::memory_order_relaxed);
}

MemoryStats memory_stats(Device device) {
  if (device.type != DeviceType::cpu) return device_backend(device).memory()->stats();
  const Totals t = totals();
  return {.allocated_bytes = t.allocated,
          .peak_allocated_bytes = t.peak,
          .reserved_bytes = counters.reserved.load(std::memory_order_relaxed),
          .allocations = t.allocations,
          .system_allocations = counters.system_allocations.load(std::memory_order_relaxed),
          .packed_bytes = counters.packed.load(std::memory_order_relaxed)};
}

void reset_peak_memory(Device device) {
  if (device.type != DeviceType::cpu) return device_backend(device).memory()->reset_peak();
  const int64_t live = totals().allocated;
  SharedLists& shared = shared_lists();
  const std::lock_guard<std::mutex> lock(shared.mutex);
  for (ThreadCounts* thread : shared.threads) thread->forget_highest();
  counters.peak.store(live, std::memory_order_relaxed);
}

void release_cached_memory(Device device) {
  if (device.type != DeviceType::cpu) return device_backend(device).memory()->release_cached();
  if (CacheSlot* const own = find_slot(); own != nullptr) own->cache.flush();
  SharedLists& shared = shared_lists();
  const std::lock_guard<std::mutex> lock(shared.mutex);
  for (size_t i = 0; i < shared.blocks.size(); ++i) {
    for (void* block : shared.blocks[i]) {
      // The class index names the block size; see size_class.
      const size_t quarter = i == 0 ? 0 : (i - 1) % 4 + 1;
      const size_t base = i == 0 ? kMinBlock : size_t{64} << ((i - 1) / 4);
      const size_t size =
          i == 0 ? kMinBlock
                 : (base + quarter * (base / 4) + kMinBlock - 1) / kMinBlock * kMinBlock;
      return_to_system(block, size);
    }
    shared.blocks[i].clear();
  }
}

}  // namespace epilogue
