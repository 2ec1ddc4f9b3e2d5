// SPDX-License-Identifier: Apache-2.0
#include "epilogue/trace/launches.h"

#include <algorithm>
#include <unordered_map>

namespace epilogue::trace {
namespace {

// The label that our own traces have.
constexpr std::string_view kSynchronousLabel = "KERNEL";

std::vector<CallStats> call_stats(const Trace& trace, const std::vector<bool>& starts_work) {
  struct Calls {
    std::vector<int64_t> times_ns;
    bool starts_work = false;
  };
  std::unordered_map<StringId, Calls> by_name;
  for (size_t i = 0; i < trace.events.size(); ++i) {
    const Event& e = trace.events[i];
    if (!is_launch_category(e.category)) continue;
    Calls& calls = by_name[e.name];
    calls.times_ns.push_back(e.dur_ns);
    calls.starts_work = calls.starts_work || starts_work[i];
  }
  std::vector<CallStats> list;
  for (auto& [id, calls] : by_name) {
    const std::string_view name = trace.strings[id];
    list.push_back({std::string(name), calls.starts_work || is_kernel_launch_name(name),
                    *distribution(std::move(calls.times_ns))});
  }
  std::sort(list.begin(), list.end(), [](const CallStats& a, const CallStats& b) {
    return a.time.total_ns != b.time.total_ns ? a.time.total_ns > b.time.total_ns : a.name < b.name;
  });
  return list;
}

}  // namespace

bool is_synchronous_device(const Trace& trace) { return trace.device_label == kSynchronousLabel; }

LaunchStats launch_stats(const Trace& trace, const Links& links) {
  LaunchStats stats;
  stats.launches = static_cast<int64_t>(links.launches.size());
  std::vector<bool> starts_work(trace.events.size());
  std::vector<int64_t> delays_ns;
  int64_t kernels = 0;
  for (const uint32_t i : links.device_work) {  // by start: a graph's first kernel comes first
    const uint32_t call = links.launch[i];
    if (call == kNone) continue;
    const bool is_first = !starts_work[call];
    starts_work[call] = true;
    const Event& work = trace.events[i];
    const Event& launch = trace.events[call];
    if (work.category != Category::kKernel) continue;
    ++kernels;
    if (work.ts_ns < launch.ts_ns) ++stats.kernels_before_launch;
    if (is_first) delays_ns.push_back(work.ts_ns - launch.end_ns());
    if (is_graph_launch_name(trace.name(launch))) {
      ++stats.graph_kernels;
    } else {
      ++stats.kernels_with_launch;
      if (work.dur_ns < launch.dur_ns) ++stats.kernels_shorter_than_launch;
    }
  }
  int64_t in_steps = 0;
  int64_t with_work = 0;
  for (const uint32_t i : links.launches) {
    if (is_graph_launch_name(trace.name(trace.events[i]))) ++stats.graph_launches;
    if (links.step[i] != kNone) ++in_steps;
    if (starts_work[i]) ++with_work;
  }
  if (!is_synchronous_device(trace)) stats.queue_delay = distribution(std::move(delays_ns));
  if (with_work > 0)
    stats.kernels_per_launch = static_cast<double>(kernels) / static_cast<double>(with_work);
  if (!links.steps.empty())
    stats.launches_per_step =
        static_cast<double>(in_steps) / static_cast<double>(links.steps.size());
  stats.calls = call_stats(trace, starts_work);
  return stats;
}

}  // namespace epilogue::trace
