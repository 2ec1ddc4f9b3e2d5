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

// The frames of a thread, as events or beside them: callers before what they call.
std::vector<PythonFrame> frames_of(const Trace& trace, int32_t pid, int64_t tid) {
  std::vector<PythonFrame> frames;
  // Frames of threads that began before the profiler may lack their thread.
  const auto is_ours = [&](const auto& frame) {
    return (frame.pid == pid && frame.tid == tid) || (frame.pid == 0 && frame.tid == 0);
  };
  for (const Event& e : trace.events)
    if (e.category == Category::python_function && is_ours(e))
      frames.push_back({e.ts_ns, e.dur_ns, e.tid, e.pid, e.name});
  for (const PythonFrame& frame : trace.frames)
    if (is_ours(frame)) frames.push_back(frame);
  std::sort(frames.begin(), frames.end(), [](const PythonFrame& a, const PythonFrame& b) {
    return a.ts_ns != b.ts_ns ? a.ts_ns < b.ts_ns : a.dur_ns > b.dur_ns;
  });
  return frames;
}

}  // namespace

std::vector<HostFunction> functions_within(const Trace& trace, int32_t pid, int64_t tid,
                                           const IntervalSet& moments) {
  const std::vector<PythonFrame> frames = frames_of(trace, pid, tid);
  std::vector<LaneSpan> spans;
  spans.reserve(frames.size());
  for (const PythonFrame& frame : frames) spans.push_back({0, 0, frame.ts_ns, frame.end_ns()});
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
    while (parents[of] != kNone && is_builtin(trace.strings[frames[of].name])) of = parents[of];
    const std::string_view name = trace.strings[frames[of].name];
    if (is_profiler(name)) continue;
    HostFunction& function = by_name[frames[of].name];
    function.name = std::string(name);
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
