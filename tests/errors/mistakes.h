// SPDX-License-Identifier: Apache-2.0
// A table of user mistakes and what the library says to each.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "epilogue/ops.h"
#include "errors/message_of.h"

namespace epilogue::test {

struct Mistake {
  std::function<void()> call;
  std::string message;
};

inline void expect_messages(const std::vector<Mistake>& mistakes) {
  for (const Mistake& m : mistakes) EXPECT_EQ(message_of(m.call), m.message);
}

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
