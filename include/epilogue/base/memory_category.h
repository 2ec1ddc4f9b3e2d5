// SPDX-License-Identifier: Apache-2.0
// Who holds memory, for tensors and for what traces say.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#pragma GCC visibility push(default)

namespace epilogue {

// With torch.profiler's names and values (those of its exported memory timelines). The profiler
// finds temporary, activation and autograd_detail itself; the others are said by
// set_memory_category().
enum class MemoryCategory : int8_t {
  parameter = 0,
  optimizer_state = 1,
  input = 2,
  temporary = 3,
  activation = 4,
  gradient = 5,
  autograd_detail = 6,
  unknown = 7,
};
inline constexpr size_t kMemoryCategories = 8;
std::string_view memory_category_name(MemoryCategory category);  // "PARAMETER", ..., "UNKNOWN"

}  // namespace epilogue

#pragma GCC visibility pop
