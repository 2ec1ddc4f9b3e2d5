// SPDX-License-Identifier: Apache-2.0
#include "explain/timeline/pauses.h"

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "explain/index/aten_ops.h"
#include "explain/timeline/idle_causes.h"
#include "trace/step_name.h"

namespace epilogue::trace {
namespace {

constexpr int64_t kLeastPauseNs = 2'000'000;  // a turn of another process takes 3 ms and more
constexpr int64_t kMostPauseNs = 60'000'000;  // longer ones are no turn
constexpr int64_t kLeastTimes = 8;            // of the median
constexpr int64_t kLeastTimesIfBusy = 4;      // where some are sure
constexpr size_t kSurePauses = 2;
constexpr size_t kLeastEqual = 3;     // calls that a median is made of
constexpr size_t kOneOf = 5;          // at most one of so many is paused
constexpr int64_t kAlikeTimes = 2;    // the longest of usual calls, of the shortest
constexpr size_t kRun = 3;            // slow calls side by side have a reason
constexpr int64_t kCheapNs = 20'000;  // a view, or numbers that a cache holds
constexpr int64_t kCheapBytes = 64 << 10;

using ThreadKey = std::pair<int32_t, int64_t>;

uint64_t joined_hash(uint64_t a, uint64_t b) {
  a ^= b + 0x9e3779b97f4a7c15U + (a << 6U) + (a >> 2U);
  a *= 0xff51afd7ed558ccdU;
  return a ^ (a >> 33U);
}

// The thread with the most time in ops.
ThreadKey thread_of_ops(const Trace& trace, const Links& links) {
  std::vector<std::pair<ThreadKey, int64_t>> sums;
  size_t at = 0;
  for (size_t i = 0; i < trace.events.size(); ++i) {
    const Event& e = trace.events[i];
    if (e.category != Category::cpu_op || links.parent[i] != kNone) continue;
    const ThreadKey key(e.pid, e.tid);
    if (at >= sums.size() || sums[at].first != key) {
      at = static_cast<size_t>(std::ranges::find(sums, key, &std::pair<ThreadKey, int64_t>::first) -
                               sums.begin());
      if (at == sums.size()) sums.emplace_back(key, 0);
    }
    sums[at].second += e.dur_ns;
  }
  const auto most = std::ranges::max_element(sums, {}, &std::pair<ThreadKey, int64_t>::second);
  return most == sums.end() ? ThreadKey{} : most->first;
}

// Time of the main thread between two moments at which an op starts or ends.
struct Stretch {
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
  uint32_t op = kNone;     // the innermost around it; kNone: Python
  uint32_t right = kNone;  // the op that starts or ends after it
  uint64_t key = 0;        // of equal ones

  int64_t length_ns() const { return end_ns - begin_ns; }
};

class Stretches {
 public:
  Stretches(const Trace& trace, ThreadKey thread) : trace_(trace) {
    for (uint32_t i = 0; i < trace.events.size(); ++i) {
      const Event& e = trace.events[i];
      if (e.category == Category::cpu_op && e.pid == thread.first && e.tid == thread.second &&
          !trace.name(e).starts_with(kStepPrefix))
        ops_.push_back(i);
    }
    const auto starts_before = [&](uint32_t a, uint32_t b) {
      const Event& x = trace.events[a];
      const Event& y = trace.events[b];
      return x.ts_ns != y.ts_ns ? x.ts_ns < y.ts_ns : x.end_ns() > y.end_ns();
    };
    if (!std::is_sorted(ops_.begin(), ops_.end(), starts_before))
      std::stable_sort(ops_.begin(), ops_.end(), starts_before);
  }

  // By start.
  template <typename Visit>
  void visit(const Visit& visit) const {
    std::vector<uint32_t> open;
    int64_t last_ns = INT64_MIN;
    uint64_t last = 0;
    const auto reach = [&](int64_t ts_ns, uint32_t op, bool ends) {
      const uint64_t side = joined_hash(side_of(op), ends ? 1 : 0);
      if (last_ns != INT64_MIN && ts_ns > last_ns) {
        const uint32_t around = open.empty() ? kNone : open.back();
        const uint64_t parent = around == kNone ? 0 : trace_.events[around].name;
        visit(Stretch{last_ns, ts_ns, around, op, joined_hash(joined_hash(last, side), parent)});
      }
      last_ns = std::max(last_ns, ts_ns);
      last = side;
    };
    for (const uint32_t i : ops_) {
      const Event& e = trace_.events[i];
      while (!open.empty() && trace_.events[open.back()].end_ns() <= e.ts_ns) {
        reach(trace_.events[open.back()].end_ns(), open.back(), true);
        open.pop_back();
      }
      reach(e.ts_ns, i, false);
      open.push_back(i);
    }
    while (!open.empty()) {
      reach(trace_.events[open.back()].end_ns(), open.back(), true);
      open.pop_back();
    }
  }

