// SPDX-License-Identifier: Apache-2.0
#include "epilogue/trace/time.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <unordered_map>

#include "base/json.h"
#include "epilogue/base/distribution.h"
#include "epilogue/trace/slow_steps.h"
#include "explain/index/device_busy.h"
#include "explain/index/op_tree.h"
#include "explain/index/trace_metadata.h"
#include "explain/timeline/region_map.h"

namespace epilogue::trace {
namespace {

using ThreadKey = std::pair<int32_t, int64_t>;
ThreadKey thread_of(const Event& e) { return {e.pid, e.tid}; }

Region region_of(const Trace& trace, uint32_t event, RegionKind kind) {
  const Event& e = trace.events[event];
  Region region;
  region.name = std::string(trace.name(e));
  region.kind = kind;
  region.event = event;
  region.start_ns = e.ts_ns;
  region.end_ns = e.end_ns();
  return region;
}

// The thread whose annotations are worth showing: the one that launches most, else the one with
// most ops.
std::optional<ThreadKey> main_thread(const Trace& trace, const Links& links) {
  std::map<ThreadKey, int64_t> weight;
  for (const uint32_t i : links.launches) ++weight[thread_of(trace.events[i])];
  if (weight.empty())
    for (const Event& e : trace.events)
      if (e.category == Category::cpu_op) ++weight[thread_of(e)];
  const auto best =
      std::max_element(weight.begin(), weight.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  return best == weight.end() ? std::nullopt : std::optional(best->first);
}

std::vector<Region> outermost_annotations(const Trace& trace, const Links& links) {
  const std::optional<ThreadKey> thread = main_thread(trace, links);
  std::vector<uint32_t> found;
  for (uint32_t i = 0; i < trace.events.size(); ++i) {
    const Event& e = trace.events[i];
    if (e.category == Category::user_annotation && e.dur_ns > 0 && thread == thread_of(e))
      found.push_back(i);
  }
  std::sort(found.begin(), found.end(), [&](uint32_t a, uint32_t b) {
    const Event& x = trace.events[a];
    const Event& y = trace.events[b];
    return x.ts_ns != y.ts_ns ? x.ts_ns < y.ts_ns : x.dur_ns > y.dur_ns;
  });
  std::vector<Region> list;
  for (const uint32_t i : found)
    if (list.empty() || trace.events[i].ts_ns >= list.back().end_ns)
      list.push_back(region_of(trace, i, RegionKind::annotation));
  if (!list.empty())  // a selection may cut the last one
    list.back().end_ns = std::min(list.back().end_ns, shown_window(trace).end_ns);
  return list;
}

std::vector<Region> whole_window(const Trace& trace, const Links& links) {
  const Timeline time = timeline(trace, links);
  if (!time.start_ns) return {};
  Region region = {.name = "whole trace", .start_ns = *time.start_ns, .end_ns = *time.end_ns};
  return {region};
}

// The region in which a host event starts. Precondition: sorted and disjoint.
uint32_t position_of(const std::vector<Region>& list, int64_t ts_ns) {
  const auto after = std::upper_bound(list.begin(), list.end(), ts_ns,
                                      [](int64_t ts, const Region& r) { return ts < r.start_ns; });
  if (after == list.begin() || ts_ns >= std::prev(after)->end_ns) return kNone;
  return static_cast<uint32_t>(after - list.begin()) - 1;
}

std::vector<uint32_t> positions(const Trace& trace, const Links& links,
                                const std::vector<Region>& list) {
  std::vector<uint32_t> of_event(trace.events.size(), kNone);
  const bool is_window = list.size() == 1 && list.front().kind == RegionKind::window;
  for (uint32_t i = 0; i < trace.events.size(); ++i) {
    const Event& e = trace.events[i];
    if (e.category != Category::cpu_op && !is_launch_category(e.category)) continue;
    of_event[i] = is_window ? 0 : position_of(list, e.ts_ns);
  }
  for (const uint32_t i : links.device_work) {
    const uint32_t cause = links.launch[i] != kNone ? links.launch[i] : links.op[i];
    if (cause != kNone) of_event[i] = of_event[cause];
  }
  return of_event;
}

void add_host_sums(RegionMap& map, const Trace& trace, const Links& links) {
  std::vector<Interval> outermost;
  for (uint32_t i = 0; i < trace.events.size(); ++i) {
    const Event& e = trace.events[i];
    if (e.category != Category::cpu_op) continue;
    if (map.of_event[i] != kNone) ++map.regions[map.of_event[i]].ops;
    if (links.parent[i] == kNone) outermost.push_back({e.ts_ns, e.end_ns()});
  }
  const IntervalSet in_ops = united(std::move(outermost));
  const Coverage coverage(in_ops);
  for (Region& r : map.regions) r.cpu_op_ns = coverage.within_ns({r.start_ns, r.end_ns});
  for (const uint32_t i : links.launches)
    if (map.of_event[i] != kNone) ++map.regions[map.of_event[i]].launches;
}

// A device's work by the start of its launch call, with the latest end up to it. Work without a
// launch was launched before the recording.
struct LaunchedWork {
  int64_t launched_ns = INT64_MIN;
  int64_t end_ns = 0;
};

std::vector<LaunchedWork> launched_work(const Trace& trace, int32_t device) {
  std::unordered_map<int64_t, int64_t> launch_ns;
  for_each_event_around(trace, [&](const Event& e) {
    if (is_launch_category(e.category) && e.correlation != 0)
      launch_ns.try_emplace(e.correlation, e.ts_ns);
  });
  std::vector<LaunchedWork> work;
  for_each_event_around(trace, [&](const Event& e) {
    if (!is_device_work(e.category) || e.pid != device) return;
    const auto launch = launch_ns.find(e.correlation);
    if (launch == launch_ns.end()) {
      if (e.correlation != 0) work.push_back({INT64_MIN, e.end_ns()});
    } else {
      work.push_back({launch->second, e.end_ns()});
    }
  });
  std::sort(work.begin(), work.end(), [](const LaunchedWork& a, const LaunchedWork& b) {
    return a.launched_ns < b.launched_ns;
  });
  for (size_t i = 1; i < work.size(); ++i)
    work[i].end_ns = std::max(work[i].end_ns, work[i - 1].end_ns);
  return work;
}

void set_device_window(Region& r, const std::vector<LaunchedWork>& work,
                       const std::vector<Interval>& launched, const Interval& shown) {
  r.device_start_ns = r.start_ns;
  r.device_end_ns = r.end_ns;
  if (r.launched_work_ns == 0 || r.kind != RegionKind::annotation) return;
  IntervalSet within = intersected(united(launched), {{r.start_ns, r.end_ns}});
  if (2 * total_ns(within) >= r.launched_work_ns) return;
  const auto after = std::lower_bound(
      work.begin(), work.end(), r.start_ns,
      [](const LaunchedWork& w, int64_t start_ns) { return w.launched_ns < start_ns; });
  int64_t first_ns = INT64_MAX;
  int64_t last_ns = r.end_ns;
  for (const Interval& i : launched) {
    first_ns = std::min(first_ns, i.begin_ns);
    last_ns = std::max(last_ns, i.end_ns);
  }
  // Work of other streams may outlast the region's own: it begins no later than its first.
  if (after != work.begin())
    r.device_start_ns = std::max(r.start_ns, std::min(std::prev(after)->end_ns, first_ns));
  r.device_end_ns = std::min(last_ns, std::max(r.end_ns, shown.end_ns));
}

void add_device_sums(RegionMap& map, const Trace& trace, const Links& links) {
  std::vector<std::vector<Interval>> launched(map.regions.size());
  const std::optional<int32_t> device = busiest_device(trace, links);
  for (const uint32_t i : links.device_work) {
    const uint32_t position = map.of_event[i];
    if (position == kNone) continue;
    const Event& e = trace.events[i];
    Region& region = map.regions[position];
    ++(e.category == Category::kernel ? region.kernels : region.copies);
    launched[position].push_back({e.ts_ns, e.end_ns()});
  }
  const IntervalSet busy = device ? device_busy(trace, links, *device) : IntervalSet();
  const Coverage coverage(busy);
  const bool has_annotations =
      std::any_of(map.regions.begin(), map.regions.end(),
                  [](const Region& region) { return region.kind == RegionKind::annotation; });
  const std::vector<LaunchedWork> work =
      device && has_annotations ? launched_work(trace, *device) : std::vector<LaunchedWork>();
  for (size_t i = 0; i < map.regions.size(); ++i) {
    Region& r = map.regions[i];
    r.launched_work_ns = total_ns(united(launched[i]));
    r.device_busy_ns = coverage.within_ns({r.start_ns, r.end_ns});
    set_device_window(r, work, launched[i], shown_window(trace));
    r.window_busy_ns = coverage.within_ns({r.device_start_ns, r.device_end_ns});
  }
}

std::vector<Region> step_regions(const Trace& trace, const Links& links) {
  std::vector<Region> list;
  list.reserve(links.steps.size());
  for (const uint32_t i : links.steps) list.push_back(region_of(trace, i, RegionKind::step));
  return list;
}

// Regions without their sums.
RegionMap find_regions(const Trace& trace, const Links& links) {
  RegionMap map;
  map.regions = step_regions(trace, links);
  if (!map.regions.empty()) {
    map.of_event = links.step;
  } else {
    map.regions = outermost_annotations(trace, links);
    if (map.regions.empty()) map.regions = whole_window(trace, links);
    map.of_event = positions(trace, links, map.regions);
  }
  return map;
}

}  // namespace

RegionMap map_regions(const Trace& trace, const Links& links) {
  RegionMap map = find_regions(trace, links);
  add_host_sums(map, trace, links);
  add_device_sums(map, trace, links);
  return map;
}

std::vector<uint32_t> region_of_events(const Trace& trace, const Links& links) {
  return find_regions(trace, links).of_event;
}

std::vector<Region> regions(const Trace& trace, const Links& links) {
  return map_regions(trace, links).regions;
}

std::vector<Region> steps(const Trace& trace, const Links& links) {
  if (links.steps.empty()) return {};
  return regions(trace, links);
}

namespace {

constexpr size_t kExplained = 3;  // slow steps
constexpr size_t kShown = 3;      // ops of one
// Share of the step's time above the median; less is noise.
constexpr double kShownShare = 0.05;
// A step is slower throughout if ops that take so much of the usual time take so many times as
// long.
constexpr double kThroughoutShare = 0.8;
constexpr double kThroughoutFactor = 1.25;
constexpr size_t kThroughoutOps = 3;

constexpr const char* kBetweenOps = "time between ops";

using TimeByName = std::unordered_map<StringId, double>;

int64_t between_ops_ns(const Region& step) { return step.wall_ns() - step.cpu_op_ns; }

class Explainer {
 public:
  Explainer(const Trace& trace, const Links& links, const std::vector<Region>& steps,
            const std::vector<bool>& is_slow)
      : trace_(trace), steps_(steps), of_step_(steps.size()) {
    const std::vector<int64_t> self_ns = self_times_ns(trace, links);
    const auto others = static_cast<double>(std::count(is_slow.begin(), is_slow.end(), false));
    for (uint32_t i = 0; i < trace.events.size(); ++i) {
      const uint32_t step = links.step[i];
      if (step == kNone || self_ns[i] == 0) continue;
      const auto ns = static_cast<double>(self_ns[i]);
      const StringId name = trace.events[i].name;
      if (is_slow[step]) {
        of_step_[step][name] += ns;
      } else {
        usual_[name] += ns / others;
        usual_ns_ += ns / others;
      }
    }
    for (size_t s = 0; s < steps.size(); ++s)
      if (!is_slow[s]) usual_between_ns_ += static_cast<double>(between_ops_ns(steps[s])) / others;
  }

