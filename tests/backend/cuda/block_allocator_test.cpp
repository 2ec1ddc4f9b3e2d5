// SPDX-License-Identifier: Apache-2.0
// The device allocator's rules over memory that is not a device's: PyTorch's numbers
// (c10/cuda/CUDACachingAllocator).
#include "backend/cuda/block_allocator.h"

#include "epilogue/base/error.h"
#include "support/test.h"

namespace epilogue::cuda::block_allocator_test {

constexpr size_t kMiB = size_t{1} << 20;

// Hands out addresses of nothing, up to a limit.
class FakeSegments final : public SegmentSource {
 public:
  explicit FakeSegments(size_t limit = size_t{1} << 40) : limit_(limit) {}
  void* allocate(size_t bytes) override {
    if (held + bytes > limit_) return nullptr;
    held += bytes;
    sizes.push_back(bytes);
    void* const address = reinterpret_cast<void*>(next_);
    live[address] = bytes;
    next_ += bytes + 4 * kMiB;  // a gap: neighbours of other segments must not be merged
    return address;
  }
  void free(void* segment) override {
    held -= live.at(segment);
    live.erase(segment);
  }
  size_t held = 0;
  std::vector<size_t> sizes;
  std::map<void*, size_t> live;

 private:
  size_t limit_;
  uintptr_t next_ = uintptr_t{1} << 32;
};

TEST(BlockAllocator, RequestsAreRoundedUpTo512Bytes) {
  EXPECT_EQ(block_bytes(1), 512U);
  EXPECT_EQ(block_bytes(512), 512U);
  EXPECT_EQ(block_bytes(513), 1024U);
}

TEST(BlockAllocator, SegmentsHavePyTorchsSizes) {
  EXPECT_EQ(segment_bytes(512), 2 * kMiB);
  EXPECT_EQ(segment_bytes(kMiB), 2 * kMiB);
  EXPECT_EQ(segment_bytes(kMiB + 512), 20 * kMiB);
  EXPECT_EQ(segment_bytes(10 * kMiB - 512), 20 * kMiB);
  EXPECT_EQ(segment_bytes(10 * kMiB), 10 * kMiB);
  EXPECT_EQ(segment_bytes(11 * kMiB + 512), 12 * kMiB);
}

TEST(BlockAllocator, SmallBlocksShareASegmentOneAfterTheOther) {
  FakeSegments source;
  BlockAllocator allocator(source);
  auto* const a = static_cast<std::byte*>(allocator.allocate(100));
  auto* const b = static_cast<std::byte*>(allocator.allocate(1000));
  EXPECT_EQ(b - a, 512);
  EXPECT_EQ(source.sizes, std::vector<size_t>{2 * kMiB});
  const BlockStats s = allocator.stats();
  EXPECT_EQ(s.memory.allocated_bytes, 512 + 1024);
  EXPECT_EQ(s.requested_bytes, 1100);
  EXPECT_EQ(s.memory.reserved_bytes, static_cast<int64_t>(2 * kMiB));
  EXPECT_EQ(s.inactive_split_bytes, static_cast<int64_t>(2 * kMiB - 1536));
}

TEST(BlockAllocator, AFreedBlockIsGivenOutAgainAtOnce) {
  FakeSegments source;
  BlockAllocator allocator(source);
  void* const a = allocator.allocate(600);
  void* const b = allocator.allocate(600);
  allocator.free(a);
  EXPECT_EQ(allocator.allocate(900), a);  // 1024 bytes too
  allocator.free(b);
  EXPECT_EQ(allocator.stats().memory.system_allocations, 1);
}

TEST(BlockAllocator, TheSmallestBlockThatFitsIsTaken) {
  FakeSegments source;
  BlockAllocator allocator(source);
  void* const wide = allocator.allocate(4096);
  void* const wall = allocator.allocate(512);
  void* const narrow = allocator.allocate(1024);
  void* const end = allocator.allocate(512);
  allocator.free(wide);
  allocator.free(narrow);
  EXPECT_EQ(allocator.allocate(1024), narrow);
  EXPECT_EQ(allocator.allocate(1024), wide);
  allocator.free(wall);
  allocator.free(end);
}

TEST(BlockAllocator, NeighboursAreMergedWhenFreed) {
  FakeSegments source;
  BlockAllocator allocator(source);
  std::vector<void*> blocks;
  for (int i = 0; i < 4; ++i) blocks.push_back(allocator.allocate(512 * kMiB / 1024));  // 512 KiB
  EXPECT_EQ(allocator.stats().inactive_split_bytes, 0);  // the segment is full
  for (const int i : {0, 2, 1, 3}) allocator.free(blocks[static_cast<size_t>(i)]);
  const BlockStats s = allocator.stats();
  EXPECT_EQ(s.inactive_split_bytes, 0);  // one block again
  EXPECT_EQ(s.segments, 1);
  EXPECT_EQ(allocator.allocate(kMiB), blocks[0]);
}

TEST(BlockAllocator, ALargeBlockKeepsARestOfUpToOneMebibyte) {
  FakeSegments source;
  BlockAllocator allocator(source);
  void* const a = allocator.allocate(19 * kMiB);  // a segment of its own size, 20 MiB
  EXPECT_EQ(allocator.stats().memory.allocated_bytes, static_cast<int64_t>(20 * kMiB));
  allocator.free(a);
  void* const b = allocator.allocate(19 * kMiB - 512);  // leaves 1 MiB and 512 bytes: split
  EXPECT_EQ(allocator.stats().memory.allocated_bytes, static_cast<int64_t>(19 * kMiB - 512));
  allocator.free(b);
}

TEST(BlockAllocator, PoolsDoNotMix) {
  FakeSegments source;
  BlockAllocator allocator(source);
  allocator.free(allocator.allocate(4 * kMiB));  // 20 MiB of the large pool are free
  void* const small = allocator.allocate(512);
  EXPECT_EQ(source.sizes, (std::vector<size_t>{20 * kMiB, 2 * kMiB}));
  allocator.free(small);
}

TEST(BlockAllocator, ReleaseReturnsOnlySegmentsWithoutLiveBlocks) {
  FakeSegments source;
  BlockAllocator allocator(source);
  void* const kept = allocator.allocate(512);
  allocator.free(allocator.allocate(12 * kMiB));
  allocator.release_cached();
  EXPECT_EQ(source.held, 2 * kMiB);
  EXPECT_EQ(allocator.stats().memory.reserved_bytes, static_cast<int64_t>(2 * kMiB));
  allocator.free(kept);
  allocator.release_cached();
  EXPECT_EQ(source.held, 0U);
  EXPECT_EQ(allocator.stats().inactive_split_bytes, 0);
}

TEST(BlockAllocator, AFullDeviceIsTriedAgainAfterReturningTheCache) {
  FakeSegments source(24 * kMiB);
  BlockAllocator allocator(source);
  allocator.free(allocator.allocate(14 * kMiB));
  void* const a = allocator.allocate(20 * kMiB);
  EXPECT_NE(a, nullptr);
  EXPECT_EQ(allocator.stats().retries, 1);
  EXPECT_EQ(source.live.size(), 1U);
  try {
    allocator.allocate(8 * kMiB);
    FAIL() << "24 MiB cannot hold 40";
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(),
                 "[cuda] out of memory: wanted 8.00 MiB with 20.0 MiB live, 20.0 MiB reserved and "
                 "0 B free in pieces");
  }
  allocator.free(a);
}

