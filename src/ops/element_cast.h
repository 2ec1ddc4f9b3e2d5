// SPDX-License-Identifier: Apache-2.0
// Conversion of one element to another dtype, for references and kernels alike.
#pragma once

#include <cstdint>
#include <limits>

#include "core/element.h"

namespace epilogue {

// To floating: rounded once, to nearest even. To bool: not zero. Floating to integer: towards zero;
// NaN and what does not fit become the smallest int64_t (as x86's conversion and so PyTorch do).
// To u8: the low 8 bits.
template <class To, class From>
To cast_element(From value) {
  constexpr bool kFromFloating = is_floating(DTypeOf<From>::value);
  if constexpr (std::is_same_v<To, From>) {
    return value;
  } else if constexpr (std::is_same_v<To, bool>) {
    return widen(value) != 0;
  } else if constexpr (kFromFloating && std::is_integral_v<To>) {
    constexpr double kLimit = 0x1p63;
    const double wide = widen(value);
    const bool fits = wide >= -kLimit && wide < kLimit;
    return static_cast<To>(fits ? static_cast<int64_t>(wide) : std::numeric_limits<int64_t>::min());
  } else if constexpr (std::is_integral_v<From> && std::is_arithmetic_v<To>) {
    return static_cast<To>(value);
  } else {
    return round_from_double<To>(widen(value));
  }
}

}  // namespace epilogue
