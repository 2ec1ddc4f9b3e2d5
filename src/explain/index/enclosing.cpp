// SPDX-License-Identifier: Apache-2.0
#include "explain/index/enclosing.h"

#include <algorithm>
#include <numeric>
#include <tuple>
#include <utility>

namespace epilogue::trace {
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
