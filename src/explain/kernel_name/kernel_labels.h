// SPDX-License-Identifier: Apache-2.0
// Names of kernels short enough for a line of text that still tell them apart.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace epilogue::trace {

class KernelLabels {
 public:
  // Duplicates among the names are allowed. They must outlive the labels.
  explicit KernelLabels(const std::vector<std::string_view>& names);

  // The name itself where it is short or nothing is known of it, else what it says in words; where
  // several names say the same, with the place where they differ, or the whole name. Other names
  // than those given are returned as they are.
  std::string of(std::string_view name) const;

 private:
  std::unordered_map<std::string_view, std::string> long_names_;
};

}  // namespace epilogue::trace
