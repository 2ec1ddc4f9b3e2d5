// SPDX-License-Identifier: Apache-2.0
#include "explain/host/host_functions.h"

#include <algorithm>
#include <unordered_map>

#include "trace/nesting.h"

namespace epilogue::trace {
namespace {

// Built-in functions, and comprehensions, which are part of the function that they stand in.
bool is_builtin(std::string_view name) {
  return name.starts_with("<built-in") || name.ends_with("comp>") || name.ends_with("<genexpr>");
}

// The profiler's own frames are none of the program's.
bool is_profiler(std::string_view name) {
  return name.find("torch/profiler/") != std::string_view::npos ||
         name.find("torch/autograd/profiler") != std::string_view::npos;
}

std::vector<uint32_t> frames_of(const Trace& trace, int32_t pid, int64_t tid) {
  std::vector<uint32_t> frames;
  for (uint32_t i = 0; i < trace.events.size(); ++i) {
    const Event& e = trace.events[i];
    // Frames of threads that began before the profiler may lack their thread.
    const bool is_ours = (e.pid == pid && e.tid == tid) || (e.pid == 0 && e.tid == 0);
    if (e.category == Category::python_function && is_ours) frames.push_back(i);
  }
  std::sort(frames.begin(), frames.end(), [&](uint32_t a, uint32_t b) {
    const Event& x = trace.events[a];
    const Event& y = trace.events[b];
    return x.ts_ns != y.ts_ns ? x.ts_ns < y.ts_ns : x.dur_ns > y.dur_ns;
  });
  return frames;
}

}  // namespace

std::vector<HostFunction> functions_within(const Trace& trace, int32_t pid, int64_t tid,
                                           const IntervalSet& moments) {
  const std::vector<uint32_t> frames = frames_of(trace, pid, tid);
  std::vector<LaneSpan> spans;
  spans.reserve(frames.size());
  for (const uint32_t i : frames)
    spans.push_back({0, 0, trace.events[i].ts_ns, trace.events[i].end_ns()});
  const std::vector<uint32_t> parents = nest(spans);
  const Coverage within(moments);
  std::vector<int64_t> self_ns(frames.size());
  for (size_t f = 0; f < frames.size(); ++f) {
    const int64_t ns = within.within_ns({spans[f].start_ns, spans[f].end_ns});
    self_ns[f] += ns;
    if (parents[f] != kNone) self_ns[parents[f]] -= ns;
  }
  std::unordered_map<StringId, HostFunction> by_name;
  for (size_t f = 0; f < frames.size(); ++f) {
    if (self_ns[f] <= 0) continue;
    auto of = static_cast<uint32_t>(f);
    while (parents[of] != kNone && is_builtin(trace.name(trace.events[frames[of]])))
      of = parents[of];
    const Event& e = trace.events[frames[of]];
    if (is_profiler(trace.name(e))) continue;
    HostFunction& function = by_name[e.name];
    function.name = std::string(trace.name(e));
    function.self_ns += self_ns[f];
    if (of == f) ++function.count;
  }
  std::vector<HostFunction> list;
  list.reserve(by_name.size());
  for (auto& [name, function] : by_name) list.push_back(std::move(function));
  std::sort(list.begin(), list.end(), [](const HostFunction& a, const HostFunction& b) {
    return a.self_ns != b.self_ns ? a.self_ns > b.self_ns : a.name < b.name;
  });
  return list;
}

}  // namespace epilogue::trace
