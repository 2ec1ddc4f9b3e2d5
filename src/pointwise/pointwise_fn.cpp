// SPDX-License-Identifier: Apache-2.0
#include "pointwise/pointwise_fn.h"

#include <algorithm>

namespace epilogue {

std::optional<PointwiseFn> pointwise_fn_of_number(size_t number) {
  if (number >= kPointwiseFns) return std::nullopt;
  return kPointwiseTable[number].fn;
}

bool is_pointwise_op(std::string_view base_name) {
  return std::ranges::any_of(kPointwiseTable, [&](const PointwiseRow& row) {
    return !row.op.empty() && op_base_name(row.fn) == base_name;
  });
}

}  // namespace epilogue
