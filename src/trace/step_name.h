// SPDX-License-Identifier: Apache-2.0
// How the annotations of a profiler's steps are named.
#pragma once

#include <string_view>

namespace epilogue::trace {

inline constexpr std::string_view kStepPrefix = "ProfilerStep#";

}  // namespace epilogue::trace
