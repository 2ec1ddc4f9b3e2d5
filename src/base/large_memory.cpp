// SPDX-License-Identifier: Apache-2.0
#include "base/large_memory.h"

#include <malloc.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <new>

namespace epilogue {
namespace {

size_t rounded(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

}  // namespace

void* map_large(size_t bytes) {
  constexpr size_t kLine = 64;
  if (bytes < kLargeBytes)
    return std::aligned_alloc(kLine, rounded(std::max<size_t>(bytes, 1), kLine));
  // A huge page more than needed, so that one begins within it; what lies around goes back.
  const size_t whole = rounded(bytes, kLargeBytes);
  if (whole < bytes) return nullptr;
  void* const mapped = mmap(nullptr, whole + kLargeBytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  auto* const begin = static_cast<char*>(mapped);
  const size_t before =
      (kLargeBytes - reinterpret_cast<uintptr_t>(begin) % kLargeBytes) % kLargeBytes;
  if (before > 0) munmap(begin, before);
  char* const memory = begin + before;
  if (before < kLargeBytes) munmap(memory + whole, kLargeBytes - before);
#ifdef MADV_HUGEPAGE
  // Advice: where the system has no huge pages, small ones do.
  static_cast<void>(madvise(memory, whole, MADV_HUGEPAGE));
#endif
  return memory;
}

void unmap_large(void* memory, size_t bytes) {
  if (memory == nullptr) return;
  if (bytes < kLargeBytes) return std::free(memory);
  munmap(memory, rounded(bytes, kLargeBytes));
}

LargeMemory allocate_large(size_t bytes) {
  LargeMemory memory(map_large(bytes), UnmapLarge{bytes});
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

void return_freed_memory() {
#ifdef __GLIBC__
  malloc_trim(0);
#endif
}

}  // namespace epilogue
