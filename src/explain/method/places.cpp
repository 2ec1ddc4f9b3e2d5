// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <tuple>

#include "explain/index/op_tree.h"
#include "explain/method/counted_ops.h"

namespace epilogue::trace {
namespace {

constexpr size_t kPlaceCalls = 128;

// Functions of the user and of libraries on top of torch: torch's own say little, and
// comprehensions and built-in functions are part of the function around them.
bool is_users_function(std::string_view name) {
  constexpr std::string_view kOthers[] = {"/torch/", "<frozen ", "contextlib.py", "threading.py"};
  if (name.starts_with("<built-in") || name.starts_with(kModulePrefix) ||
      name.starts_with("torch/") || name.ends_with("comp>") || name.ends_with("<genexpr>"))
    return false;
  return std::none_of(std::begin(kOthers), std::end(kOthers), [&](std::string_view other) {
    return name.find(other) != std::string_view::npos;
  });
}

// Ranges that a step is made of, not places within it.
bool is_users_range(std::string_view name) { return !name.starts_with("ProfilerStep#"); }

std::string_view strip(std::string_view name) {
  constexpr std::string_view kNode = "autograd::engine::evaluate_function: ";
  if (name.starts_with(kNode)) name.remove_prefix(kNode.size());
  return name;
}

// A number for each name, of which the largest wins.
class Vote {
 public:
  void add(std::string_view name, int64_t ns) { by_name_[name] += std::max<int64_t>(ns, 1); }
  // "" unless it has more than half.
  std::string winner() const {
    int64_t all = 0;
    const std::pair<const std::string_view, int64_t>* best = nullptr;
    for (const auto& entry : by_name_) {
      all += entry.second;
      if (best == nullptr || entry.second > best->second) best = &entry;
    }
    return best != nullptr && 2 * best->second > all ? std::string(best->first) : "";
  }

 private:
  std::map<std::string_view, int64_t> by_name_;
};

}  // namespace

// Spans of threads, asked for the innermost one around a moment. Sorted once: places are asked for
// again and again.
template <class Span>
class SpanIndex {
 public:
  explicit SpanIndex(const std::vector<Span>& all) : all_(all) {}

  void add(uint32_t span) { order_.push_back(span); }
  void finish() {
    const auto is_before = [&](uint32_t a, uint32_t b) {
      const auto x = start_of(all_[a]);
      const auto y = start_of(all_[b]);
      if (x != y) return x < y;
      return all_[a].dur_ns != all_[b].dur_ns ? all_[a].dur_ns > all_[b].dur_ns : a < b;
    };
    if (!std::is_sorted(order_.begin(), order_.end(), is_before))
      std::sort(order_.begin(), order_.end(), is_before);
    around_.resize(order_.size());
    std::vector<uint32_t> open;
    for (uint32_t i = 0; i < order_.size(); ++i) {
      const Span& span = all_[order_[i]];
      while (!open.empty() && is_over(all_[order_[open.back()]], span.pid, span.tid, span.ts_ns))
        open.pop_back();
      around_[i] = open.empty() ? kNone : open.back();
      open.push_back(i);
    }
  }
  // The innermost; null if there is none.
  const Span* span_at(const Moment& m) const {
    const auto after = std::upper_bound(
        order_.begin(), order_.end(), std::tuple(m.pid, m.tid, m.ts_ns),
        [&](const auto& moment, uint32_t span) { return moment < start_of(all_[span]); });
    if (after == order_.begin()) return nullptr;
    auto at = static_cast<uint32_t>(after - order_.begin() - 1);
    while (at != kNone && is_over(all_[order_[at]], m.pid, m.tid, m.ts_ns)) at = around_[at];
    return at == kNone ? nullptr : &all_[order_[at]];
  }

 private:
  static auto start_of(const Span& s) { return std::tuple(s.pid, s.tid, s.ts_ns); }
  static bool is_over(const Span& s, int32_t pid, int64_t tid, int64_t ts_ns) {
    return s.pid != pid || s.tid != tid || s.end_ns() <= ts_ns;
  }

