// SPDX-License-Identifier: Apache-2.0
// The caching allocator: alignment, reuse, exact statistics, events, threads.
#include "core/allocator.h"

#include <latch>

#include "epilogue/tensor.h"
#include "errors/message_of.h"
#include "support/test.h"

// Under a sanitizer, memory that cannot be had is a null pointer, as it is without one.
extern "C" const char* __asan_default_options() { return "allocator_may_return_null=1"; }
extern "C" const char* __tsan_default_options() { return "allocator_may_return_null=1"; }

namespace epilogue::allocator_test {

using test::message_of;

// Starts each test from an allocator without cached blocks.
class Allocator : public testing::Test {
 protected:
  void SetUp() override {
    release_cached_memory();
    reset_peak_memory();
    start_ = memory_stats();
  }
  int64_t live() const { return memory_stats().allocated_bytes - start_.allocated_bytes; }
  int64_t peak() const { return memory_stats().peak_allocated_bytes - start_.allocated_bytes; }
  int64_t reserved() const { return memory_stats().reserved_bytes - start_.reserved_bytes; }
  int64_t calls() const { return memory_stats().allocations - start_.allocations; }
  int64_t system_calls() const {
    return memory_stats().system_allocations - start_.system_allocations;
  }

 private:
  MemoryStats start_;
};

TEST_F(Allocator, BlocksAreAlignedAndWritableInFull) {
  std::vector<size_t> sizes;
  for (size_t n = 1; n <= 5000; ++n) sizes.push_back(n);
  for (size_t k = 13; k <= 26; ++k)
    for (const size_t n : {(size_t{1} << k) - 1, size_t{1} << k, (size_t{1} << k) + 1})
      sizes.push_back(n);
  for (const size_t n : sizes) {
    void* p = allocate_bytes(n);
    ASSERT_EQ(reinterpret_cast<uintptr_t>(p) % kTensorAlignment, 0U) << n;
    std::memset(p, 0xab, n);
    free_bytes(p, n);
  }
  EXPECT_EQ(live(), 0);
  EXPECT_EQ(calls(), static_cast<int64_t>(sizes.size()));
}

TEST_F(Allocator, LiveBlocksDoNotOverlap) {
  std::map<uintptr_t, size_t> blocks;
  for (size_t n = 1; n <= 3000; n += 7) {
    void* p = allocate_bytes(n);
    const auto begin = reinterpret_cast<uintptr_t>(p);
    const auto [it, fresh] = blocks.emplace(begin, n);
    ASSERT_TRUE(fresh);
    if (it != blocks.begin()) {
      ASSERT_LE(std::prev(it)->first + std::prev(it)->second, begin);
    }
    if (std::next(it) != blocks.end()) {
      ASSERT_LE(begin + n, std::next(it)->first);
    }
  }
  for (const auto& [begin, n] : blocks) free_bytes(reinterpret_cast<void*>(begin), n);
}

TEST_F(Allocator, BlocksWasteAtMostAQuarter) {
  auto check = [](size_t n) {
    const size_t block = block_bytes(n);
    ASSERT_GE(block, n);
    ASSERT_EQ(block % kTensorAlignment, 0U) << n;
    if (n > 256) {
      ASSERT_LE(block - n, n / 4) << n;
    }
    ASSERT_GE(block_bytes(n + 1), block) << n;
    ASSERT_EQ(block_bytes(block), block) << n;
  };
  for (size_t n = 1; n <= 70'000; ++n) check(n);
  for (size_t k = 17; k < 49; ++k)
    for (const size_t step : {size_t{0}, (size_t{1} << k) / 4, (size_t{1} << k) / 2})
      for (const size_t off : {0, 1, 63, 65}) check((size_t{1} << k) + step + off);
}

TEST_F(Allocator, ZeroBytesAreNoBlock) {
  EXPECT_EQ(allocate_bytes(0), nullptr);
  free_bytes(nullptr, 0);
  EXPECT_EQ(calls(), 0);
}

TEST_F(Allocator, FreedBlocksAreReused) {
  for (const size_t n : {size_t{40}, size_t{5000}, size_t{3} << 20}) {
    void* first = allocate_bytes(n);
    free_bytes(first, n);
    const int64_t before = system_calls();
    void* second = allocate_bytes(n);
    EXPECT_EQ(second, first);
    EXPECT_EQ(system_calls(), before);
    free_bytes(second, n);
  }
}

TEST_F(Allocator, StatisticsAreExact) {
  void* a = allocate_bytes(1000);
  void* b = allocate_bytes(3'000'000);
  EXPECT_EQ(live(), 3'001'000);
  EXPECT_EQ(peak(), 3'001'000);
  EXPECT_EQ(reserved(), static_cast<int64_t>(block_bytes(1000) + block_bytes(3'000'000)));
  EXPECT_EQ(calls(), 2);
  EXPECT_EQ(system_calls(), 2);
  free_bytes(b, 3'000'000);
  EXPECT_EQ(live(), 1000);
  EXPECT_EQ(peak(), 3'001'000);
  EXPECT_EQ(reserved(), static_cast<int64_t>(block_bytes(1000) + block_bytes(3'000'000)));
  reset_peak_memory();
  EXPECT_EQ(peak(), 1000);
  void* c = allocate_bytes(500);
  EXPECT_EQ(peak(), 1500);
  free_bytes(c, 500);
  free_bytes(a, 1000);
  EXPECT_EQ(live(), 0);
  EXPECT_EQ(calls(), 3);
}

TEST_F(Allocator, ReleaseReturnsCachedBlocksOnly) {
  // One block of every class up to 4 MiB: each must come back with its own size.
  std::vector<std::pair<void*, size_t>> blocks;
  for (size_t n = 64; n <= size_t{4} << 20; n = block_bytes(n + 1))
    blocks.emplace_back(allocate_bytes(n), n);
  void* kept = allocate_bytes(777);
  for (const auto& [p, n] : blocks) free_bytes(p, n);
  EXPECT_GT(reserved(), int64_t{16} << 20);
  release_cached_memory();
  EXPECT_EQ(reserved(), static_cast<int64_t>(block_bytes(777)));
  std::memset(kept, 1, 777);
  free_bytes(kept, 777);
  release_cached_memory();
  EXPECT_EQ(reserved(), 0);
}

TEST_F(Allocator, TensorsAccountForTheirBytes) {
  {
    const Tensor a = empty({10, 10});
    const Tensor b = a.detach();
    EXPECT_EQ(live(), 400);
    float memory[4] = {};
    const Tensor borrowed = Tensor::from_blob(memory, {4});
    EXPECT_EQ(live(), 400);
  }
  EXPECT_EQ(live(), 0);
}

TEST_F(Allocator, BlocksMayBeFreedByAnotherThread) {
  constexpr size_t kBlock = 12'345;
  std::vector<void*> blocks;
  for (int i = 0; i < 100; ++i) blocks.push_back(allocate_bytes(kBlock));
  std::thread([&] {
    for (void* p : blocks) free_bytes(p, kBlock);
  }).join();
  EXPECT_EQ(live(), 0);
  // The thread has ended, so its cache is ours.
  const int64_t before = system_calls();
  for (void*& p : blocks) p = allocate_bytes(kBlock);
  EXPECT_EQ(system_calls(), before);
  for (void* p : blocks) free_bytes(p, kBlock);
}

TEST_F(Allocator, AThreadsCacheSurvivesItsEnd) {
  std::thread([] {
    for (const size_t n : {100, 5000, 100'000}) free_bytes(allocate_bytes(n), n);
  }).join();
  EXPECT_GT(reserved(), 0);
  release_cached_memory();
  EXPECT_EQ(reserved(), 0);
}

struct TensorAtThreadExit {
  Tensor tensor;
};
thread_local TensorAtThreadExit late;

// Thread-local objects die in reverse order: this one holds a tensor when the cache is gone.
TEST_F(Allocator, ATensorMayOutliveItsThreadsCache) {
  std::thread([] {
    late.tensor = Tensor();  // constructs `late` before this thread's cache
    late.tensor = empty({1234});
  }).join();
  EXPECT_EQ(live(), 0);
  EXPECT_GT(reserved(), 0);
  release_cached_memory();
  EXPECT_EQ(reserved(), 0);
}

TEST_F(Allocator, ManyThreadsAtOnce) {
  auto churn = [](size_t seed) {
    std::vector<std::pair<unsigned char*, size_t>> mine;
    for (size_t i = 0; i < 3000; ++i) {
      seed = seed * 6364136223846793005 + 1442695040888963407;
      const size_t n = 1 + (seed >> 33) % (i % 50 == 0 ? 2'000'000 : 9000);
      auto* p = static_cast<unsigned char*>(allocate_bytes(n));
      p[0] = p[n - 1] = static_cast<unsigned char>(n);
      mine.emplace_back(p, n);
      if (mine.size() < 20) continue;
      auto& [q, m] = mine[seed % mine.size()];
      ASSERT_EQ(q[0], static_cast<unsigned char>(m));
      ASSERT_EQ(q[m - 1], static_cast<unsigned char>(m));
      free_bytes(q, m);
      std::swap(mine[seed % mine.size()], mine.back());
      mine.pop_back();
    }
    for (const auto& [q, m] : mine) free_bytes(q, m);
  };
  std::vector<std::thread> threads;
  for (size_t t = 0; t < 4; ++t) threads.emplace_back(churn, t);
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(live(), 0);
  EXPECT_EQ(calls(), 4 * 3000);
  release_cached_memory();
  EXPECT_EQ(reserved(), 0);
}

// Threads that live count for themselves; what is read meanwhile has it all the same.
TEST_F(Allocator, ThreadsThatLiveAreCounted) {
  constexpr int kThreads = 4;
  constexpr int kBlocks = 25;
  constexpr size_t kBytes = 1000;
  std::latch allocated(kThreads + 1);
  std::latch read(1);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&] {
      std::vector<void*> blocks;
      for (int i = 0; i < kBlocks; ++i) blocks.push_back(allocate_bytes(kBytes));
      allocated.arrive_and_wait();
      read.wait();
      for (void* block : blocks) free_bytes(block, kBytes);
    });
  allocated.arrive_and_wait();
  const int64_t all = kThreads * kBlocks * static_cast<int64_t>(kBytes);
  EXPECT_EQ(live(), all);
  EXPECT_EQ(peak(), all);
  EXPECT_EQ(calls(), kThreads * kBlocks);
  read.count_down();
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(live(), 0);
  constexpr int64_t kOwn = 64 << 10;  // of a thread, that the peak may miss
  EXPECT_GE(peak(), all - kThreads * kOwn);
  EXPECT_LE(peak(), all + kThreads * kOwn);
  reset_peak_memory();
  EXPECT_EQ(peak(), 0);
}

TEST_F(Allocator, RidiculousSizesThrow) {
  EXPECT_ERROR(allocate_bytes((size_t{1} << 49) + 1),
               "[allocate] expected a size below 512 TiB, got 562949953421313 bytes");
  EXPECT_ERROR(allocate_bytes(SIZE_MAX),
               "[allocate] expected a size below 512 TiB, got 18446744073709551615 bytes");
  // More than an address space holds.
  const std::string message = message_of([] { allocate_bytes(size_t{1} << 49); });
  EXPECT_TRUE(message.starts_with("[allocate] out of memory: wanted 512 TiB with ")) << message;
  EXPECT_EQ(live(), 0);
  EXPECT_EQ(reserved(), 0);
  EXPECT_EQ(calls(), 0);
}

class Ledger final : public MemoryObserver {
 public:
  Ledger() { set_memory_observer(this); }
  ~Ledger() override { set_memory_observer(nullptr); }
  void on_memory(Device, const void* address, int64_t bytes, int64_t total_allocated,
                 int64_t total_reserved) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    ++events;
    last_allocated = total_allocated;
    last_reserved = total_reserved;
    if (bytes > 0) {
      unmatched += live_.emplace(address, bytes).second ? 0 : 1;
    } else {
      const auto it = live_.find(address);
      unmatched += it != live_.end() && it->second == -bytes ? 0 : 1;
      if (it != live_.end()) live_.erase(it);
    }
  }
  void on_category(Device, const void* address, int64_t bytes, MemoryCategory category) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    categories.emplace_back(category, bytes);
    unmatched += live_.contains(address) ? 0 : 1;
  }
  std::vector<std::pair<MemoryCategory, int64_t>> categories;
  size_t live_blocks() const { return live_.size(); }
  int events = 0;
  int unmatched = 0;  // frees of unknown blocks or with other bytes, allocations of live blocks
  int64_t last_allocated = 0;
  int64_t last_reserved = 0;

