// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <unordered_map>
#include <unordered_set>

#include "explain/index/op_tree.h"
#include "explain/method/counted_ops.h"
#include "trace/nesting.h"

namespace epilogue::trace {
namespace {

constexpr size_t kSampledCalls = 128;
constexpr std::string_view kModulePrefix = "nn.Module: ";

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

// Spans by kind, as events or as frames beside them.
struct Places::Spans {
  explicit Spans(const Trace& trace) {
    std::vector<char> kinds(trace.strings.size(), kUnknown);
    for (uint32_t i = 0; i < trace.events.size(); ++i) {
      const Event& e = trace.events[i];
      if (e.category == Category::user_annotation && is_users_range(trace.name(e)))
        ranges.push_back(i);
      if (e.category != Category::python_function) continue;
      const char kind = kind_of(trace, e.name, kinds);
      if (kind == kFunction) function_events.push_back(i);
      if (kind == kModule) module_events.push_back(i);
    }
    for (uint32_t i = 0; i < trace.frames.size(); ++i) {
      const char kind = kind_of(trace, trace.frames[i].name, kinds);
      if (kind == kFunction) function_frames.push_back(i);
      if (kind == kModule) module_frames.push_back(i);
    }
  }

  std::vector<uint32_t> ranges, function_events, function_frames, module_events, module_frames;

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
};

const Places::Spans& Places::spans() const {
  if (!spans_) spans_ = std::make_shared<Spans>(all_.trace);
  return *spans_;
}

namespace {

// The names of the innermost spans at moments; frames that began before the profiler may lack their
// process or their thread.
std::vector<StringId> names_at(const Trace& trace, const std::vector<uint32_t>& events,
                               const std::vector<uint32_t>& frames,
                               const std::vector<Moment>& moments) {
  std::vector<StringId> names(moments.size());
  for (const int lacks : {0, 1, 2}) {
    std::vector<Moment> asked;
    std::vector<size_t> of;
    for (size_t i = 0; i < moments.size(); ++i) {
      if (names[i] != 0) continue;
      Moment moment = moments[i];
      if (lacks > 0) moment.pid = 0;
      if (lacks > 1) moment.tid = 0;
      asked.push_back(moment);
      of.push_back(i);
    }
    if (asked.empty()) break;
    if (!events.empty()) {
      const std::vector<uint32_t> found = innermost_at(trace, events, asked);
      for (size_t i = 0; i < of.size(); ++i)
        if (found[i] != kNone) names[of[i]] = trace.events[found[i]].name;
    }
    if (!frames.empty()) {
      const std::vector<uint32_t> found = innermost_at(trace.frames, frames, asked);
      for (size_t i = 0; i < of.size(); ++i)
        if (found[i] != kNone && names[of[i]] == 0) names[of[i]] = trace.frames[found[i]].name;
    }
  }
  return names;
}

}  // namespace

CostPlace Places::of(std::span<const uint32_t> calls) const {
  const Trace& trace = all_.trace;
  std::vector<Moment> moments;
  std::vector<int64_t> weights;
  Vote outer;
  // Backward ops stand where their forward op does: both carry one sequence number.
  std::unordered_map<int64_t, std::vector<size_t>> waiting;
  const size_t stride = std::max<size_t>(1, calls.size() / kSampledCalls);
  for (size_t c = 0; c < calls.size(); c += stride) {
    const Event& e = all_.event(calls[c]);
    const uint32_t root = all_.outermost(calls[c]);
    const Event& outermost = trace.events[root];
    const int64_t weight = all_.ns_at(calls[c]);
    outer.add(root == all_.ops[calls[c]] ? std::string_view() : strip(trace.name(outermost)),
              weight);
    const OpArgs* args = trace.op_args(outermost);
    if (is_autograd_node(trace.name(outermost)) && args != nullptr && args->sequence_number >= 0)
      waiting[args->sequence_number].push_back(moments.size());
    moments.push_back({e.pid, e.tid, e.ts_ns});
    weights.push_back(weight);
  }
  std::vector<Moment> forward = moments;
  if (!waiting.empty())
    for (const uint32_t op : all_.ops) {
      const Event& e = trace.events[op];
      const OpArgs* args = trace.op_args(e);
      if (args == nullptr || args->sequence_number < 0 || all_.links.parent[op] != kNone ||
          is_autograd_node(trace.name(e)))
        continue;
      const auto found = waiting.find(args->sequence_number);
      if (found == waiting.end()) continue;
      for (const size_t i : found->second)
        if (e.ts_ns < moments[i].ts_ns) forward[i] = {e.pid, e.tid, e.ts_ns};
    }
  const auto winner = [&](const std::vector<StringId>& names) {
    Vote vote;
    for (size_t i = 0; i < names.size(); ++i) vote.add(trace.strings[names[i]], weights[i]);
    return vote.winner();
  };
  CostPlace place;
  place.op = outer.winner();
  const Spans& s = spans();
  place.annotation = winner(names_at(trace, s.ranges, {}, moments));
  place.function = winner(names_at(trace, s.function_events, s.function_frames, forward));
  place.module = winner(names_at(trace, s.module_events, s.module_frames, forward));
  if (place.module.starts_with(kModulePrefix)) place.module.erase(0, kModulePrefix.size());
  return place;
}

std::vector<std::string_view> Places::modules_at(std::span<const uint32_t> calls) const {
  std::vector<Moment> moments;
  moments.reserve(calls.size());
  for (const uint32_t call : calls) {
    const Event& e = all_.event(call);
    moments.push_back({e.pid, e.tid, e.ts_ns});
  }
  const Spans& s = spans();
  std::vector<std::string_view> names;
  names.reserve(calls.size());
  for (const StringId id : names_at(all_.trace, s.module_events, s.module_frames, moments))
    names.push_back(all_.trace.strings[id]);
  return names;
}

std::string CostPlace::text() const {
  std::string text;
  const auto add = [&](std::string_view before, const std::string& what) {
    if (!what.empty()) text += (text.empty() ? " " : ", ") + std::string(before) + what;
  };
  add("in ", op);
  add("module ", module);
  add("range ", annotation);
  add("called from ", function);
  return text;
}

}  // namespace epilogue::trace