  void explain(size_t step, SlowStep& slow) const {
    const auto add = [&](std::string name, double ns) {
      if (ns >= kShownShare * static_cast<double>(slow.wall_ns - slow.median_ns))
        slow.above.push_back({std::move(name), static_cast<int64_t>(ns)});
    };
    double slower_ns = 0;  // of that, of ops that are slower in this step
    size_t slower_ops = 0;
    for (const auto& [name, ns] : of_step_[step]) {
      const auto found = usual_.find(name);
      const double usual = found == usual_.end() ? 0 : found->second;
      add(std::string(trace_.strings[name]), ns - usual);
      if (usual <= 0 || ns < kThroughoutFactor * usual) continue;
      slower_ns += usual;
      ++slower_ops;
    }
    add(kBetweenOps, static_cast<double>(between_ops_ns(steps_[step])) - usual_between_ns_);
    std::sort(slow.above.begin(), slow.above.end(), [](const TimeAbove& a, const TimeAbove& b) {
      return a.ns != b.ns ? a.ns > b.ns : a.name < b.name;
    });
    if (slow.above.size() > kShown) slow.above.resize(kShown);
    slow.is_slower_throughout =
        slower_ops >= kThroughoutOps && slower_ns >= kThroughoutShare * usual_ns_;
  }

