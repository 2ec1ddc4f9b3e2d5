// SPDX-License-Identifier: Apache-2.0
#include "base/large_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <new>

namespace epilogue {

LargeMemory allocate_large(size_t bytes) {
  constexpr size_t kLine = 64;
  constexpr size_t kHugePage = size_t{2} << 20;
  const size_t unit = bytes >= kHugePage ? kHugePage : kLine;
  const size_t whole = std::max((bytes + unit - 1) / unit * unit, unit);
  LargeMemory memory(std::aligned_alloc(unit, whole));
  if (memory == nullptr) throw std::bad_alloc();
#ifdef MADV_HUGEPAGE
  // Advice: where the system has no huge pages, small ones do.
  if (unit == kHugePage) static_cast<void>(madvise(memory.get(), whole, MADV_HUGEPAGE));
#endif
  return memory;
}

}  // namespace epilogue
