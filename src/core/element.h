// SPDX-License-Identifier: Apache-2.0
// One element at a time, through double: for reference kernels, tests and printing.
#pragma once

#include <cmath>
#include <cstdint>

#include "epilogue/tensor.h"

namespace epilogue {

// Rounds once, to nearest even, also where T is narrower than float: the way through float rounds
// to odd so that the second rounding sees the first one's sticky bit.
template <class T>
T round_from_double(double value) {
  if constexpr (std::is_same_v<T, BFloat16> || std::is_same_v<T, Half>) {
    auto f = static_cast<float>(value);
    if (static_cast<double>(f) != value && std::isfinite(f)) {
      auto bits = std::bit_cast<uint32_t>(f);
      if (std::abs(static_cast<double>(f)) > std::abs(value)) --bits;  // truncate
      f = std::bit_cast<float>(bits | 1U);
    }
    return T(f);
  } else {
    return static_cast<T>(value);
  }
}

template <class T>
double widen(T value) {
  if constexpr (std::is_same_v<T, BFloat16> || std::is_same_v<T, Half>) {
    return static_cast<double>(static_cast<float>(value));
  } else {
    return static_cast<double>(value);
  }
}

inline double load_element(DType dtype, const void* data, int64_t offset) {
  return dispatch(dtype, [&]<class T>() { return widen(static_cast<const T*>(data)[offset]); });
}
inline void store_element(DType dtype, void* data, int64_t offset, double value) {
  dispatch(dtype, [&]<class T>() { static_cast<T*>(data)[offset] = round_from_double<T>(value); });
}

// Calls body(offset in elements) for every element in row-major order.
template <class Body>
void for_each_offset(const Dims& sizes, const Dims& strides, Body&& body) {
  for (const int64_t d : sizes)
    if (d == 0) return;
  Dims index = Dims::filled(sizes.rank(), 0);
  int64_t offset = 0;
  for (;;) {
    body(offset);
    int d = sizes.rank() - 1;
    for (; d >= 0; --d) {
      offset += strides[d];
      if (++index[d] < sizes[d]) break;
      offset -= strides[d] * sizes[d];
      index[d] = 0;
    }
    if (d < 0) return;
  }
}

}  // namespace epilogue
