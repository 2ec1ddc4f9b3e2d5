// SPDX-License-Identifier: Apache-2.0
#include "epilogue/base/memory_category.h"

#include <array>

namespace epilogue {

std::string_view memory_category_name(MemoryCategory category) {
  static constexpr std::array<std::string_view, kMemoryCategories> kNames = {
      "PARAMETER",  "OPTIMIZER_STATE", "INPUT",           "TEMPORARY",
      "ACTIVATION", "GRADIENT",        "AUTOGRAD_DETAIL", "UNKNOWN"};
  return kNames[static_cast<size_t>(category)];
}

}  // namespace epilogue
