// SPDX-License-Identifier: Apache-2.0
#include "explain/index/op_tree.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

#include "explain/index/sort_runs.h"

namespace epilogue::trace {

OpTree::OpTree(const Trace& trace, const Links& links) {
  std::vector<uint32_t> ops;
  for (uint32_t i = 0; i < trace.events.size(); ++i)
    if (trace.events[i].category == Category::cpu_op) ops.push_back(i);
  sort_runs(ops, [&](uint32_t a, uint32_t b) {
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

// What is asked of one thread.
struct ThreadMoments {
  std::vector<uint32_t> moments;
  std::vector<uint32_t> spans;
};

// Threads apart: each one's spans and moments stand by start in the file, mostly, and spans of
// threads without moments are never sorted.
template <class Span>
std::vector<uint32_t> innermost_of(const std::vector<Span>& all, const std::vector<uint32_t>& spans,
                                   const std::vector<Moment>& moments) {
  std::vector<uint32_t> found(moments.size(), kNone);
  if (spans.empty() || moments.empty()) return found;
  using Thread = std::pair<int32_t, int64_t>;
  std::map<Thread, ThreadMoments> threads;
  auto at = threads.end();  // neighbours mostly share theirs
  for (uint32_t m = 0; m < moments.size(); ++m) {
    const Thread thread(moments[m].pid, moments[m].tid);
    if (at == threads.end() || at->first != thread) at = threads.try_emplace(thread).first;
    at->second.moments.push_back(m);
  }
  Thread last = at->first;
  for (const uint32_t i : spans) {
    const Thread thread(all[i].pid, all[i].tid);
    if (thread != last) at = threads.find(last = thread);
    if (at != threads.end()) at->second.spans.push_back(i);
  }
  for (auto& [thread, list] : threads) {
    sort_runs(list.moments, [&](uint32_t a, uint32_t b) {
      return moments[a].ts_ns != moments[b].ts_ns ? moments[a].ts_ns < moments[b].ts_ns : a < b;
    });
    sort_runs(list.spans, [&](uint32_t a, uint32_t b) {
      const Span& x = all[a];
      const Span& y = all[b];
      if (x.ts_ns != y.ts_ns) return x.ts_ns < y.ts_ns;
      return x.dur_ns != y.dur_ns ? x.dur_ns > y.dur_ns : a < b;
    });
    std::vector<uint32_t> open;  // what has ended goes as it comes up
    size_t next = 0;
    for (const uint32_t m : list.moments) {
      const int64_t ts_ns = moments[m].ts_ns;
      while (next < list.spans.size() && all[list.spans[next]].ts_ns <= ts_ns)
        open.push_back(list.spans[next++]);
      while (!open.empty() && all[open.back()].end_ns() <= ts_ns) open.pop_back();
      if (!open.empty()) found[m] = open.back();
    }
  }
  return found;
}

}  // namespace

std::vector<uint32_t> innermost_at(const Trace& trace, const std::vector<uint32_t>& spans,
                                   const std::vector<Moment>& moments) {
  return innermost_of(trace.events, spans, moments);
}

std::vector<uint32_t> innermost_at(const std::vector<PythonFrame>& frames,
                                   const std::vector<uint32_t>& spans,
                                   const std::vector<Moment>& moments) {
  return innermost_of(frames, spans, moments);
}

}  // namespace epilogue::trace
