// SPDX-License-Identifier: Apache-2.0
#include "epilogue/trace/slow_steps.h"

#include <algorithm>
#include <numeric>
#include <unordered_map>

#include "epilogue/base/distribution.h"
#include "explain/index/self_time.h"

namespace epilogue::trace {
namespace {

constexpr size_t kExplained = 3;  // slow steps
constexpr size_t kShown = 3;      // ops of one
// Of the step's time above the median: less is noise.
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

}  // namespace epilogue::trace
