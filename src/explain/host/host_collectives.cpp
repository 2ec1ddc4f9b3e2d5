// SPDX-License-Identifier: Apache-2.0
#include "explain/host/host_collectives.h"

#include <algorithm>
#include <map>

#include "explain/index/aten_ops.h"

namespace epilogue::trace {
std::optional<HostCollectives> host_collectives(const Trace& trace, const IntervalSet& between) {
  std::map<StringId, int64_t> by_name;
  std::vector<Interval> running;
  std::vector<int64_t> times_ns;
  for (const Event& e : trace.events) {
    if (e.category != Category::user_annotation && e.category != Category::cpu_op) continue;
    if (!is_cpu_collective(trace.name(e))) continue;
    by_name[e.name] += e.dur_ns;
    running.push_back({e.ts_ns, e.end_ns()});
    times_ns.push_back(e.dur_ns);
  }
  if (running.empty()) return std::nullopt;
  const auto most =
      std::max_element(by_name.begin(), by_name.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  HostCollectives found;
  found.name = std::string(trace.strings[most->first]);
  found.count = static_cast<int64_t>(times_ns.size());
  found.time = *distribution(std::move(times_ns));
  found.alone_ns = total_ns(intersected(united(std::move(running)), between));
  return found;
}

}  // namespace epilogue::trace