 private:
  std::mutex mutex_;
  std::map<const void*, int64_t> live_;
};

TEST_F(Allocator, ObserverHearsWhatMemoryIsForWhenItIsSaidAndBeforeItIsFreed) {
  using Said = std::pair<MemoryCategory, int64_t>;
  Ledger ledger;
  {
    const Tensor a = empty({25});
    const Tensor untold = empty({25});
    set_memory_category(a, MemoryCategory::parameter);
    EXPECT_EQ(ledger.categories, std::vector<Said>{Said(MemoryCategory::parameter, 100)});
    float outside[4] = {};
    set_memory_category(Tensor::from_blob(outside, {4}), MemoryCategory::input);
  }
  EXPECT_EQ(ledger.categories, std::vector<Said>(2, Said(MemoryCategory::parameter, 100)));
  EXPECT_EQ(ledger.unmatched, 0);
  EXPECT_ERROR(set_memory_category({}, MemoryCategory::input),
               "[set_memory_category] expected a tensor, got undefined");
}

TEST_F(Allocator, ObserverHearsEveryAllocationAndFree) {
  Ledger ledger;
  {
    const Tensor a = empty({25});
    EXPECT_EQ(ledger.events, 1);
    EXPECT_EQ(ledger.live_blocks(), 1U);
    EXPECT_EQ(ledger.last_allocated, memory_stats().allocated_bytes);
    EXPECT_EQ(ledger.last_reserved, memory_stats().reserved_bytes);
    const Tensor b = empty({0});
    EXPECT_EQ(ledger.events, 1);
  }
  EXPECT_EQ(ledger.events, 2);
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t)
    threads.emplace_back([] {
      for (int64_t i = 1; i < 200; ++i) (void)empty({i});
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(ledger.events, 2 + 3 * 199 * 2);
  EXPECT_EQ(ledger.unmatched, 0);
  EXPECT_EQ(ledger.live_blocks(), 0U);
}

TEST_F(Allocator, RemovedObserverHearsNothing) {
  Ledger ledger;
  (void)empty({25});
  EXPECT_EQ(ledger.events, 2);
  set_memory_observer(nullptr);
  (void)empty({25});
  EXPECT_EQ(ledger.events, 2);
  EXPECT_EQ(memory_observer(), nullptr);
}

}  // namespace epilogue::allocator_test
