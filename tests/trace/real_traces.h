// SPDX-License-Identifier: Apache-2.0
// Traces that others captured; not part of the project. Tests that need them skip where they are
// not there.
#pragma once

#include "support/test.h"

namespace epilogue::trace::testing {

// The folder that EPILOGUE_TRACES names, else ../shared/traces beside the project.
inline std::filesystem::path real_traces_folder() {
  if (const char* folder = std::getenv("EPILOGUE_TRACES")) return folder;
  const std::filesystem::path root = std::filesystem::path(__FILE__) / "../../..";
  return (root / "../shared/traces").lexically_normal();
}

inline std::string real_trace_path(std::string_view name) {
  return (real_traces_folder() / name).string();
}

inline bool has_real_trace(std::string_view name) {
  return std::filesystem::exists(real_trace_path(name));
}

}  // namespace epilogue::trace::testing
