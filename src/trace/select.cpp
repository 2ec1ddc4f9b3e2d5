// SPDX-License-Identifier: Apache-2.0
#include "epilogue/trace/file.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <string>

#include "epilogue/trace/links.h"
#include "trace/step_name.h"

namespace epilogue::trace {
namespace {

constexpr double kNsPerMs = 1e6;

struct Window {
  int64_t begin_ns;
  int64_t end_ns;
  // Half open, but a moment at the very end of a window of length 0 is inside.
  bool holds(int64_t ts_ns) const {
    return ts_ns >= begin_ns && (ts_ns < end_ns || begin_ns == end_ns);
  }
  bool overlaps(const Event& e) const {
    return holds(e.ts_ns) || (e.ts_ns < end_ns && e.end_ns() > begin_ns);
  }
};

bool is_step_name(std::string_view name) { return name.starts_with(kStepPrefix); }

// True for what the times of a part depend on although it is not of the part.
bool matters_outside(Category category) {
  return category == Category::cpu_op || category == Category::user_annotation ||
         is_launch_category(category) || is_device_work(category);
}

// Marks the device work of the window; gives the time in which what was launched there ran.
Window mark_device_work(const Trace& trace, const Links& links, const Window& window,
                        std::vector<char>& mask) {
  Window launched{INT64_MAX, INT64_MIN};
  for (const uint32_t i : links.device_work) {
    const Event& e = trace.events[i];
    const uint32_t cause = links.launch[i] != kNone ? links.launch[i] : links.op[i];
    const bool is_launched = cause != kNone && window.holds(trace.events[cause].ts_ns);
    mask[i] = is_launched || window.overlaps(e) ? 1 : 0;
    if (!is_launched) continue;
    launched.begin_ns = std::min(launched.begin_ns, e.ts_ns);
    launched.end_ns = std::max(launched.end_ns, e.end_ns());
  }
  return launched;
}

// Which events a window shows. Annotations' device side goes with what it annotates: a step's with
// its host side, the others' with the work that they span.
std::vector<char> mask_of(const Trace& trace, const Links& links, const Window& window) {
  std::vector<char> mask(trace.events.size());
  const Window launched = mark_device_work(trace, links, window, mask);
  std::set<StringId> whole_steps;
  for (const uint32_t i : links.steps) {
    const Event& step = trace.events[i];
    mask[i] = window.holds(step.ts_ns) && step.end_ns() <= window.end_ns ? 1 : 0;
    if (mask[i] != 0) whole_steps.insert(step.name);
  }
  for (size_t i = 0; i < trace.events.size(); ++i) {
    const Event& e = trace.events[i];
    const bool is_step = is_step_name(trace.name(e));
    if (e.category == Category::gpu_user_annotation) {
      const bool is_of_launched = launched.holds(e.ts_ns) && e.end_ns() <= launched.end_ns;
      mask[i] = is_step ? whole_steps.contains(e.name) : is_of_launched || window.holds(e.ts_ns);
    } else if (is_device_category(e.category) && e.category != Category::cuda_sync) {
      continue;
    } else if (e.category != Category::user_annotation || !is_step) {
      mask[i] = window.holds(e.ts_ns) ? 1 : 0;
    }
  }
  return mask;
}

// Keeps events by mask and what hangs on host times by window; the side tables stay as they are.
void keep(Trace& trace, const std::vector<char>& mask, const Window& window) {
  Selection& selection = trace.selection ? *trace.selection : trace.selection.emplace();
  selection.start_ns = std::max(selection.start_ns, window.begin_ns);
  selection.end_ns = std::min(selection.end_ns, window.end_ns);
  trace.frames = {};
  size_t kept = 0;
  for (size_t i = 0; i < trace.events.size(); ++i) {
    if (mask[i] != 0) {
      trace.events[kept++] = trace.events[i];
    } else if (matters_outside(trace.events[i].category)) {
      selection.outside.push_back(trace.events[i]);
    }
  }
  trace.events.resize(kept);
  std::erase_if(trace.memory, [&](const MemoryEvent& m) { return !window.holds(m.ts_ns); });
  std::erase_if(trace.flows, [&](const Flow& f) {
    return !window.holds(f.start.ts_ns) || !window.holds(f.end.ts_ns);
  });
}

std::string list_of_steps(const Trace& trace, const Links& links) {
  if (links.steps.empty()) return "it has no ProfilerStep annotations";
  constexpr size_t kMaxListed = 10;
  std::string text = links.steps.size() == 1 ? "its only step is" : "its steps are";
  for (size_t i = 0; i < std::min(links.steps.size(), kMaxListed); ++i) {
    const std::string_view name = trace.name(trace.events[links.steps[i]]);
    text += (i == 0 ? " " : ", ") + std::string(name.substr(kStepPrefix.size()));
  }
  return text + (links.steps.size() > kMaxListed ? ", ..." : "");
}

int64_t after(int64_t start_ns, double ms) {
  const double ns = std::round(ms * kNsPerMs);
  constexpr int64_t kFarNs = std::numeric_limits<int64_t>::max() / 4;
  constexpr auto kFar = static_cast<double>(kFarNs);
  return start_ns + static_cast<int64_t>(std::clamp(ns, -kFar, kFar));
}

}  // namespace

Result<Trace> select_step(Trace trace, int64_t number) {
  const Links links = link(trace);
  const std::string name = std::string(kStepPrefix) + std::to_string(number);
  const auto found = std::find_if(links.steps.begin(), links.steps.end(),
                                  [&](uint32_t i) { return trace.name(trace.events[i]) == name; });
  if (found == links.steps.end())
    return Failure{FailureCode::no_such_step, trace.import.path + ": no step " +
                                                  std::to_string(number) + ": " +
                                                  list_of_steps(trace, links)};
  const Event& step = trace.events[*found];
  const Window window{step.ts_ns, step.end_ns()};
  keep(trace, mask_of(trace, links, window), window);
  trace.start_ns = window.begin_ns;
  trace.end_ns = window.end_ns;
  return trace;
}

Result<Trace> select_range(Trace trace, std::optional<double> from_ms,
                           std::optional<double> to_ms) {
  if (from_ms && to_ms && *from_ms >= *to_ms)
    return Failure{FailureCode::empty_range,
                   trace.import.path +
                       ": no time lies between --from and --to: the first must be "
                       "less than the second"};
  const Window window{
      from_ms ? after(trace.start_ns, *from_ms) : std::numeric_limits<int64_t>::min(),
      to_ms ? after(trace.start_ns, *to_ms) : std::numeric_limits<int64_t>::max()};
  const std::vector<char> mask = mask_of(trace, link(trace), window);
  if (std::count(mask.begin(), mask.end(), 1) == 0)
    return Failure{FailureCode::empty_range,
                   trace.import.path + ": nothing happens in that time: the trace is " +
                       std::to_string((trace.end_ns - trace.start_ns) / 1'000'000) + " ms long"};
  keep(trace, mask, window);
  trace.start_ns = std::max(trace.start_ns, window.begin_ns);
  trace.end_ns = std::max(trace.start_ns, std::min(trace.end_ns, window.end_ns));
  return trace;
}

}  // namespace epilogue::trace
