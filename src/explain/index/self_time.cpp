// SPDX-License-Identifier: Apache-2.0
#include "explain/index/self_time.h"

#include <algorithm>

namespace epilogue::trace {

std::vector<int64_t> self_times_ns(const Trace& trace, const Links& links) {
  std::vector<int64_t> self_ns(trace.events.size());
  for (uint32_t i = 0; i < trace.events.size(); ++i) {
    const Event& e = trace.events[i];
    if (e.category != Category::cpu_op) continue;
    self_ns[i] += e.dur_ns;
    if (links.parent[i] != kNone) self_ns[links.parent[i]] -= e.dur_ns;
  }
  // An op that ends before it starts (a broken trace) has no time.
  for (int64_t& ns : self_ns) ns = std::max<int64_t>(ns, 0);
  return self_ns;
}

}  // namespace epilogue::trace