 private:
  uint64_t side_of(uint32_t op) const {
    const OpArgs* args = trace_.op_args(trace_.events[op]);
    return joined_hash(trace_.events[op].name, args == nullptr ? kNone : args->inputs);
  }

  const Trace& trace_;
  std::vector<uint32_t> ops_;  // of the thread, by start
};

// One of equal stretches.
struct Member {
  Stretch stretch;
  uint32_t step = kNone;
  uint32_t place = 0;  // among the equal ones of its step
  int64_t excess_ns = 0;
};
using Group = std::vector<Member>;

// Python that may wait for something else: no call of its kind shows how long.
bool may_wait(std::string_view function) {
  constexpr std::array<std::string_view, 22> kWords = {
      "sleep", "wait",  "acquire", "join", "recv",  "send",      "poll", "select",
      "read",  "write", "queue",   "get ", "open",  "barrier",   "save", "load",
      "fsync", "flush", "print",   "dump", "stat ", "collect of"};
  if (is_of_distributed(function)) return true;
  if (!function.starts_with("<built-in") || function.find("Tensor") != std::string_view::npos)
    return false;
  return std::ranges::any_of(
      kWords, [&](std::string_view word) { return function.find(word) != std::string_view::npos; });
}

class PauseSearch {
 public:
  PauseSearch(const Trace& trace, const Links& links)
      : trace_(trace), links_(links), thread_(thread_of_ops(trace, links)) {}

  IntervalSet run() {
    collect();
    if (groups_.empty()) return {};
    std::vector<Interval> found = search();
    // Where the processor was lost for sure, what looks like it is taken for it, too.
    is_busy_ = found.size() >= kSurePauses;
    return united(is_busy_ ? search() : std::move(found));
  }

 private:
  std::vector<Interval> search() {
    for (auto& [key, group] : groups_) {
      const uint32_t op = group.front().stretch.op;
      if (op == kNone || has_inputs(op) || is_autograd(op))
        judge(group);
      else
        judge_places(group);
    }
    std::vector<Interval> found;
    for (const auto& [key, group] : groups_) {
      if (group.front().stretch.op == kNone) continue;
      for (const Member& m : group)
        if (m.excess_ns > 0) found.push_back({m.stretch.end_ns - m.excess_ns, m.stretch.end_ns});
    }
    add_gaps(found);
    drop_busy(found);
    return found;
  }

  // Groups in which one is long enough for a pause.
  void collect() {
    const Stretches stretches(trace_, thread_);
    stretches.visit([&](const Stretch& s) {
      if (s.length_ns() >= kLeastPauseNs) groups_.try_emplace(s.key);
    });
    if (groups_.empty()) return;
    stretches.visit([&](const Stretch& s) {
      const auto group = groups_.find(s.key);
      if (group == groups_.end()) return;
      Member m{s, links_.step[s.right]};
      if (!group->second.empty() && group->second.back().step == m.step)
        m.place = group->second.back().place + 1;
      group->second.push_back(m);
    });
  }

  // An op that cannot take ms by itself.
  bool is_cheap(const Event& op) const {
    const std::string_view name = trace_.name(op);
    const OpClass kind = op_class(name);
    if (kind == OpClass::view) return name.find("empty") == std::string_view::npos;
    const OpArgs* args = trace_.op_args(op);
    if (!is_elementwise(kind) || is_transcendental(name) || args == nullptr ||
        args->inputs >= trace_.inputs.size())
      return false;
    int64_t bytes = 0;
    for (const TensorShape& t : tensor_inputs(trace_.inputs[args->inputs])) {
      if (!t.bytes()) return false;
      bytes += *t.bytes();
    }
    return bytes > 0 && bytes <= kCheapBytes;
  }

