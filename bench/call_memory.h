// SPDX-License-Identifier: Apache-2.0
// How much memory a call needs besides its result.
#pragma once

#include <cstdint>
#include <functional>

#include "epilogue/tensor.h"

namespace epilogue::bench {

struct CallMemory {
  Tensor result;
  // The most bytes of tensors that the call made and that lived at once, its result left out.
  int64_t peak_intermediate_bytes = 0;
};

// Calls once. Takes the place of the memory observer, if there is one: not while a profiler records
// memory. No other thread may make tensors meanwhile.
CallMemory measure_call_memory(const std::function<Tensor()>& call);

}  // namespace epilogue::bench
