// SPDX-License-Identifier: Apache-2.0
// Memory that a thread keeps from call to call, so that kernels never wait for the allocator.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>

namespace epilogue::simd {

// Grows, never shrinks; contents are undefined after each get().
class Scratch {
 public:
  // At least `floats` floats, aligned to a cache line. Throws std::bad_alloc.
  float* get(size_t floats) {
    if (floats > floats_) {
      constexpr size_t kLine = 64;
      const size_t bytes = (floats * sizeof(float) + kLine - 1) / kLine * kLine;
      memory_.reset();
      floats_ = 0;
      memory_.reset(static_cast<float*>(std::aligned_alloc(kLine, bytes)));
      if (memory_ == nullptr) throw std::bad_alloc();
      floats_ = floats;
    }
    return memory_.get();
  }

 private:
  struct Free {
    void operator()(float* p) const { std::free(p); }
  };
  std::unique_ptr<float, Free> memory_;
  size_t floats_ = 0;
};

}  // namespace epilogue::simd
