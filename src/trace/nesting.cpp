// SPDX-License-Identifier: Apache-2.0
#include "trace/nesting.h"

#include <algorithm>
#include <numeric>
#include <tuple>
#include <unordered_map>

namespace epilogue::trace {
namespace {

struct LaneHash {
  size_t operator()(const std::pair<int64_t, int64_t>& lane) const {
    const auto mixed = static_cast<uint64_t>(lane.first) * 0x9E3779B97F4A7C15ULL;
    return std::hash<uint64_t>{}(mixed ^ static_cast<uint64_t>(lane.second));
  }
};

// Among events of equal span: who could contain whom.
int containment_rank(Category category) {
  switch (category) {
    case Category::kPythonFunction: return 0;
    case Category::kUserAnnotation: return 1;
    case Category::kCpuOp: return 2;
    case Category::kCudaRuntime:
    case Category::kCudaDriver: return 3;
    case Category::kGpuUserAnnotation: return 4;
    default: return 5;
  }
}

}  // namespace

std::vector<uint32_t> nest(std::span<const LaneSpan> spans) {
  std::vector<uint32_t> parents(spans.size(), kNone);
  std::unordered_map<std::pair<int64_t, int64_t>, std::vector<uint32_t>, LaneHash> open_by_lane;
  for (uint32_t i = 0; i < spans.size(); ++i) {
    const LaneSpan& span = spans[i];
    std::vector<uint32_t>& open = open_by_lane[{span.pid, span.tid}];
    while (!open.empty()) {
      const LaneSpan& top = spans[open.back()];
      if (span.start_ns < top.end_ns && span.end_ns <= top.end_ns) break;
      open.pop_back();
    }
    if (!open.empty()) parents[i] = open.back();
    open.push_back(i);
  }
  return parents;
}

std::vector<uint32_t> event_order(const Trace& trace) {
  std::vector<uint32_t> order(trace.events.size());
  std::iota(order.begin(), order.end(), 0U);
  const auto tie_key = [&](uint32_t i) {
    const Event& event = trace.events[i];
    const OpArgs* args = trace.op_args(event);
    return std::tuple(containment_rank(event.category), args ? args->ev_idx : -1, i);
  };
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    const Event& x = trace.events[a];
    const Event& y = trace.events[b];
    if (x.ts_ns != y.ts_ns) return x.ts_ns < y.ts_ns;
    if (x.dur_ns != y.dur_ns) return x.dur_ns > y.dur_ns;
    return tie_key(a) < tie_key(b);
  });
  return order;
}

}  // namespace epilogue::trace
