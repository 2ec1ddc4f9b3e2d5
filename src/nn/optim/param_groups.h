// SPDX-License-Identifier: Apache-2.0
// Operations on groups that do not depend on the optimizer's options.
#pragma once

#include <vector>

#include "epilogue/optim.h"

namespace epilogue::optim {

template <class Options>
std::vector<std::vector<Tensor>> params_of(const std::vector<ParamGroup<Options>>& groups) {
  std::vector<std::vector<Tensor>> params;
  params.reserve(groups.size());
  for (const auto& group : groups) params.push_back(group.params);
  return params;
}

}  // namespace epilogue::optim
