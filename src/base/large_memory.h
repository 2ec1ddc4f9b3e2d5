// SPDX-License-Identifier: Apache-2.0
// Memory for what is large and read again and again: packed weights, big tensors.
#pragma once

#include <cstddef>
#include <memory>

namespace epilogue {

// A huge page: memory from here on is mapped by itself.
inline constexpr size_t kLargeBytes = size_t{2} << 20;

// Uninitialised, aligned to a cache line, from kLargeBytes on to a huge page and backed by huge
// pages where the system has them. Always fresh from the system: memory that malloc hands out again
// keeps the small pages that it once had, and products that stream those take up to twice as long.
// Null where there is none.
void* map_large(size_t bytes);
// `bytes` as given to map_large(). Null is fine.
void unmap_large(void* memory, size_t bytes);

// Gives freed small blocks back to the system, between phases of a program that each take much:
// otherwise what one frees stays beside what the next takes. Takes milliseconds for each 100 MB.
void return_freed_memory();

struct UnmapLarge {
  size_t bytes = 0;
  void operator()(void* p) const { unmap_large(p, bytes); }
};
using LargeMemory = std::unique_ptr<void, UnmapLarge>;

// map_large() with an owner. Throws std::bad_alloc.
LargeMemory allocate_large(size_t bytes);

}  // namespace epilogue
