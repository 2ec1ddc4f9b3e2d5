// SPDX-License-Identifier: Apache-2.0
// Random zeros and ones.
#pragma once

#include <cstddef>
#include <cstdint>

namespace epilogue::simd {

struct BernoulliKernels {
  // out[i] = 1 where the upper 24 bits of word i % 4 of Philox4x32-10 (key: `seed`, counter:
  // `counter` + i / 4) are below `limit`, at most 2^24; else 0.
  void (*bernoulli)(uint64_t seed, uint64_t counter, uint32_t limit, uint8_t* out, size_t n);
  // out[i] = keep[i] * one, for keep[i] of 0 and 1: `one` is the bits of the number 1.
  void (*expand16)(const uint8_t* keep, uint16_t one, uint16_t* out, size_t n);
  void (*expand32)(const uint8_t* keep, uint32_t one, uint32_t* out, size_t n);
};

// The kernels of active_isa(); fetch them per call (targets.h).
const BernoulliKernels& bernoulli_kernels();

}  // namespace epilogue::simd
