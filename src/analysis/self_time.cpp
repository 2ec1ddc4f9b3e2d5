// SPDX-License-Identifier: Apache-2.0
#include "analysis/self_time.h"

#include <algorithm>

namespace epilogue::trace {

std::vector<int64_t> self_times_ns(const Trace& trace, const Links& links, bool with_calls) {
  std::vector<int64_t> self_ns(trace.events.size());
  for (uint32_t i = 0; i < trace.events.size(); ++i) {
    const Event& e = trace.events[i];
    const bool is_op = e.category == Category::kCpuOp;
    if (is_op) self_ns[i] += e.dur_ns;
    const uint32_t parent = links.parent[i];
    if (parent != kNone && (is_op || !with_calls)) self_ns[parent] -= e.dur_ns;
  }
  // Driver calls inside runtime calls are both children of the op.
  for (int64_t& ns : self_ns) ns = std::max<int64_t>(ns, 0);
  return self_ns;
}

}  // namespace epilogue::trace
