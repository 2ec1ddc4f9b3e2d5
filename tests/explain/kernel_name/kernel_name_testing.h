// SPDX-License-Identifier: Apache-2.0
// What tests of the name decoder share.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "epilogue/trace/kernel_name.h"

namespace epilogue::trace::testing {

// "128x128", "~5" for an inferred value, "" for no such field.
inline std::string field(const KernelName& name, std::string_view key) {
  const KernelField* found = name.find(key);
  if (found == nullptr) return {};
  return (found->is_inferred ? "~" : "") + found->value;
}

inline std::string kind(const KernelName& name) { return std::string(kernel_kind_name(name.kind)); }

}  // namespace epilogue::trace::testing
