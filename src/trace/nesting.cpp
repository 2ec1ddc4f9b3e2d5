// SPDX-License-Identifier: Apache-2.0
#include "trace/nesting.h"

#include <algorithm>
#include <numeric>
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

// Below this a thread costs more than it saves.
constexpr size_t kMinPerThread = size_t{1} << 15;
// So many events in a bucket, on average.
constexpr uint64_t kPerBucket = 4;

bool precedes(const Trace& trace, uint32_t a, uint32_t b) {
  const Event& x = trace.events[a];
  const Event& y = trace.events[b];
  if (x.ts_ns != y.ts_ns) return x.ts_ns < y.ts_ns;
  if (x.dur_ns != y.dur_ns) return x.dur_ns > y.dur_ns;
  const int rank_x = containment_rank(x.category);
  const int rank_y = containment_rank(y.category);
  if (rank_x != rank_y) return rank_x < rank_y;
  const auto ev_idx = [&](const Event& event) {
    const OpArgs* args = trace.op_args(event);
    return args ? args->ev_idx : -1;
  };
  return std::pair(ev_idx(x), a) < std::pair(ev_idx(y), b);
}

// The events in buckets of equal time, in the order of time, and where each bucket ends.
struct Buckets {
  std::vector<uint32_t> events;
  std::vector<uint32_t> ends;
};

// The starts between which nearly all events lie: a few may be far away (a kernel at time 0).
std::pair<int64_t, int64_t> usual_starts(std::span<const Event> events) {
  constexpr size_t kSamples = 1024;
  const size_t step = events.size() / kSamples + 1;
  std::vector<int64_t> starts_ns;
  for (size_t i = 0; i < events.size(); i += step) starts_ns.push_back(events[i].ts_ns);
  std::sort(starts_ns.begin(), starts_ns.end());
  const size_t outside = starts_ns.size() / 100;
  return {starts_ns[outside], starts_ns[starts_ns.size() - 1 - outside]};
}

Buckets cut_by_start(std::span<const Event> events) {
  const auto [first_ns, last_ns] = usual_starts(events);
  const uint64_t range_ns = static_cast<uint64_t>(last_ns) - static_cast<uint64_t>(first_ns);
  const uint64_t wanted = std::max<uint64_t>(events.size() / kPerBucket, 1);
  int shift = 0;
  while (range_ns >> shift >= wanted) ++shift;
  const auto bucket = [&, first = first_ns, last = last_ns](const Event& event) {
    return static_cast<uint64_t>(std::clamp(event.ts_ns, first, last) - first) >> shift;
  };
  Buckets buckets;
  std::vector<uint32_t>& ends = buckets.ends;
  ends.resize((range_ns >> shift) + 1);
  for (const Event& event : events) ++ends[bucket(event)];
  std::exclusive_scan(ends.begin(), ends.end(), ends.begin(), uint32_t{0});
  buckets.events.resize(events.size());
  for (uint32_t i = 0; i < events.size(); ++i) buckets.events[ends[bucket(events[i])]++] = i;
  return buckets;
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

// A file holds its events nearly in the order of time. Cut by time into many small buckets they
// move little, and each bucket is sorted within the cache. If all events fall into a few buckets,
// this is std::sort.
std::vector<uint32_t> event_order(const Trace& trace) {
  if (trace.events.empty()) return {};
  auto [order, ends] = cut_by_start(trace.events);
  const auto sort_buckets = [&trace, &order = order, &ends = ends](size_t from, size_t to) {
    for (size_t i = from; i < to; ++i)
      std::sort(order.begin() + (i == 0 ? 0 : ends[i - 1]), order.begin() + ends[i],
                [&](uint32_t a, uint32_t b) { return precedes(trace, a, b); });
  };
  if (order.size() < 2 * kMinPerThread) {
    sort_buckets(0, ends.size());
    return order;
  }
  const auto middle = static_cast<size_t>(
      std::lower_bound(ends.begin(), ends.end(), order.size() / 2) - ends.begin());
  {
    const std::jthread first_half([&] { sort_buckets(0, middle); });
    sort_buckets(middle, ends.size());
  }
  return order;
}

}  // namespace epilogue::trace
