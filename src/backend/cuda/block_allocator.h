// SPDX-License-Identifier: Apache-2.0
// The caching allocator of device memory: PyTorch's block sizes and pools (c10/cuda,
// CUDACachingAllocator), so that its numbers mean what people know. It knows no CUDA: where
// segments come from is an interface.
//
//   requests   rounded up to 512 bytes
//   segments   small pool (requests of at most 1 MiB): 2 MiB; large pool: 20 MiB for requests below
//              10 MiB, else the request rounded up to 2 MiB
//   blocks     best fit; split where a small block leaves 512 bytes, a large one more than 1 MiB;
//              merged with free neighbours of the segment when freed
//
// All work is in one stream, so a freed block may be given out again at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <unordered_map>

#include "epilogue/tensor.h"

namespace epilogue::cuda {

inline constexpr size_t kMinBlockBytes = 512;
inline constexpr size_t kSmallRequestBytes = size_t{1} << 20;
inline constexpr size_t kSmallSegmentBytes = size_t{2} << 20;
inline constexpr size_t kLargeRequestBytes = size_t{10} << 20;
inline constexpr size_t kLargeSegmentBytes = size_t{20} << 20;
inline constexpr size_t kSegmentRounding = size_t{2} << 20;

// The size of the block that serves a request, and of the segment it is cut from.
size_t block_bytes(size_t request);
size_t segment_bytes(size_t block);

// Where segments come from: the device, or a test.
class SegmentSource {
 public:
  virtual ~SegmentSource() = default;
  // nullptr when memory is exhausted.
  virtual void* allocate(size_t bytes) = 0;
  // Nothing may use the segment any more; the source waits for work under way.
  virtual void free(void* segment) = 0;
};

// Hears of every block that is given out (bytes > 0, as requested) or taken back (bytes < 0).
using BlockListener =
    std::function<void(const void* address, int64_t bytes, int64_t allocated, int64_t reserved)>;

struct BlockStats {
  MemoryStats memory;           // allocated: the blocks given out, rounded as PyTorch counts
  int64_t requested_bytes = 0;  // live, as requested
  int64_t segments = 0;
  int64_t inactive_split_bytes = 0;  // free parts of segments that are partly in use
  int64_t retries = 0;               // requests that first had to return the cache
};

// Thread-safe. Segments that are still held when it dies are not returned.
class BlockAllocator {
 public:
  explicit BlockAllocator(SegmentSource& source, BlockListener listener = {});
  ~BlockAllocator();
  BlockAllocator(const BlockAllocator&) = delete;
  BlockAllocator& operator=(const BlockAllocator&) = delete;

  // nullptr for zero bytes. Throws Error with the statistics when memory is exhausted.
  void* allocate(size_t bytes);
  // An address that allocate() gave, or nullptr.
  void free(void* address) noexcept;
  // Returns segments without live blocks to the source.
  void release_cached();
  BlockStats stats() const;
  void reset_peak();

 private:
  struct Block;
  struct BySize {
    bool operator()(const Block* a, const Block* b) const;
  };
  using Pool = std::set<Block*, BySize>;

  Pool& pool_of(const Block& block);
  Block* take(size_t bytes, bool is_small);
  Block* new_segment(size_t bytes, bool is_small);
  void split(Block* block, size_t bytes);
  Block* merge(Block* block, Block* neighbour);
  void release_cached_locked();
  [[noreturn]] void fail(size_t bytes) const;

  SegmentSource& source_;
  BlockListener listener_;
  mutable std::mutex mutex_;
  std::unordered_map<const void*, std::unique_ptr<Block>> blocks_;  // all, by address
  Pool small_;                                                      // free blocks
  Pool large_;
  BlockStats stats_;
};

}  // namespace epilogue::cuda
