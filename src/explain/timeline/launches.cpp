// SPDX-License-Identifier: Apache-2.0
#include "epilogue/trace/time.h"
#include "explain/index/by_name.h"

#include <algorithm>
#include <unordered_map>

namespace epilogue::trace {
namespace {

// The label that our own traces have.
constexpr std::string_view kSynchronousLabel = "KERNEL";

// What the names of calls say, by StringId: a name is asked once.
struct NameFlags {
  bool is_sync = false;
  bool is_kernel_launch = false;
  bool is_graph_launch = false;
};

std::vector<NameFlags> name_flags(const Trace& trace) {
  return by_name(trace, [](std::string_view name) -> NameFlags {
    return {is_sync_call_name(name), is_kernel_launch_name(name), is_graph_launch_name(name)};
  });
}

// Calls in which the host waits for the device.
std::vector<bool> waiting_calls(const Trace& trace, const Links& links,
                                const std::vector<NameFlags>& names) {
  std::vector<bool> waits(trace.events.size());
  for (size_t i = 0; i < trace.events.size(); ++i)
    waits[i] = is_launch_category(trace.events[i].category) && names[trace.events[i].name].is_sync;
  for (const uint32_t i : links.device_work) {
    const uint32_t call = links.launch[i];
    if (call != kNone && is_blocking_copy(trace, trace.events[i], trace.events[call]))
      waits[call] = true;
  }
  return waits;
}

// True where no launch of the same kernel came before: that call may have had to load its code.
bool is_first_of_kernel(const Trace& trace, const Links& links, uint32_t call) {
  StringId kernel = 0;
  for (const uint32_t i : links.device_work)
    if (links.launch[i] == call) kernel = trace.events[i].name;
  if (kernel == 0) return false;
  return std::none_of(links.device_work.begin(), links.device_work.end(), [&](uint32_t i) {
    return trace.events[i].name == kernel && links.launch[i] != kNone &&
           trace.events[links.launch[i]].ts_ns < trace.events[call].ts_ns;
  });
}

// Those of `launching`: calls that start work and do not wait for it.
std::optional<SlowCall> find_outlier(const Trace& trace, const Links& links,
                                     const std::vector<uint32_t>& launching) {
  if (launching.size() < 2) return std::nullopt;
  int64_t total_ns = 0;
  uint32_t slowest = launching.front();
  for (const uint32_t i : launching) {
    total_ns += trace.events[i].dur_ns;
    if (trace.events[i].dur_ns > trace.events[slowest].dur_ns) slowest = i;
  }
  const Event& call = trace.events[slowest];
  if (call.dur_ns * 2 <= total_ns) return std::nullopt;
  return SlowCall{std::string(trace.name(call)), call.dur_ns,
                  is_first_of_kernel(trace, links, slowest)};
}

// Counts the calls that `is_counted` marks.
std::vector<CallStats> call_stats(const Trace& trace, const std::vector<bool>& starts_work,
                                  const std::vector<bool>& is_counted) {
  struct Calls {
    std::vector<int64_t> times_ns;
    bool starts_work = false;
  };
  std::unordered_map<StringId, Calls> by_name;
  Calls* calls = nullptr;  // of the last name: most calls in a row are launches
  StringId last = 0;
  for (size_t i = 0; i < trace.events.size(); ++i) {
    const Event& e = trace.events[i];
    if (!is_counted[i]) continue;
    if (calls == nullptr || e.name != last) calls = &by_name[last = e.name];
    calls->times_ns.push_back(e.dur_ns);
    calls->starts_work = calls->starts_work || starts_work[i];
  }
  std::vector<CallStats> list;
  for (auto& [id, all] : by_name) {
    const std::string_view name = trace.strings[id];
    list.push_back({std::string(name), all.starts_work || is_kernel_launch_name(name),
                    *distribution(std::move(all.times_ns))});
  }
  std::sort(list.begin(), list.end(), [](const CallStats& a, const CallStats& b) {
    return a.time.total_ns != b.time.total_ns ? a.time.total_ns > b.time.total_ns : a.name < b.name;
  });
  return list;
}

void add_calls(const Trace& trace, const Links& links, const std::vector<bool>& starts_work,
               const std::vector<NameFlags>& names, LaunchStats& stats) {
  std::vector<bool> all(trace.events.size());
  std::vector<bool> launches(trace.events.size());
  std::vector<uint32_t> launching;
  const std::vector<bool> waits = waiting_calls(trace, links, names);
  for (uint32_t i = 0; i < trace.events.size(); ++i) {
    const Event& e = trace.events[i];
    all[i] = is_launch_category(e.category);
    launches[i] = all[i] && !waits[i] && (starts_work[i] || names[e.name].is_kernel_launch);
    if (launches[i]) launching.push_back(i);
  }
  stats.calls = call_stats(trace, starts_work, all);
  stats.launching_calls = call_stats(trace, starts_work, launches);
  stats.outlier = find_outlier(trace, links, launching);
}

}  // namespace

bool is_synchronous_device(const Trace& trace) { return trace.device_label == kSynchronousLabel; }

LaunchStats launch_stats(const Trace& trace, const Links& links) {
  LaunchStats stats;
  stats.launches = static_cast<int64_t>(links.launches.size());
  const std::vector<NameFlags> names = name_flags(trace);
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
    if (work.category != Category::kernel) continue;
    ++kernels;
    if (work.ts_ns < launch.ts_ns) ++stats.kernels_before_launch;
    if (is_first) delays_ns.push_back(work.ts_ns - launch.end_ns());
    if (names[launch.name].is_graph_launch) {
      ++stats.graph_kernels;
    } else {
      ++stats.kernels_with_launch;
      if (work.dur_ns < launch.dur_ns) ++stats.kernels_shorter_than_launch;
    }
  }
  int64_t in_steps = 0;
  int64_t with_work = 0;
  for (const uint32_t i : links.launches) {
    if (names[trace.events[i].name].is_graph_launch) ++stats.graph_launches;
    if (links.step[i] != kNone) ++in_steps;
    if (starts_work[i]) ++with_work;
  }
  if (!is_synchronous_device(trace)) stats.queue_delay = distribution(std::move(delays_ns));
  if (with_work > 0)
    stats.kernels_per_launch = static_cast<double>(kernels) / static_cast<double>(with_work);
  if (!links.steps.empty())
    stats.launches_per_step =
        static_cast<double>(in_steps) / static_cast<double>(links.steps.size());
  add_calls(trace, links, starts_work, names, stats);
  return stats;
}

}  // namespace epilogue::trace