TEST(BlockAllocator, ZeroBytesAreNoBlock) {
  FakeSegments source;
  BlockAllocator allocator(source);
  EXPECT_EQ(allocator.allocate(0), nullptr);
  allocator.free(nullptr);
  EXPECT_EQ(allocator.stats().memory.allocations, 0);
}

TEST(BlockAllocator, TheListenerHearsOfEveryBlockWithTheTotals) {
  FakeSegments source;
  struct Heard {
    const void* address;
    int64_t bytes;
    int64_t allocated;
    int64_t reserved;
  };
  std::vector<Heard> heard;
  BlockAllocator allocator(
      source, [&](const void* address, int64_t bytes, int64_t allocated, int64_t reserved) {
        heard.push_back({address, bytes, allocated, reserved});
      });
  void* const a = allocator.allocate(700);
  allocator.free(a);
  ASSERT_EQ(heard.size(), 2U);
  EXPECT_EQ(heard[0].address, a);
  EXPECT_EQ(heard[0].bytes, 1024);
  EXPECT_EQ(heard[0].allocated, 1024);
  EXPECT_EQ(heard[0].reserved, static_cast<int64_t>(2 * kMiB));
  EXPECT_EQ(heard[1].bytes, -1024);
  EXPECT_EQ(heard[1].allocated, 0);
}

// Any sequence: no two live blocks overlap, and at the end everything is whole again.
TEST(BlockAllocator, LiveBlocksNeverOverlap) {
  FakeSegments source;
  BlockAllocator allocator(source);
  std::mt19937 random(7);
  std::map<std::byte*, size_t> live;
  for (int i = 0; i < 5000; ++i) {
    if (live.empty() || random() % 5 < 3) {
      const size_t bytes = size_t{1} << (random() % 25);
      auto* const address = static_cast<std::byte*>(allocator.allocate(bytes));
      const auto after = live.lower_bound(address);
      if (after != live.end()) {
        ASSERT_LE(address + bytes, after->first);
      }
      if (after != live.begin()) {
        ASSERT_LE(std::prev(after)->first + std::prev(after)->second, address);
      }
      live[address] = bytes;
    } else {
      auto it = live.begin();
      std::advance(it, random() % live.size());
      allocator.free(it->first);
      live.erase(it);
    }
  }
  for (const auto& [address, bytes] : live) allocator.free(address);
  const BlockStats s = allocator.stats();
  EXPECT_EQ(s.memory.allocated_bytes, 0);
  EXPECT_EQ(s.requested_bytes, 0);
  EXPECT_EQ(s.inactive_split_bytes, 0);
  allocator.release_cached();
  EXPECT_EQ(source.held, 0U);
}

}  // namespace epilogue::cuda::block_allocator_test