  bool has_inputs(uint32_t op) const {
    const OpArgs* args = trace_.op_args(trace_.events[op]);
    return args != nullptr && args->inputs != kNone;
  }
  bool is_autograd(uint32_t op) const {
    const std::string_view name = trace_.name(trace_.events[op]);
    return name.starts_with("autograd::") || name.ends_with("Backward0");
  }

  // Ops of the library: calls of others need not be equal.
  bool is_known(uint32_t op) const {
    return op == kNone || is_autograd(op) || trace_.name(trace_.events[op]).starts_with("aten::");
  }

  // All but one in five take about equally long.
  static bool is_alike(const Group& group) {
    std::vector<int64_t> lengths;
    for (const Member& m : group) lengths.push_back(m.stretch.length_ns());
    std::ranges::sort(lengths);
    const size_t usual = lengths.size() - std::max<size_t>(1, lengths.size() / kOneOf);
    return usual >= kLeastEqual && lengths[usual - 1] <= kAlikeTimes * lengths.front();
  }

  // Without their sizes calls are equal that stand at one place of the steps, or look it.
  void judge_places(Group& group) const {
    if (is_alike(group)) {
      judge(group);
      return;
    }
    std::map<uint32_t, std::vector<size_t>> places;
    for (size_t i = 0; i < group.size(); ++i)
      if (group[i].step != kNone) places[group[i].place].push_back(i);
    for (const auto& [place, at] : places) {
      Group equal;
      for (const size_t i : at) equal.push_back(group[i]);
      judge(equal);
      for (size_t i = 0; i < at.size(); ++i) group[at[i]].excess_ns = equal[i].excess_ns;
    }
  }

  void judge(Group& group) const {
    const uint32_t op = group.front().stretch.op;
    std::vector<int64_t> lengths;
    for (const Member& m : group) lengths.push_back(m.stretch.length_ns());
    std::ranges::nth_element(lengths, lengths.begin() + static_cast<ptrdiff_t>(lengths.size() / 2));
    int64_t median = lengths[lengths.size() / 2];
    const bool is_cheap_op = op != kNone && is_cheap(trace_.events[op]);
    if (!is_cheap_op && (group.size() < kLeastEqual || !is_known(op))) return;
    if (is_cheap_op) median = std::min(median, kCheapNs);
    const int64_t times = is_busy_ ? kLeastTimesIfBusy : kLeastTimes;
    const int64_t slow_from = std::max(median + kLeastPauseNs, is_cheap_op ? 0 : times * median);
    std::vector<size_t> slow;
    for (size_t i = 0; i < group.size(); ++i)
      if (group[i].stretch.length_ns() >= slow_from) slow.push_back(i);
    // All calls of a cheap op are slow: threads wait for each other.
    const size_t most = is_cheap_op ? std::max<size_t>(2, group.size() / 2)
                                    : std::max<size_t>(1, group.size() / kOneOf);
    if (slow.size() > most || has_reason(group, slow, is_cheap_op)) return;
    for (const size_t i : slow) {
      // The first call makes what the later ones use.
      if (i == 0 && !is_cheap_op && !may_be_first(op)) continue;
      if (recurs(group, slow, group[i].place)) continue;
      const int64_t excess = group[i].stretch.length_ns() - median;
      if (excess <= kMostPauseNs) group[i].excess_ns = excess;
    }
  }

  // Of a busy machine: steps before the trace made what an op makes once.
  bool may_be_first(uint32_t op) const {
    if (!is_busy_) return false;
    if (op == kNone) return true;
    if (links_.steps.empty()) return false;
    return step_number(trace_.name(trace_.events[links_.steps.front()])).value_or(0) > 0;
  }

  // Slow ones at equal distances, or side by side.
  static bool has_reason(const Group& group, const std::vector<size_t>& slow, bool is_cheap_op) {
    if (slow.size() < kRun || is_cheap_op) return false;
    size_t run = 1;
    bool is_even = slow[1] - slow[0] > 1;
    for (size_t i = 1; i < slow.size(); ++i) {
      run = slow[i] == slow[i - 1] + 1 ? run + 1 : 1;
      if (run >= kRun) return true;
      is_even = is_even && slow[i] - slow[i - 1] == slow[1] - slow[0];
    }
    return is_even && group.front().step == group.back().step;
  }

