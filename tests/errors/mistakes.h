// SPDX-License-Identifier: Apache-2.0
// Tensors that tests of messages make mistakes with.
#pragma once

#include "epilogue/ops.h"
#include "errors/message_of.h"
#include "support/test.h"

namespace epilogue::test {

// Tensors of zeros by shape and dtype: what messages print.
inline Tensor f32(Dims sizes) { return zeros(sizes); }
inline Tensor bf16(Dims sizes) { return zeros(sizes, DType::bf16); }
inline Tensor i64(Dims sizes) { return zeros(sizes, DType::i64); }
inline Tensor boolean(Dims sizes) { return zeros(sizes, DType::boolean); }

// A tensor that says that it is elsewhere; never read.
inline Tensor on_cuda(Dims sizes) {
  const Tensor t = zeros(sizes);
  t.impl()->device = {DeviceType::cuda, 0};
  return t;
}

}  // namespace epilogue::test
