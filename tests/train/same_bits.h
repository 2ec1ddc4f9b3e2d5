// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "epilogue/checkpoint.h"
#include "support/test.h"

namespace epilogue::train {

// Names, shapes, dtypes and bytes of the tensors, in their order. Metadata is the caller's.
inline void expect_same_tensors(const NamedTensors& a, const NamedTensors& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    const auto& [name, x] = a[i];
    const Tensor& y = b[i].second;
    EXPECT_EQ(name, b[i].first);
    ASSERT_EQ(to_string(x), to_string(y)) << name;
    EXPECT_EQ(std::memcmp(x.data(), y.data(), x.bytes()), 0) << name;
  }
}

}  // namespace epilogue::train
