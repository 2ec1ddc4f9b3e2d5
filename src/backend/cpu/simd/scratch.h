// SPDX-License-Identifier: Apache-2.0
// Memory that a thread keeps from call to call, so that kernels never wait for the allocator.
#pragma once

#include <cstddef>

#include "base/large_memory.h"

namespace epilogue::simd {

// Grows, never shrinks; contents are undefined after each get().
class Scratch {
 public:
  // At least `floats` floats, aligned to a cache line. Throws std::bad_alloc.
  float* get(size_t floats) {
    if (floats > floats_) {
      memory_ = {};
      floats_ = 0;
      memory_ = allocate_large(floats * sizeof(float));
      floats_ = floats;
    }
    return static_cast<float*>(memory_.get());
  }

 private:
  LargeMemory memory_;
  size_t floats_ = 0;
};

}  // namespace epilogue::simd
