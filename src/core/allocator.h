// SPDX-License-Identifier: Apache-2.0
// The caching CPU allocator: what Storage asks for memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "epilogue/tensor.h"

namespace epilogue {

// Told about every allocation (bytes > 0) and free (bytes < 0) of tensor memory, on the thread that
// makes it, at the moment it is made. Must be thread-safe and must not allocate tensors.
class MemoryObserver {
 public:
  virtual ~MemoryObserver() = default;
  // The totals are the device's.
  virtual void on_memory(Device device, const void* address, int64_t bytes, int64_t total_allocated,
                         int64_t total_reserved) = 0;
  // A live block's purpose became known, or it is about to be freed and had one.
  virtual void on_category(Device device, const void* address, int64_t bytes,
                           MemoryCategory category) = 0;
};
void announce_category(Device device, const void* address, int64_t bytes, MemoryCategory category);
// At most one; nullptr removes it. The observer must outlive its use by other threads.
void set_memory_observer(MemoryObserver* observer);
// nullptr when there is none: for the allocators of devices.
MemoryObserver* memory_observer();

inline constexpr size_t kTensorAlignment = 64;

// 64-byte aligned, not initialised; nullptr for zero bytes. Throws Error when memory is exhausted.
void* allocate_bytes(size_t bytes);
// `bytes` as given to allocate_bytes.
void free_bytes(void* address, size_t bytes) noexcept;

// Adds to MemoryStats::packed_bytes of the host: memory of packed weights is no tensor's.
// Thread-safe.
void count_packed_bytes(int64_t bytes);

// The size of the block that serves a request: four steps per power of two, at least 64 bytes.
size_t block_bytes(size_t bytes);

}  // namespace epilogue