  // The same place is slow in half of the steps or more.
  static bool recurs(const Group& group, const std::vector<size_t>& slow, uint32_t place) {
    size_t steps = 0;
    size_t slow_steps = 0;
    for (const Member& m : group) steps += m.step != kNone && m.place == place ? 1 : 0;
    for (const size_t i : slow)
      slow_steps += group[i].step != kNone && group[i].place == place ? 1 : 0;
    return slow_steps >= 2 && 2 * slow_steps >= steps;
  }

  template <typename Visit>
  void visit_frames(const Visit& visit) const {
    for (const PythonFrame& f : trace_.frames)
      if (f.pid == thread_.first && f.tid == thread_.second) visit(f.ts_ns, f.end_ns(), f.name);
    for (const Event& e : trace_.events)
      if (e.category == Category::python_function && e.pid == thread_.first &&
          e.tid == thread_.second)
        visit(e.ts_ns, e.end_ns(), e.name);
  }

  // A gap of Python, with the functions that start in it.
  struct Gap {
    const Member* member;
    uint64_t functions = 0;
    std::vector<int64_t> moments = {};  // at which one starts or ends; of long gaps
  };

  // Of a gap of Python the longest part in which no function starts or ends, where the functions of
  // a short one run. Without frames nothing says that the same work was done.
  void add_gaps(std::vector<Interval>& found) const {
    std::vector<Gap> gaps;
    for (const auto& [key, group] : groups_)
      if (group.front().stretch.op == kNone &&
          std::ranges::any_of(group, [](const Member& m) { return m.excess_ns > 0; }))
        for (const Member& m : group) gaps.push_back({&m});
    if (gaps.empty()) return;
    const auto begin_of = [](const Gap& g) { return g.member->stretch.begin_ns; };
    std::ranges::sort(gaps, {}, begin_of);
    const auto gap_at = [&](int64_t ts_ns) -> Gap* {
      auto at = std::ranges::upper_bound(gaps, ts_ns, {}, begin_of);
      if (at == gaps.begin()) return nullptr;
      --at;
      return ts_ns < at->member->stretch.end_ns ? &*at : nullptr;
    };
    bool has_frames = false;
    visit_frames([&](int64_t begin_ns, int64_t end_ns, StringId name) {
      has_frames = true;
      Gap* const first = gap_at(begin_ns);
      Gap* const last = gap_at(end_ns);
      if (first != nullptr) first->functions += hash_of(name);
      if (first != nullptr && first->member->excess_ns > 0) first->moments.push_back(begin_ns);
      if (last != nullptr && last->member->excess_ns > 0) last->moments.push_back(end_ns);
    });
    if (!has_frames) return;
    std::unordered_set<uint64_t> short_ones;
    for (const Gap& g : gaps)
      if (g.member->excess_ns == 0)
        short_ones.insert(joined_hash(g.member->stretch.key, g.functions));
    std::vector<Interval> parts;
    for (Gap& g : gaps) {
      const Member& m = *g.member;
      if (m.excess_ns == 0 || !short_ones.contains(joined_hash(m.stretch.key, g.functions)))
        continue;
      const Interval part = longest_part(m.stretch, std::move(g.moments));
      const int64_t excess = std::min(m.excess_ns, part.length_ns());
      if (excess >= kLeastPauseNs) parts.push_back({part.end_ns - excess, part.end_ns});
    }
    drop_waits(parts);
    found.insert(found.end(), parts.begin(), parts.end());
  }

  // Frames of one function on different objects are equal.
  uint64_t hash_of(StringId name) const {
    const std::string_view text = trace_.strings[name];
    return joined_hash(std::hash<std::string_view>()(text.substr(0, text.find(" at 0x"))), 1);
  }

  static Interval longest_part(const Stretch& gap, std::vector<int64_t> moments) {
    moments.push_back(gap.begin_ns);
    moments.push_back(gap.end_ns);
    std::ranges::sort(moments);
    Interval longest;
    for (size_t i = 1; i < moments.size(); ++i)
      if (const Interval part{moments[i - 1], moments[i]}; part.length_ns() > longest.length_ns())
        longest = part;
    return longest;
  }