  const std::vector<Span>& all_;
  std::vector<uint32_t> order_;
  std::vector<uint32_t> around_;  // by position in order_: the span that was open before
};

// Spans by kind, as events or as frames beside them.
struct Places::Spans {
  explicit Spans(const Trace& trace)
      : ranges(trace.events),
        function_events(trace.events),
        module_events(trace.events),
        function_frames(trace.frames),
        module_frames(trace.frames) {
    std::vector<char> kinds(trace.strings.size(), kUnknown);
    for (uint32_t i = 0; i < trace.events.size(); ++i) {
      const Event& e = trace.events[i];
      if (e.category == Category::user_annotation && is_users_range(trace.name(e))) ranges.add(i);
      if (e.category != Category::python_function) continue;
      const char kind = kind_of(trace, e.name, kinds);
      if (kind == kFunction) function_events.add(i);
      if (kind == kModule) module_events.add(i);
    }
    for (uint32_t i = 0; i < trace.frames.size(); ++i) {
      const char kind = kind_of(trace, trace.frames[i].name, kinds);
      if (kind == kFunction) function_frames.add(i);
      if (kind == kModule) module_frames.add(i);
    }
    ranges.finish();
    function_events.finish();
    module_events.finish();
    function_frames.finish();
    module_frames.finish();
  }

  // A name and a start.
  using Found = std::pair<StringId, int64_t>;
  Found range_at(const Moment& moment) const { return found(ranges.span_at(moment)); }
  Found function_at(const Moment& moment) const {
    return frame_at(function_events, function_frames, moment);
  }
  Found module_at(const Moment& moment) const {
    return frame_at(module_events, module_frames, moment);
  }

  SpanIndex<Event> ranges, function_events, module_events;
  SpanIndex<PythonFrame> function_frames, module_frames;

