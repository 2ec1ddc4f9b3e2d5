// SPDX-License-Identifier: Apache-2.0
// sum_to_size: the gradient of broadcasting.
#include "epilogue/ops.h"

namespace epilogue {

Tensor sum_to_size(const Tensor& self, const Dims& sizes) {
  if (self.sizes() == sizes) return self;
  const int leading = self.dim() - sizes.rank();
  Dims summed;
  bool fits = leading >= 0;
  for (int d = 0; d < self.dim() && fits; ++d) {
    if (d >= leading && self.sizes()[d] == sizes[d - leading]) continue;
    fits = d < leading || sizes[d - leading] == 1;
    summed.push_back(d);
  }
  if (!fits)
    throw Error("[sum_to_size] expected sizes that broadcast to " + to_string(self.sizes()) +
                ", got " + to_string(sizes));
  const Tensor result = sum(self, summed, true);
  return leading > 0 ? view(result, sizes) : result;
}

}  // namespace epilogue