  // The innermost function around a part says whether it waits.
  void drop_waits(std::vector<Interval>& parts) const {
    std::vector<std::pair<int64_t, StringId>> innermost(parts.size(), {INT64_MIN, 0});
    visit_frames([&](int64_t begin_ns, int64_t end_ns, StringId name) {
      if (end_ns - begin_ns < kLeastPauseNs) return;
      for (size_t i = 0; i < parts.size(); ++i)
        if (begin_ns <= parts[i].begin_ns && end_ns >= parts[i].end_ns &&
            begin_ns >= innermost[i].first)
          innermost[i] = {begin_ns, name};
    });
    size_t kept = 0;
    for (size_t i = 0; i < parts.size(); ++i)
      if (!may_wait(trace_.strings[innermost[i].second])) parts[kept++] = parts[i];
    parts.resize(kept);
  }

  // Beside other threads that work, and in the data loader, the main thread may wait.
  void drop_busy(std::vector<Interval>& found) const {
    if (found.empty()) return;
    std::ranges::sort(found, {}, &Interval::begin_ns);
    std::vector<char> is_busy(found.size());
    for (const Event& e : trace_.events) {
      const bool is_range =
          e.category == Category::user_annotation && !trace_.name(e).starts_with(kStepPrefix);
      if (e.category != Category::cpu_op && !is_range) continue;
      const bool is_other = e.pid != thread_.first || e.tid != thread_.second;
      if (!is_other && !is_data_loading(trace_, e)) continue;
      auto at = std::ranges::upper_bound(found, e.ts_ns, {}, &Interval::end_ns);
      for (; at != found.end() && at->begin_ns < e.end_ns(); ++at)
        is_busy[static_cast<size_t>(at - found.begin())] = 1;
    }
    size_t kept = 0;
    for (size_t i = 0; i < found.size(); ++i)
      if (is_busy[i] == 0) found[kept++] = found[i];
    found.resize(kept);
  }

  const Trace& trace_;
  const Links& links_;
  ThreadKey thread_;
  bool is_busy_ = false;  // some are sure
  std::unordered_map<uint64_t, Group> groups_;
};

}  // namespace

IntervalSet find_pauses(const Trace& trace, const Links& links) {
  if (!links.device_work.empty() || !links.launches.empty() || trace.selection) return {};
  return PauseSearch(trace, links).run();
}

TimeWithoutPauses::TimeWithoutPauses(Trace& trace, const Links& links, bool puts_back)
    : trace_(trace) {
  const IntervalSet found = find_pauses(trace, links);
  if (found.empty()) return;
  pauses_.count = static_cast<int64_t>(found.size());
  pauses_.ns = total_ns(found);
  if (puts_back)
    before_ =
        Times{trace.events, trace.frames, trace.memory, trace.flows, trace.start_ns, trace.end_ns};
  const Coverage taken(found);
  const int64_t first_ns = found.front().begin_ns;
  const auto moved = [&](int64_t ts_ns) {
    return ts_ns <= first_ns ? ts_ns : ts_ns - taken.within_ns({first_ns, ts_ns});
  };
  const auto move_span = [&](auto& span) {
    if (span.end_ns() <= first_ns) return;
    const int64_t end_ns = moved(span.end_ns());
    span.ts_ns = moved(span.ts_ns);
    span.dur_ns = std::min(span.dur_ns, end_ns - span.ts_ns);  // one below 0 stays
  };
  for (Event& e : trace.events) move_span(e);
  for (PythonFrame& f : trace.frames) move_span(f);
  for (MemoryEvent& m : trace.memory) m.ts_ns = moved(m.ts_ns);
  for (Flow& f : trace.flows) {
    f.start.ts_ns = moved(f.start.ts_ns);
    f.end.ts_ns = moved(f.end.ts_ns);
  }
  trace.start_ns = moved(trace.start_ns);
  trace.end_ns = moved(trace.end_ns);
}

TimeWithoutPauses::~TimeWithoutPauses() {
  if (!before_) return;
  trace_.events = std::move(before_->events);
  trace_.frames = std::move(before_->frames);
  trace_.memory = std::move(before_->memory);
  trace_.flows = std::move(before_->flows);
  trace_.start_ns = before_->start_ns;
  trace_.end_ns = before_->end_ns;
}

}  // namespace epilogue::trace
