// SPDX-License-Identifier: Apache-2.0
// A tensor seen as lines along one dimension, by row-major index: for reference kernels.
#pragma once

#include "epilogue/dims.h"

namespace epilogue {

struct Lines {
  int64_t n = 1;      // elements of a line
  int64_t step = 1;   // from one to the next
  int64_t count = 1;  // lines

  Lines(const Dims& sizes, int dim) {
    for (int d = 0; d < sizes.rank(); ++d) {
      if (d == dim) {
        n = sizes[d];
      } else {
        count *= sizes[d];
        if (d > dim) step *= sizes[d];
      }
    }
  }
  // The offset of a line's first element.
  int64_t first(int64_t line) const { return line / step * step * n + line % step; }
};

}  // namespace epilogue
