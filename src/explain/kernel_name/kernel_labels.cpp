// SPDX-License-Identifier: Apache-2.0
#include "explain/kernel_name/kernel_labels.h"

#include <algorithm>
#include <map>
#include <set>

#include "epilogue/trace/kernel_name.h"

namespace epilogue::trace {
namespace {

// Names up to this are shown as they are.
constexpr size_t kShortChars = 80;
// Length of the excerpt from where names begin to differ.
constexpr size_t kExcerptChars = 64;

using Names = std::vector<std::string_view>;

// The first place where names of a group differ, back to the start of the word there.
size_t first_difference(const Names& names) {
  size_t common = names.front().size();
  for (const std::string_view name : names) {
    const auto at = std::mismatch(name.begin(), name.begin() + std::min(common, name.size()),
                                  names.front().begin());
    common = static_cast<size_t>(at.first - name.begin());
  }
  const size_t word = names.front().substr(0, common).find_last_of("<>(), :");
  return word == std::string_view::npos ? 0 : word + 1;
}

// "elementwise mul f32, 4 wide [...AUnaryFunctor<float, ...]".
std::vector<std::string> with_excerpts(const std::string& summary, const Names& names) {
  const size_t at = first_difference(names);
  std::vector<std::string> labels;
  for (const std::string_view name : names) {
    const std::string_view excerpt = name.substr(std::min(at, name.size()), kExcerptChars);
    const bool is_cut = at + kExcerptChars < name.size();
    labels.push_back(summary + " [..." + std::string(excerpt) + (is_cut ? "...]" : "]"));
  }
  return labels;
}

}  // namespace

KernelLabels::KernelLabels(const std::vector<std::string_view>& names) {
  std::map<std::string, std::set<std::string_view>> by_summary;
  for (const std::string_view name : names) {
    if (name.size() <= kShortChars) continue;
    const KernelName decoded = decode_kernel_name(name);
    if (decoded.is_known()) by_summary[decoded.summary].insert(name);
  }
  for (const auto& [summary, group] : by_summary) {
    if (group.size() == 1) {
      long_names_.emplace(*group.begin(), summary);
      continue;
    }
    const Names list(group.begin(), group.end());
    const std::vector<std::string> labels = with_excerpts(summary, list);
    if (std::set<std::string_view>(labels.begin(), labels.end()).size() < labels.size()) continue;
    for (size_t i = 0; i < list.size(); ++i) long_names_.emplace(list[i], labels[i]);
  }
}

std::string KernelLabels::of(std::string_view name) const {
  const auto label = long_names_.find(name);
  return label != long_names_.end() ? label->second : std::string(name);
}

}  // namespace epilogue::trace
