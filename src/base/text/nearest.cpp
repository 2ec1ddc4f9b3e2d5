// SPDX-License-Identifier: Apache-2.0
#include "base/text/nearest.h"

#include <algorithm>
#include <utility>

namespace epilogue {
namespace {

// One edit for every so many letters still looks like a slip.
constexpr size_t kLettersPerEdit = 3;
// A beginning shorter than this says nothing.
constexpr size_t kMinPrefix = 3;

}  // namespace

int edit_distance(std::string_view a, std::string_view b) {
  // Rows of the table of distances between beginnings of a and b: two before this one, for swaps.
  std::vector<int> before(b.size() + 1);
  std::vector<int> last(b.size() + 1);
  std::vector<int> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = static_cast<int>(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    before.swap(last);
    last.swap(row);
    row[0] = static_cast<int>(i);
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] =
          std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        row[j] = std::min(row[j], before[j - 2] + 1);
    }
  }
  return row[b.size()];
}

std::vector<std::string> nearest(std::string_view name, std::span<const std::string> names,
                                 size_t limit) {
  std::vector<std::pair<int, std::string>> found;
  for (const std::string& candidate : names) {
    const int distance = edit_distance(name, candidate);
    const size_t letters = std::max(name.size(), candidate.size());
    const bool is_slip = static_cast<size_t>(distance) <= letters / kLettersPerEdit;
    const bool is_prefix = name.size() >= kMinPrefix && candidate.starts_with(name);
    if (is_slip || is_prefix) found.emplace_back(distance, candidate);
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::string> best;
  for (size_t i = 0; i < std::min(limit, found.size()); ++i) best.push_back(found[i].second);
  return best;
}

std::string did_you_mean(std::span<const std::string> names) {
  return names.empty() ? "" : "; did you mean " + one_of_text(names) + "?";
}

std::string one_of_text(std::span<const std::string> names) {
  std::string text;
  for (size_t i = 0; i < names.size(); ++i)
    text += (i == 0 ? "" : i + 1 == names.size() ? " or " : ", ") + names[i];
  return text;
}

}  // namespace epilogue
