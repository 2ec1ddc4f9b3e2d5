// SPDX-License-Identifier: Apache-2.0
#include "epilogue/trace/fusion.h"

#include <algorithm>
#include <map>
#include <utility>

namespace epilogue::trace {
namespace {

// Adds to a sum that is unknown as soon as one part is.
void add_known(int64_t& sum, int64_t part) { sum = sum < 0 || part < 0 ? -1 : sum + part; }

}  // namespace

std::vector<FusedKernel> fused_kernels(const Trace& trace) {
  std::map<std::pair<StringId, StringId>, FusedKernel> sums;
  for (const Event& e : trace.events) {
    if (e.category != Category::kernel) continue;
    const KernelArgs* args = trace.kernel_args(e);
    if (args == nullptr || args->fused_ops == 0) continue;
    FusedKernel& sum = sums[{e.name, args->fused_ops}];
    ++sum.count;
    sum.total_ns += e.dur_ns;
    add_known(sum.bytes, args->bytes);
    add_known(sum.unfused_bytes, args->unfused_bytes);
  }
  std::vector<FusedKernel> list;
  for (auto& [key, sum] : sums) {
    sum.kernel = trace.strings[key.first];
    for (const std::string_view op : fused_op_names(trace.strings[key.second]))
      sum.ops.emplace_back(op);
    list.push_back(std::move(sum));
  }
  std::stable_sort(list.begin(), list.end(), [](const FusedKernel& a, const FusedKernel& b) {
    return a.total_ns > b.total_ns;
  });
  return list;
}

std::vector<std::string_view> fused_op_names(std::string_view fused_ops) {
  constexpr std::string_view kSeparator = ", ";
  std::vector<std::string_view> names;
  while (!fused_ops.empty()) {
    const size_t end = std::min(fused_ops.find(kSeparator), fused_ops.size());
    names.push_back(fused_ops.substr(0, end));
    fused_ops.remove_prefix(std::min(end + kSeparator.size(), fused_ops.size()));
  }
  return names;
}

}  // namespace epilogue::trace