 private:
  const Trace& trace_;
  const std::vector<Region>& steps_;
  TimeByName usual_;                 // mean over the steps that are not slow
  std::vector<TimeByName> of_step_;  // of slow ones
  double usual_ns_ = 0;              // their sum
  double usual_between_ns_ = 0;
};

}  // namespace

std::vector<SlowStep> slow_steps(const Trace& trace, const Links& links,
                                 const std::vector<Region>& steps) {
  std::vector<SlowStep> found;
  if (steps.size() < kStepsToCompare) return found;
  std::vector<int64_t> walls;
  walls.reserve(steps.size());
  for (const Region& step : steps) walls.push_back(step.wall_ns());
  const int64_t median = distribution(walls).value_or(Distribution()).median_ns;
  std::vector<bool> is_slow;
  std::vector<size_t> slow;
  for (size_t s = 0; s < steps.size(); ++s) {
    is_slow.push_back(static_cast<double>(walls[s]) >= kSlowStep * static_cast<double>(median));
    if (!is_slow.back()) continue;
    slow.push_back(s);
    found.push_back({.name = steps[s].name, .wall_ns = walls[s], .median_ns = median});
  }
  if (slow.empty() || slow.size() == steps.size()) return found;
  const Explainer explainer(trace, links, steps, is_slow);
  std::vector<size_t> by_length(slow.size());
  std::iota(by_length.begin(), by_length.end(), size_t{0});
  std::stable_sort(by_length.begin(), by_length.end(),
                   [&](size_t a, size_t b) { return found[a].wall_ns > found[b].wall_ns; });
  for (size_t i = 0; i < std::min(kExplained, slow.size()); ++i)
    explainer.explain(slow[by_length[i]], found[by_length[i]]);
  return found;
}

// The cost of profiling.

namespace {

constexpr std::string_view kRecorderKey = "epilogue_recorder";

// Our own recorder measures itself and says so.
std::optional<double> measured_ns_per_op(const Trace& trace) {
  for (const auto& [key, value] : trace.metadata) {
    if (key != kRecorderKey) continue;
    const auto json = parse_json(value);
    const auto found = json.is_object() ? json.find("ns_per_op") : json.end();
    if (found != json.end() && found->is_number()) return std::max(0.0, found->get<double>());
  }
  return std::nullopt;
}

}  // namespace

ProfilerCost profiler_cost(const Trace& trace, const Links& links) {
  ProfilerCost cost;
  const Recorded& recorded = trace.recorded;
  cost.is_inflated = recorded.record_shapes || recorded.profile_memory || recorded.with_stack ||
                     recorded.with_modules;
  const bool is_recent = trace.base_time_ns != 0;
  const Recorder recorder = recorder_of(trace);
  if (recorder == Recorder::nsight || recorder == Recorder::xla)
    cost.ns_per_op = 0;  // not known
  else if (is_recent)
    cost.ns_per_op = cost.is_inflated ? kRecentProfilerNsPerOp : kRecentPlainProfilerNsPerOp;
  else if (cost.is_inflated)
    cost.ns_per_op = kProfilerNsPerOp;
  if (const std::optional<double> measured = measured_ns_per_op(trace)) {
    cost.ns_per_op = *measured;
    cost.is_measured = true;
  }
  const auto per_op_ns = static_cast<int64_t>(cost.ns_per_op);
  for (const int64_t self_ns : self_times_ns(trace, links))
    cost.total_ns += std::min(self_ns, per_op_ns);
  return cost;
}

}  // namespace epilogue::trace
