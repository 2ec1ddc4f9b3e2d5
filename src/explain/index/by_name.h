// SPDX-License-Identifier: Apache-2.0
// What is asked of a name is asked once, not of each of a million events that have it.
#pragma once

#include <string_view>
#include <type_traits>
#include <vector>

#include "epilogue/trace/event.h"

namespace epilogue::trace {

// What `says` says of each name of the trace, by StringId.
template <class Says>
auto by_name(const Trace& trace, const Says& says) {
  std::vector<std::decay_t<std::invoke_result_t<const Says&, std::string_view>>> said;
  said.reserve(trace.strings.size());
  for (StringId id = 0; id < trace.strings.size(); ++id) said.push_back(says(trace.strings[id]));
  return said;
}

}  // namespace epilogue::trace
