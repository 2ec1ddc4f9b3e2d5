// SPDX-License-Identifier: Apache-2.0
#include "explain/index/enclosing.h"

#include <algorithm>
#include <numeric>
#include <tuple>

namespace epilogue::trace {
namespace {

auto thread_and_start(const Event& e) { return std::tuple(e.pid, e.tid, e.ts_ns); }
auto thread_and_start(const Moment& m) { return std::tuple(m.pid, m.tid, m.ts_ns); }

}  // namespace

std::vector<uint32_t> innermost_at(const Trace& trace, std::vector<uint32_t> spans,
                                   const std::vector<Moment>& moments) {
  std::sort(spans.begin(), spans.end(), [&](uint32_t a, uint32_t b) {
    const Event& x = trace.events[a];
    const Event& y = trace.events[b];
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
    while (next < spans.size() &&
           thread_and_start(trace.events[spans[next]]) <= thread_and_start(moment))
      open.push_back(spans[next++]);
    const auto is_over = [&](const Event& e) {
      return e.pid != moment.pid || e.tid != moment.tid || e.end_ns() <= moment.ts_ns;
    };
    while (!open.empty() && is_over(trace.events[open.back()])) open.pop_back();
    if (!open.empty()) found[m] = open.back();
  }
  return found;
}

}  // namespace epilogue::trace
