// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/block_allocator.h"

#include <algorithm>

#include "base/assert.h"
#include "base/units.h"
#include "epilogue/base/error.h"

namespace epilogue::cuda {
namespace {

size_t round_up(size_t bytes, size_t step) { return (bytes + step - 1) / step * step; }

std::string text(size_t bytes) { return format_bytes(static_cast<double>(bytes)); }
std::string text(int64_t bytes) { return format_bytes(static_cast<double>(bytes)); }

// More than any device has: sums of sizes stay far from overflow.
constexpr size_t kMostBytes = size_t{1} << 49;

}  // namespace

size_t block_bytes(size_t request) {
  return std::max(round_up(request, kMinBlockBytes), kMinBlockBytes);
}

size_t segment_bytes(size_t block) {
  if (block <= kSmallRequestBytes) return kSmallSegmentBytes;
  if (block < kLargeRequestBytes) return kLargeSegmentBytes;
  return round_up(block, kSegmentRounding);
}

// A part of a segment. Its neighbours in the segment are `before` and `after`.
struct BlockAllocator::Block {
  std::byte* address;
  size_t bytes;
  bool is_small;
  size_t requested = 0;  // 0: free
  Block* before = nullptr;
  Block* after = nullptr;

  bool is_segment() const { return before == nullptr && after == nullptr; }
};

bool BlockAllocator::BySize::operator()(const Block* a, const Block* b) const {
  return a->bytes != b->bytes ? a->bytes < b->bytes : a->address < b->address;
}

BlockAllocator::BlockAllocator(SegmentSource& source, BlockListener listener)
    : source_(source), listener_(std::move(listener)) {}
BlockAllocator::~BlockAllocator() = default;

BlockAllocator::Pool& BlockAllocator::pool_of(const Block& block) {
  return block.is_small ? small_ : large_;
}

void* BlockAllocator::allocate(size_t bytes) {
  if (bytes == 0) return nullptr;
  const std::lock_guard<std::mutex> lock(mutex_);
  if (bytes > kMostBytes) fail(bytes);
  const size_t size = block_bytes(bytes);
  const bool is_small = size <= kSmallRequestBytes;
  Block* block = take(size, is_small);
  if (block == nullptr) block = new_segment(size, is_small);
  if (block == nullptr) {
    ++stats_.retries;
    release_cached_locked();
    block = new_segment(size, is_small);
  }
  if (block == nullptr) fail(bytes);
  split(block, size);
  block->requested = bytes;
  MemoryStats& memory = stats_.memory;
  ++memory.allocations;
  memory.allocated_bytes += static_cast<int64_t>(block->bytes);
  memory.peak_allocated_bytes = std::max(memory.peak_allocated_bytes, memory.allocated_bytes);
  stats_.requested_bytes += static_cast<int64_t>(bytes);
  if (listener_)
    listener_(block->address, static_cast<int64_t>(block->bytes), memory.allocated_bytes,
              memory.reserved_bytes);
  return block->address;
}

// The smallest free block that is large enough.
BlockAllocator::Block* BlockAllocator::take(size_t bytes, bool is_small) {
  Pool& pool = is_small ? small_ : large_;
  Block wanted{nullptr, bytes, is_small};
  const auto found = pool.lower_bound(&wanted);
  if (found == pool.end()) return nullptr;
  Block* const block = *found;
  pool.erase(found);
  if (!block->is_segment()) stats_.inactive_split_bytes -= static_cast<int64_t>(block->bytes);
  return block;
}

BlockAllocator::Block* BlockAllocator::new_segment(size_t bytes, bool is_small) {
  const size_t size = segment_bytes(bytes);
  void* const address = source_.allocate(size);
  if (address == nullptr) return nullptr;
  auto block = std::make_unique<Block>(Block{static_cast<std::byte*>(address), size, is_small});
  Block* const made = block.get();
  blocks_.emplace(address, std::move(block));
  ++stats_.segments;
  ++stats_.memory.system_allocations;
  stats_.memory.reserved_bytes += static_cast<int64_t>(size);
  return made;
}

// Cuts what a request leaves of a block, where the rest is worth keeping.
void BlockAllocator::split(Block* block, size_t bytes) {
  const size_t left = block->bytes - bytes;
  if (block->is_small ? left < kMinBlockBytes : left <= kSmallRequestBytes) return;
  auto rest = std::make_unique<Block>(Block{block->address + bytes, left, block->is_small});
  rest->before = block;
  rest->after = block->after;
  if (rest->after != nullptr) rest->after->before = rest.get();
  block->after = rest.get();
  block->bytes = bytes;
  pool_of(*block).insert(rest.get());
  stats_.inactive_split_bytes += static_cast<int64_t>(left);
  const void* const address = rest->address;
  blocks_.emplace(address, std::move(rest));
}

void BlockAllocator::free(void* address) noexcept {
  if (address == nullptr) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = blocks_.find(address);
  EPI_ASSERT(found != blocks_.end() && found->second->requested != 0,
             "a block that is freed was given out");
  Block* block = found->second.get();
  const auto bytes = static_cast<int64_t>(block->bytes);
  stats_.memory.allocated_bytes -= bytes;
  stats_.requested_bytes -= static_cast<int64_t>(block->requested);
  block->requested = 0;
  block = merge(block, block->before);
  block = merge(block, block->after);
  pool_of(*block).insert(block);
  if (!block->is_segment()) stats_.inactive_split_bytes += static_cast<int64_t>(block->bytes);
  if (listener_)
    listener_(address, -bytes, stats_.memory.allocated_bytes, stats_.memory.reserved_bytes);
}

// `block` is in no pool. Joins it with a free neighbour; the one with the lower address stays.
BlockAllocator::Block* BlockAllocator::merge(Block* block, Block* neighbour) {
  if (neighbour == nullptr || neighbour->requested != 0) return block;
  pool_of(*neighbour).erase(neighbour);
  stats_.inactive_split_bytes -= static_cast<int64_t>(neighbour->bytes);
  Block* const first = neighbour == block->before ? neighbour : block;
  Block* const second = first->after;
  first->bytes += second->bytes;
  first->after = second->after;
  if (first->after != nullptr) first->after->before = first;
  blocks_.erase(second->address);
  return first;
}

void BlockAllocator::release_cached() {
  const std::lock_guard<std::mutex> lock(mutex_);
  release_cached_locked();
}

void BlockAllocator::release_cached_locked() {
  for (Pool* const pool : {&small_, &large_})
    for (auto it = pool->begin(); it != pool->end();) {
      Block* const block = *it;
      if (!block->is_segment()) {
        ++it;
        continue;
      }
      source_.free(block->address);  // may throw: the block is still known then
      it = pool->erase(it);
      --stats_.segments;
      stats_.memory.reserved_bytes -= static_cast<int64_t>(block->bytes);
      blocks_.erase(block->address);
    }
}

BlockStats BlockAllocator::stats() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return stats_;
}

void BlockAllocator::reset_peak() {
  const std::lock_guard<std::mutex> lock(mutex_);
  stats_.memory.peak_allocated_bytes = stats_.memory.allocated_bytes;
}

void BlockAllocator::fail(size_t bytes) const {
  throw Error("[cuda] out of memory: wanted " + text(bytes) + " with " +
              text(stats_.memory.allocated_bytes) + " live, " + text(stats_.memory.reserved_bytes) +
              " reserved and " + text(stats_.inactive_split_bytes) + " free in pieces");
}

}  // namespace epilogue::cuda
