// SPDX-License-Identifier: Apache-2.0
// Conversion of contiguous elements between any two dtypes.
#pragma once

#include <cstddef>

#include "epilogue/dtype.h"

namespace epilogue::cpu {

// As cast_element (ops/element_cast.h) for each of n elements; a copy where the dtypes agree. The
// arrays must not overlap, except that equal dtypes allow it.
void convert_elements(DType from, const void* in, DType to, void* out, size_t n);

}  // namespace epilogue::cpu
