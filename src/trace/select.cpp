// SPDX-License-Identifier: Apache-2.0
#include "epilogue/trace/select.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "epilogue/trace/links.h"

namespace epilogue::trace {
namespace {

constexpr std::string_view kStepPrefix = "ProfilerStep#";
constexpr double kNsPerMs = 1e6;

struct Interval {
  int64_t begin_ns;
  int64_t end_ns;
  // Half open, but a moment at the very end of an interval of length 0 is inside.
  bool holds(int64_t ts_ns) const {
    return ts_ns >= begin_ns && (ts_ns < end_ns || begin_ns == end_ns);
  }
};

// Keeps events by mask and what hangs on host times by interval; the side tables stay as they are.
void keep(Trace& trace, const std::vector<char>& mask, const Interval& host) {
  size_t kept = 0;
  for (size_t i = 0; i < trace.events.size(); ++i)
    if (mask[i] != 0) trace.events[kept++] = trace.events[i];
  trace.events.resize(kept);
  std::erase_if(trace.memory, [&](const MemoryEvent& m) { return !host.holds(m.ts_ns); });
  std::erase_if(trace.flows, [&](const Flow& f) {
    return !host.holds(f.start.ts_ns) || !host.holds(f.end.ts_ns);
  });
  trace.start_ns = host.begin_ns;
  trace.end_ns = host.end_ns;
}

std::string list_of_steps(const Trace& trace, const Links& links) {
  if (links.steps.empty()) return "it has no ProfilerStep annotations";
  constexpr size_t kMaxListed = 10;
  std::string text = "it has";
  for (size_t i = 0; i < std::min(links.steps.size(), kMaxListed); ++i) {
    const std::string_view name = trace.name(trace.events[links.steps[i]]);
    text += (i == 0 ? " " : ", ") + std::string(name.substr(kStepPrefix.size()));
  }
  return text + (links.steps.size() > kMaxListed ? ", ..." : "");
}

// Events inside the step: by launch on the device, by time on the host. What stands for a whole
// step on the device, its annotation, goes by its name.
std::vector<char> step_mask(const Trace& trace, const Links& links, uint32_t position) {
  const Event& step = trace.events[links.steps[position]];
  std::vector<char> mask(trace.events.size());
  Interval device{INT64_MAX, INT64_MIN};
  for (const uint32_t i : links.device_work) {
    if (links.step[i] != position) continue;
    mask[i] = 1;
    device.begin_ns = std::min(device.begin_ns, trace.events[i].ts_ns);
    device.end_ns = std::max(device.end_ns, trace.events[i].end_ns());
  }
  for (size_t i = 0; i < trace.events.size(); ++i) {
    const Event& e = trace.events[i];
    if (e.category == Category::kGpuUserAnnotation) {
      const bool is_step = trace.name(e).starts_with(kStepPrefix);
      mask[i] =
          is_step ? e.name == step.name : device.holds(e.ts_ns) && e.end_ns() <= device.end_ns;
    } else if (!is_device_category(e.category) || e.category == Category::kCudaSync) {
      mask[i] = e.ts_ns >= step.ts_ns && e.end_ns() <= step.end_ns();
    }
  }
  return mask;
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
    return Failure{"NoSuchStep", trace.import.path + ": no step " + std::to_string(number) + ": " +
                                     list_of_steps(trace, links)};
  const Event step = trace.events[*found];
  const auto position = static_cast<uint32_t>(found - links.steps.begin());
  keep(trace, step_mask(trace, links, position), {step.ts_ns, step.end_ns()});
  return trace;
}

Result<Trace> select_range(Trace trace, std::optional<double> from_ms,
                           std::optional<double> to_ms) {
  const Interval range{from_ms ? after(trace.start_ns, *from_ms) : INT64_MIN,
                       to_ms ? after(trace.start_ns, *to_ms) : INT64_MAX};
  std::vector<char> mask(trace.events.size());
  for (size_t i = 0; i < mask.size(); ++i) mask[i] = range.holds(trace.events[i].ts_ns) ? 1 : 0;
  if (range.end_ns <= range.begin_ns || std::count(mask.begin(), mask.end(), 1) == 0)
    return Failure{"EmptyRange",
                   trace.import.path + ": no event starts in that time: the trace is " +
                       std::to_string((trace.end_ns - trace.start_ns) / 1'000'000) + " ms long"};
  const int64_t start_ns = std::max(trace.start_ns, range.begin_ns);
  const int64_t end_ns = std::min(trace.end_ns, range.end_ns);
  keep(trace, mask, range);
  trace.start_ns = start_ns;
  trace.end_ns = std::max(start_ns, end_ns);
  return trace;
}

}  // namespace epilogue::trace
