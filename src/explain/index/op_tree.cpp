// SPDX-License-Identifier: Apache-2.0
#include "explain/index/op_tree.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <tuple>
#include <utility>

namespace epilogue::trace {

OpTree::OpTree(const Trace& trace, const Links& links) {
  std::vector<uint32_t> ops;
  for (uint32_t i = 0; i < trace.events.size(); ++i)
    if (trace.events[i].category == Category::cpu_op) ops.push_back(i);
  std::sort(ops.begin(), ops.end(), [&](uint32_t a, uint32_t b) {
    const int64_t x = trace.events[a].ts_ns;
    const int64_t y = trace.events[b].ts_ns;
    return x != y ? x < y : a < b;
  });

  first_child_.assign(trace.events.size() + 2, 0);
  for (const uint32_t i : ops)
    if (links.parent[i] != kNone) ++first_child_[links.parent[i] + 2];
  for (size_t i = 2; i < first_child_.size(); ++i) first_child_[i] += first_child_[i - 1];
  children_.resize(ops.size());
  for (const uint32_t i : ops) {
    if (links.parent[i] == kNone) {
      roots_.push_back(i);
    } else {
      children_[first_child_[links.parent[i] + 1]++] = i;
    }
  }
}

uint32_t step_at(const Trace& trace, const Links& links, int64_t ts_ns) {
  const auto after = std::upper_bound(
      links.steps.begin(), links.steps.end(), ts_ns,
      [&](int64_t time_ns, uint32_t step) { return time_ns < trace.events[step].ts_ns; });
  if (after == links.steps.begin() || ts_ns >= trace.events[*std::prev(after)].end_ns())
    return kNone;
  return static_cast<uint32_t>(after - links.steps.begin()) - 1;
}

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

namespace {

template <class Span>
auto thread_and_start(const Span& s) {
  return std::tuple(s.pid, s.tid, s.ts_ns);
}

template <class Span>
std::vector<uint32_t> innermost_of(const std::vector<Span>& all, std::vector<uint32_t> spans,
                                   const std::vector<Moment>& moments) {
  std::sort(spans.begin(), spans.end(), [&](uint32_t a, uint32_t b) {
    const Span& x = all[a];
    const Span& y = all[b];
    if (thread_and_start(x) != thread_and_start(y))
      return thread_and_start(x) < thread_and_start(y);
    return x.dur_ns != y.dur_ns ? x.dur_ns > y.dur_ns : a < b;
  });
  std::vector<uint32_t> order(moments.size());
  std::iota(order.begin(), order.end(), 0U);
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    return thread_and_start(moments[a]) < thread_and_start(moments[b]);
  });

  std::vector<uint32_t> found(moments.size(), kNone);
  std::vector<uint32_t> open;  // of the current thread; what has ended goes as it comes up
  size_t next = 0;
  for (const uint32_t m : order) {
    const Moment& moment = moments[m];
    while (next < spans.size() && thread_and_start(all[spans[next]]) <= thread_and_start(moment))
      open.push_back(spans[next++]);
    const auto is_over = [&](const Span& e) {
      return e.pid != moment.pid || e.tid != moment.tid || e.end_ns() <= moment.ts_ns;
    };
    while (!open.empty() && is_over(all[open.back()])) open.pop_back();
    if (!open.empty()) found[m] = open.back();
  }
  return found;
}

}  // namespace

std::vector<uint32_t> innermost_at(const Trace& trace, std::vector<uint32_t> spans,
                                   const std::vector<Moment>& moments) {
  return innermost_of(trace.events, std::move(spans), moments);
}

std::vector<uint32_t> innermost_at(const std::vector<PythonFrame>& frames,
                                   std::vector<uint32_t> spans,
                                   const std::vector<Moment>& moments) {
  return innermost_of(frames, std::move(spans), moments);
}

}  // namespace epilogue::trace