 private:
  static constexpr char kUnknown = 0, kOther = 1, kFunction = 2, kModule = 3;
  static char kind_of(const Trace& trace, StringId id, std::vector<char>& kinds) {
    char& kind = kinds[id];
    if (kind == kUnknown) {
      const std::string_view name = trace.strings[id];
      kind = name.starts_with(kModulePrefix) ? kModule
             : is_users_function(name)       ? kFunction
                                             : kOther;
    }
    return kind;
  }
  // Frames of threads that began before the profiler may lack their process or their thread.
  static Found frame_at(const SpanIndex<Event>& events, const SpanIndex<PythonFrame>& frames,
                        Moment moment) {
    for (int lacks = 0; lacks < 3; ++lacks) {
      if (lacks > 0) moment.pid = 0;
      if (lacks > 1) moment.tid = 0;
      if (const Found at = found(events.span_at(moment)); at.first != 0) return at;
      if (const Found at = found(frames.span_at(moment)); at.first != 0) return at;
    }
    return {};
  }
  template <class Span>
  static Found found(const Span* span) {
    return span == nullptr ? Found() : Found(span->name, span->ts_ns);
  }
};

const Places::Spans& Places::spans() const {
  if (!spans_) spans_ = std::make_shared<Spans>(all_.trace);
  return *spans_;
}

uint32_t Places::forward_of(uint32_t root) const {
  const Trace& trace = all_.trace;
  const auto sequence_of = [&](uint32_t op) {
    const OpArgs* args = trace.op_args(trace.events[op]);
    return args == nullptr ? int64_t{-1} : args->sequence_number;
  };
  const int64_t sequence = sequence_of(root);
  if (sequence < 0 || !is_autograd_node(trace.name(trace.events[root]))) return kNone;
  if (!forward_) {
    forward_ = std::make_shared<std::vector<std::pair<int64_t, uint32_t>>>();
    for (const uint32_t op : all_.ops)
      if (all_.links.parent[op] == kNone && sequence_of(op) >= 0 &&
          !is_autograd_node(trace.name(trace.events[op])))
        forward_->emplace_back(sequence_of(op), op);
    std::stable_sort(forward_->begin(), forward_->end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
  }
  // The last before: the number of an op that makes no node is that of the next one.
  uint32_t found = kNone;
  for (auto at = std::lower_bound(forward_->begin(), forward_->end(), std::pair(sequence, 0U));
       at != forward_->end() && at->first == sequence; ++at)
    if (trace.events[at->second].ts_ns < trace.events[root].ts_ns) found = at->second;
  return found;
}

CostPlace Places::of(std::span<const uint32_t> calls) const {
  const Trace& trace = all_.trace;
  std::vector<Moment> moments;
  std::vector<int64_t> weights;
  Vote outer;
  // Backward ops stand where their forward op does: both carry one sequence number.
  std::vector<Moment> forward;
  const size_t stride = std::max<size_t>(1, calls.size() / kPlaceCalls);
  for (size_t c = 0; c < calls.size(); c += stride) {
    const Event& e = all_.event(calls[c]);
    const uint32_t root = all_.outermost(calls[c]);
    const Event& outermost = trace.events[root];
    const int64_t weight = all_.ns_at(calls[c]);
    outer.add(root == all_.ops[calls[c]] ? std::string_view() : strip(trace.name(outermost)),
              weight);
    moments.push_back({e.pid, e.tid, e.ts_ns});
    forward.push_back(moments.back());
    if (const uint32_t op = forward_of(root); op != kNone) {
      const Event& there = trace.events[op];
      forward.back() = {there.pid, there.tid, there.ts_ns};
    }
    weights.push_back(weight);
  }
  const Spans& s = spans();
  const auto winner = [&](const std::vector<Moment>& of, auto name_at) {
    Vote vote;
    for (size_t i = 0; i < of.size(); ++i)
      vote.add(trace.strings[(s.*name_at)(of[i]).first], weights[i]);
    return vote.winner();
  };
  CostPlace place;
  place.op = outer.winner();
  place.annotation = winner(moments, &Spans::range_at);
  place.function = winner(forward, &Spans::function_at);
  place.module = winner(forward, &Spans::module_at);
  if (place.module.starts_with(kModulePrefix)) place.module.erase(0, kModulePrefix.size());
  return place;
}

std::vector<Places::Module> Places::modules_at(std::span<const uint32_t> calls) const {
  const Spans& s = spans();
  std::vector<Module> modules;
  modules.reserve(calls.size());
  for (const uint32_t call : calls) {
    const Event& e = all_.event(call);
    const auto [name, start_ns] = s.module_at({e.pid, e.tid, e.ts_ns});
    modules.push_back({all_.trace.strings[name], start_ns});
  }
  return modules;
}

std::vector<Places::ModuleCall> Places::module_calls() const {
  const Trace& trace = all_.trace;
  std::map<std::pair<int32_t, int64_t>, std::vector<ModuleCall>> threads;
  const auto add = [&](StringId id, int32_t pid, int64_t tid, int64_t start_ns, int64_t end_ns) {
    std::string_view name = trace.strings[id];
    if (!name.starts_with(kModulePrefix)) return;
    name.remove_prefix(kModulePrefix.size());
    threads[{pid, tid}].push_back({name, start_ns, end_ns, kNone});
  };
  for (const Event& e : trace.events)
    if (e.category == Category::python_function) add(e.name, e.pid, e.tid, e.ts_ns, e.end_ns());
  for (const PythonFrame& f : trace.frames) add(f.name, f.pid, f.tid, f.ts_ns, f.end_ns());
  std::vector<ModuleCall> calls;
  for (auto& [thread, of] : threads)
    if (of.size() > calls.size()) calls = std::move(of);
  std::stable_sort(calls.begin(), calls.end(), [](const ModuleCall& a, const ModuleCall& b) {
    return a.start_ns != b.start_ns ? a.start_ns < b.start_ns : a.end_ns > b.end_ns;
  });
  std::vector<uint32_t> open;
  for (uint32_t i = 0; i < calls.size(); ++i) {
    while (!open.empty() && calls[open.back()].end_ns <= calls[i].start_ns) open.pop_back();
    calls[i].around = open.empty() ? kNone : open.back();
    open.push_back(i);
  }
  return calls;
}

std::string CostPlace::text() const {
  std::string text;
  const auto add = [&](std::string_view before, const std::string& what) {
    if (!what.empty()) text += (text.empty() ? " " : ", ") + std::string(before) + what;
  };
  add("in ", op);
  add("in module ", module);
  add("in the range ", annotation);
  add("called from ", function);
  return text;
}

}  // namespace epilogue::trace
