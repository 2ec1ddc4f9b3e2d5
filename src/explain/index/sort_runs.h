// SPDX-License-Identifier: Apache-2.0
// Sorting of what is mostly sorted.
#pragma once

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <utility>
#include <vector>

namespace epilogue::trace {

// As std::sort. A file holds ops, launch calls and device work each by start, mostly: sorted runs,
// which are merged where they overlap. `precedes` must tell any two elements apart, so that the
// order does not depend on the way there.
template <class T, class Precedes>
void sort_runs(std::vector<T>& list, Precedes precedes) {
  constexpr size_t kShortRun = 32;  // on average: then nothing is gained
  const auto at = [&](size_t i) { return list.begin() + static_cast<ptrdiff_t>(i); };
  std::vector<size_t> starts = {0};
  for (size_t i = 1; i < list.size(); ++i) {
    if (!precedes(list[i], list[i - 1])) continue;
    if (starts.size() > list.size() / kShortRun) {
      std::sort(list.begin(), list.end(), precedes);
      return;
    }
    starts.push_back(i);
  }
  starts.push_back(list.size());
  while (starts.size() > 2) {
    std::vector<size_t> merged;
    for (size_t r = 0; r + 1 < starts.size(); r += 2) {
      merged.push_back(starts[r]);
      if (r + 2 >= starts.size()) continue;
      const auto middle = at(starts[r + 1]);
      const auto from = std::upper_bound(at(starts[r]), middle, *middle, precedes);
      if (from == middle) continue;
      const auto to = std::lower_bound(middle, at(starts[r + 2]), *std::prev(middle), precedes);
      std::inplace_merge(from, middle, to, precedes);
    }
    merged.push_back(list.size());
    starts = std::move(merged);
  }
}

}  // namespace epilogue::trace
