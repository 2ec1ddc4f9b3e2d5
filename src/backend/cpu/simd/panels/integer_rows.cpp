// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/simd/panels/integer_rows.h"

namespace epilogue::simd {

template <class T>
void running_sums(const T* rows, int64_t stride, int64_t m, int64_t k, int64_t unit,
                  int32_t* sums) {
  for (int64_t i = 0; i < m; ++i, rows += stride) {
    uint32_t sum = 0;
    *sums++ = 0;
    for (int64_t u = 0; u + unit <= k; u += unit) {
      uint32_t part = 0;
      for (int64_t j = 0; j < unit; ++j) part += static_cast<uint32_t>(int32_t{rows[u + j]});
      sum += part;
      *sums++ = static_cast<int32_t>(sum);
    }
  }
}

template void running_sums(const int8_t*, int64_t, int64_t, int64_t, int64_t, int32_t*);
template void running_sums(const int16_t*, int64_t, int64_t, int64_t, int64_t, int32_t*);

}  // namespace epilogue::simd
