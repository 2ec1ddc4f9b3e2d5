// SPDX-License-Identifier: Apache-2.0
// Memory for what is large and read again and again: packed weights.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>

namespace epilogue {

struct FreeMemory {
  void operator()(void* p) const { std::free(p); }
};
using LargeMemory = std::unique_ptr<void, FreeMemory>;

// Uninitialised, aligned to a cache line. From a huge page (2 MiB) on it asks the system for huge
// pages: streaming small ones, a product waits for their addresses for some 5 % of its time.
// Throws std::bad_alloc.
LargeMemory allocate_large(size_t bytes);

}  // namespace epilogue
