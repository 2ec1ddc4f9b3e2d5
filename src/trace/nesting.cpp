// SPDX-License-Identifier: Apache-2.0
#include "trace/nesting.h"

#include <algorithm>
#include <thread>
#include <utility>

namespace epilogue::trace {
namespace {

// Among events of equal span: who could contain whom.
int containment_rank(Category category) {
  switch (category) {
    case Category::python_function: return 0;
    case Category::user_annotation: return 1;
    case Category::cpu_op: return 2;
    case Category::cuda_runtime:
    case Category::cuda_driver: return 3;
    case Category::gpu_user_annotation: return 4;
    default: return 5;
  }
}

// What the order of events hangs on, close together: sorting is bound by memory.
struct OrderKey {
  int64_t ts_ns;
  int64_t dur_ns;
  uint32_t index;
  int rank;
};

// Below this a thread costs more than it saves.
constexpr size_t kMinPerThread = size_t{1} << 15;

template <class Less>
void sort_on_two_threads(std::vector<OrderKey>& keys, Less less) {
  if (std::is_sorted(keys.begin(), keys.end(), less)) return;
  if (keys.size() < 2 * kMinPerThread) return std::sort(keys.begin(), keys.end(), less);
  const auto middle = keys.begin() + static_cast<ptrdiff_t>(keys.size() / 2);
  {
    const std::jthread first_half([&] { std::sort(keys.begin(), middle, less); });
    std::sort(middle, keys.end(), less);
  }
  std::inplace_merge(keys.begin(), middle, keys.end(), less);
}

}  // namespace

uint32_t LaneNester::add(uint32_t index, const LaneSpan& span) {
  const Lane lane(span.pid, span.tid);
  if (open_ == nullptr || lane != lane_) {
    lane_ = lane;
    open_ = &open_by_lane_[lane];
  }
  while (!open_->empty()) {
    const int64_t end_ns = open_->back().end_ns;
    if (span.start_ns < end_ns && span.end_ns <= end_ns) break;
    open_->pop_back();
  }
  const uint32_t parent = open_->empty() ? kNone : open_->back().index;
  open_->push_back({index, span.end_ns});
  return parent;
}

std::vector<uint32_t> nest(std::span<const LaneSpan> spans) {
  std::vector<uint32_t> parents(spans.size());
  LaneNester nester;
  for (uint32_t i = 0; i < spans.size(); ++i) parents[i] = nester.add(i, spans[i]);
  return parents;
}

std::vector<uint32_t> event_order(const Trace& trace) {
  std::vector<OrderKey> keys(trace.events.size());
  for (uint32_t i = 0; i < keys.size(); ++i) {
    const Event& event = trace.events[i];
    keys[i] = {event.ts_ns, event.dur_ns, i, containment_rank(event.category)};
  }
  const auto ev_idx = [&](const OrderKey& key) {
    const OpArgs* args = trace.op_args(trace.events[key.index]);
    return args ? args->ev_idx : -1;
  };
  sort_on_two_threads(keys, [&](const OrderKey& a, const OrderKey& b) {
    if (a.ts_ns != b.ts_ns) return a.ts_ns < b.ts_ns;
    if (a.dur_ns != b.dur_ns) return a.dur_ns > b.dur_ns;
    if (a.rank != b.rank) return a.rank < b.rank;
    return std::pair(ev_idx(a), a.index) < std::pair(ev_idx(b), b.index);
  });
  std::vector<uint32_t> order(keys.size());
  std::transform(keys.begin(), keys.end(), order.begin(),
                 [](const OrderKey& key) { return key.index; });
  return order;
}

}  // namespace epilogue::trace
