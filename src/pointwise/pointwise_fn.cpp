// SPDX-License-Identifier: Apache-2.0
#include "pointwise/pointwise_fn.h"

#include <algorithm>

namespace epilogue {

std::optional<PointwiseFn> pointwise_fn_of_number(size_t number) {
  if (number >= kPointwiseFns) return std::nullopt;
  return kPointwiseTable[number].fn;
}

const PointwiseRow* pointwise_row_of_op(std::string_view base_name) {
  const auto* row = std::ranges::find_if(kPointwiseTable, [&](const PointwiseRow& candidate) {
    return !candidate.op.empty() && op_base_name(candidate.fn) == base_name;
  });
  return row == kPointwiseTable.end() ? nullptr : row;
}

}  // namespace epilogue
