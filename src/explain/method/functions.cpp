// SPDX-License-Identifier: Apache-2.0
// Python functions whose name says that steps need not call them, and hooks that run again and
// again for one call of their module.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>

#include "explain/index/intervals.h"
#include "explain/index/op_tree.h"
#include "explain/knowledge/op_knowledge.h"
#include "explain/method/roots.h"
#include "explain/timeline/idle_causes.h"
#include "trace/nesting.h"

namespace epilogue::trace {
namespace {

constexpr int64_t kManyRuns = 4;        // of a hook for one call, if they become more
constexpr int64_t kManySteadyRuns = 8;  // if they do not

constexpr size_t kManyRepeatedRuns = 8;    // of a function by one call of another
constexpr size_t kInnerTimes = 8;          // an op within each of them
constexpr double kRunsShare = 0.3;         // of the run
constexpr double kRunsOfCallShare = 0.05;  // in one call

enum class Aside : uint8_t { copy, model, save, count };

struct Row {
  std::string_view file;
  std::string_view function;  // how the name ends
  Aside aside;
};
constexpr std::array<Row, 6> kRows = {
    {{"copy.py(", ": deepcopy", Aside::copy},
     {"torch/serialization.py(", ": load", Aside::model},
     {"torch/nn/init.py(", "", Aside::model},
     {"torch/nn/modules/module.py(", ": load_state_dict", Aside::model},
     {"torch/jit/_serialization.py(", ": load", Aside::model},
     {"torch/serialization.py(", ": save", Aside::save}}};

std::string_view said_of(Aside aside) {
  switch (aside) {
    case Aside::copy: return "objects are copied whole (copy.deepcopy)";
    case Aside::model: return "weights are made or loaded anew (initialisation, torch.load)";
    case Aside::save: return "tensors are written to a file (torch.save)";
    case Aside::count: break;
  }
  return "";
}

std::string_view action_of(Aside aside) {
  switch (aside) {
    case Aside::copy:
      return "copy rarely (once per epoch, after validation, every N steps) and only the weights "
             "(state_dict, no optimizer and no buffers that nobody reads): keep one copy made "
             "once, and fill it in place by torch._foreach_copy_ under no_grad";
    case Aside::model:
      return "make and load the model once, when the program starts, and keep it; where it must be "
             "made anew, leave out the initial weights that load_state_dict overwrites "
             "(torch.nn.utils.skip_init, or device=\"meta\" and load_state_dict(assign=True))";
    case Aside::save:
      return "save every N steps, or copy the state and write it in the background "
             "(torch.distributed.checkpoint.async_save)";
    case Aside::count: break;
  }
  return "";
}

// Messages of objects are pickled: they read and write no files.
bool sends_objects(std::string_view name) {
  return is_of_distributed(name) || name.find("multiprocessing/") != std::string_view::npos ||
         name.ends_with(": _load_from_bytes") || name.ends_with(": __reduce__");
}

// A function of the program: no library's, no module and no built-in one.
bool is_programs(std::string_view name) {
  return !name.starts_with("torch/") && name.find("/torch/") == std::string_view::npos &&
         !name.starts_with("<") && !name.starts_with(kModulePrefix) && !name.ends_with('>') &&
         name.find('(') != std::string_view::npos;
}

class Functions : WasteSearch {
 public:
  Functions(const CountedOps& all, const Places& places, std::vector<Waste>& found)
      : WasteSearch(all, places, found) {}

  void run() {
    if (all_.is_device || all_.ops.empty() || !has_names()) return;
    read_frames();
    find_aside();
    find_hooks();
    if (!all_.has_backward) find_runs();
  }

 private:
  static const Row* row_of(std::string_view name) {
    for (const Row& row : kRows)
      if (name.find(row.file) != std::string_view::npos && name.ends_with(row.function))
        return &row;
    return nullptr;
  }

  // Most traces have no frames: then nothing is read.
  bool has_names() const {
    return !all_.trace.frames.empty() || std::ranges::any_of(all_.trace.events, [](const Event& e) {
      return e.category == Category::python_function;
    });
  }

  // The frames of the thread that counts: callers before what they call.
  void read_frames() {
    const Event& main = all_.event(0);
    const auto is_ours = [&](const auto& f) {
      return (f.pid == main.pid && f.tid == main.tid) || (f.pid == 0 && f.tid == 0);
    };
    for (const Event& e : all_.trace.events)
      if (e.category == Category::python_function && is_ours(e))
        frames_.push_back({e.ts_ns, e.dur_ns, e.tid, e.pid, e.name});
    for (const PythonFrame& f : all_.trace.frames)
      if (is_ours(f)) frames_.push_back(f);
    std::sort(frames_.begin(), frames_.end(), [](const PythonFrame& a, const PythonFrame& b) {
      return a.ts_ns != b.ts_ns ? a.ts_ns < b.ts_ns : a.dur_ns > b.dur_ns;
    });
    std::vector<LaneSpan> spans;
    spans.reserve(frames_.size());
    for (const PythonFrame& f : frames_) spans.push_back({0, 0, f.ts_ns, f.end_ns()});
    parents_ = nest(spans);
  }

  std::string_view name_of(uint32_t frame) const { return all_.trace.strings[frames_[frame].name]; }
  // The step that the frame is in, by its annotation's position; -1: in none.
  int64_t step_of(const PythonFrame& f) const {
    const auto& steps = all_.links.steps;
    for (size_t i = 0; i < steps.size(); ++i) {
      const Event& e = all_.trace.events[steps[i]];
      if (e.ts_ns <= f.ts_ns && f.end_ns() <= e.end_ns()) return static_cast<int64_t>(i);
    }
    return -1;
  }

  // Ops that start within the spans, which are sorted and apart: their times and calls. Returns
  // what is spent outside of ops.
  int64_t add_ops(const std::vector<uint32_t>& spans, OpTimes& times,
                  std::vector<uint32_t>& calls) const {
    int64_t outside_ns = 0;
    size_t at = 0;
    for (const uint32_t f : spans) {
      const PythonFrame& frame = frames_[f];
      outside_ns += frame.dur_ns;
      const auto before = [&](uint32_t op, int64_t ns) { return all_.trace.events[op].ts_ns < ns; };
      at = static_cast<size_t>(std::lower_bound(all_.ops.begin() + static_cast<ptrdiff_t>(at),
                                                all_.ops.end(), frame.ts_ns, before) -
                               all_.ops.begin());
      for (; at < all_.ops.size() && all_.event(at).ts_ns < frame.end_ns(); ++at) {
        times.add(all_.event(at).name, all_.ns_at(at));
        outside_ns -= all_.ns_at(at);
        calls.push_back(static_cast<uint32_t>(at));
      }
    }
    return std::max<int64_t>(0, outside_ns);
  }

  void find_aside() {
    struct Found {
      std::vector<uint32_t> spans;  // outermost ones
      std::set<int64_t> steps;
      std::map<std::string_view, int64_t> by_name;
      int64_t ns = 0;
    };
    std::array<Found, static_cast<size_t>(Aside::count)> found;
    std::vector<const Row*> rows(frames_.size());
    std::vector<char> is_within(frames_.size());
    ByNameOnce<const Row*> by_name(all_.trace);
    ByNameOnce<char> objects(all_.trace);
    for (uint32_t f = 0; f < frames_.size(); ++f) {
      const uint32_t p = parents_[f];
      is_within[f] = (p != kNone && (is_within[p] != 0 || rows[p] != nullptr)) ||
                             objects.get(frames_[f].name, sends_objects) != 0
                         ? 1
                         : 0;
      rows[f] = by_name.get(frames_[f].name, row_of);
      if (rows[f] == nullptr || is_within[f] != 0) continue;
      const int64_t step = step_of(frames_[f]);
      if (step < 0 && !all_.links.steps.empty()) continue;
      Found& of = found[static_cast<size_t>(rows[f]->aside)];
      of.spans.push_back(f);
      of.steps.insert(all_.links.steps.empty() ? f : step);
      of.by_name[name_of(f)] += frames_[f].dur_ns;
      of.ns += frames_[f].dur_ns;
    }
    for (size_t a = 0; a < found.size(); ++a) {
      Found& of = found[a];
      if (of.steps.size() < 2 || !is_worth_it(of.ns)) continue;
      Waste waste;
      waste.kind = WasteKind::aside_function;
      waste.title = fmt::format("{} {}: {} of {}", said_of(static_cast<Aside>(a)),
                                all_.links.steps.empty() ? "again and again" : "in the steps",
                                time_text(of.ns), time_text(all_.wall_ns));
      std::vector<std::pair<int64_t, std::string_view>> names;
      names.reserve(of.by_name.size());
      for (const auto& [name, ns] : of.by_name) names.emplace_back(-ns, name);
      std::sort(names.begin(), names.end());
      for (size_t i = 0; i < std::min<size_t>(3, names.size()); ++i)
        waste.evidence.push_back(
            fmt::format("{}: {}", names[i].second, time_text(-names[i].first)));
      waste.action = action_of(static_cast<Aside>(a));
      waste.ns = of.ns;
      waste.saving_ns = of.ns;
      waste.proof = WasteProof::likely;
      OpTimes times;
      std::vector<uint32_t> calls;
      waste.between_ns = add_ops(of.spans, times, calls);
      waste.op_calls = static_cast<int64_t>(calls.size());
      add(std::move(waste), calls, times);
    }
  }

  void find_hooks() {
    struct Hook {
      std::vector<uint32_t> spans;
      std::vector<int64_t> runs;  // of each call of a module
      int64_t extra_ns = 0;       // of all but the first run of each call
      int64_t ns = 0;
    };
    std::map<std::string_view, Hook> hooks;
    std::map<std::pair<uint32_t, std::string_view>, int64_t> runs;
    for (uint32_t f = 0; f < frames_.size(); ++f) {
      if (parents_[f] == kNone) continue;
      const std::string_view name = name_of(f);
      const std::string_view caller = name_of(parents_[f]);
      if (caller.find("torch/nn/modules/module.py(") == std::string_view::npos ||
          !(caller.ends_with(": _call_impl") || caller.ends_with(": inner")) ||
          name.ends_with(": forward") || !is_programs(name))
        continue;
      Hook& hook = hooks[name];
      hook.spans.push_back(f);
      hook.ns += frames_[f].dur_ns;
      const int64_t so_far = runs[{parents_[f], name}]++;
      if (so_far == 0)
        hook.runs.push_back(1);
      else if (!hook.runs.empty())
        ++hook.runs.back();
      if (so_far > 0) hook.extra_ns += frames_[f].dur_ns;
    }
    for (const auto& [name, hook] : hooks) {
      const int64_t first = hook.runs.front();
      const int64_t last = hook.runs.back();
      const bool grows = last > first && last >= kManyRuns;
      if ((!grows && std::min(first, last) < kManySteadyRuns) || !is_worth_it(hook.extra_ns))
        continue;
      Waste waste;
      waste.kind = WasteKind::piled_hooks;
      waste.title = fmt::format("the hook {} runs {} times for one call of its module: {} of {}",
                                name, last, time_text(hook.ns), time_text(all_.wall_ns));
      waste.evidence.push_back(
          grows ? fmt::format("{} times for the first call, {} for the last: hooks are registered "
                              "again and again, and none is removed",
                              first, last)
                : "as often at each call");
      waste.action =
          "register the hook once, before the loop (not in each step), and remove it when it is no "
          "longer needed: keep the handle that register_forward_hook returns, and call "
          "handle.remove()";
      waste.ns = hook.ns;
      waste.saving_ns = hook.extra_ns;
      waste.proof = grows ? WasteProof::shown : WasteProof::question;
      OpTimes times;
      std::vector<uint32_t> calls;
      waste.between_ns = add_ops(hook.spans, times, calls);
      waste.op_calls = static_cast<int64_t>(calls.size());
      add(std::move(waste), calls, times);
    }
  }

  // It reads the parameters of a layer. Products of matrices alone are arithmetic, too.
  static bool is_layer(std::string_view name) {
    constexpr std::array<std::string_view, 7> kPlain = {"mm",     "bmm", "mv",    "tensordot",
                                                        "matmul", "dot", "einsum"};
    const OpKnowledge* known = op_knowledge(name);
    return known == nullptr || (known->has_weights && !is_one(kPlain, aten_base(name)));
  }

  // The ops of a call as one number; nothing if it has a layer, no loop, or more than
  // a number as its result.
  std::optional<uint64_t> run_of(uint32_t frame) const {
    const PythonFrame& f = frames_[frame];
    const auto before = [&](uint32_t op, int64_t ns) { return all_.trace.events[op].ts_ns < ns; };
    auto op = std::lower_bound(all_.ops.begin(), all_.ops.end(), f.ts_ns, before);
    std::map<uint64_t, size_t> times;
    uint64_t hash = 0;
    size_t last = kNone;
    for (; op != all_.ops.end() && all_.trace.events[*op].ts_ns < f.end_ns(); ++op) {
      const auto at = static_cast<size_t>(op - all_.ops.begin());
      if (!all_.is_root(at)) continue;
      if (is_layer(all_.name(at))) return std::nullopt;
      hash = hash * 0x9E3779B97F4A7C15U + all_.key(at) + 1;
      if (all_.kind(at) != OpClass::view) last = at;
      if (all_.inputs_id(at) != kNone && all_.kind(at) != OpClass::view) ++times[all_.key(at)];
    }
    if (std::ranges::none_of(times, [](const auto& of) { return of.second >= kInnerTimes; }))
      return std::nullopt;
    // A run that ends with a field may be the start of the next one: the step of a solver.
    if (last == kNone || !gives_number(last)) return std::nullopt;
    return hash;
  }
  bool gives_number(size_t at) const {
    const std::string_view base = all_.base(at);
    return all_.kind(at) == OpClass::reduction || base == "item" || base.ends_with("norm") ||
           base.ends_with("loss") || base == "dot";
  }

  // A function of the program that one call of another runs again and again, each time with the
  // same ops.
  void find_runs() {
    std::map<std::pair<uint32_t, StringId>, std::vector<uint32_t>> calls;
    ByNameOnce<char> programs(all_.trace);
    const auto is_own = [&](uint32_t f) {
      return programs.get(frames_[f].name, [](std::string_view name) -> char {
        return is_programs(name) ? 1 : 0;
      }) != 0;
    };
    for (uint32_t f = 0; f < frames_.size(); ++f) {
      if (!is_own(f)) continue;
      uint32_t caller = parents_[f];
      while (caller != kNone && !is_own(caller)) caller = parents_[caller];
      if (caller != kNone) calls[{caller, frames_[f].name}].push_back(f);
    }
    struct Runs {
      std::vector<uint32_t> spans;
      size_t most = 0;
      uint32_t caller = 0;
      int64_t ns = 0;
    };
    std::map<StringId, Runs> found;
    for (const auto& [of, spans] : calls) {
      if (spans.size() < kManyRepeatedRuns) continue;
      int64_t ns = 0;
      for (const uint32_t f : spans) ns += frames_[f].dur_ns;
      if (static_cast<double>(ns) < kRunsOfCallShare * static_cast<double>(all_.wall_ns)) continue;
      const auto first = run_of(spans.front());
      if (!first || std::ranges::any_of(spans, [&](uint32_t f) { return run_of(f) != first; }))
        continue;
      Runs& runs = found[of.second];
      runs.spans.insert(runs.spans.end(), spans.begin(), spans.end());
      runs.most = std::max(runs.most, spans.size());
      runs.caller = of.first;
      runs.ns += ns;
    }
    for (auto& [name, runs] : found) {
      if (static_cast<double>(runs.ns) < kRunsShare * static_cast<double>(all_.wall_ns)) continue;
      std::sort(runs.spans.begin(), runs.spans.end());
      Waste waste;
      waste.kind = WasteKind::repeated_runs;
      waste.title = fmt::format(
          "{} runs {} times in a call of {}, each time with the same ops on the same sizes, and no "
          "backward pass runs: {} of {}",
          all_.trace.strings[name], runs.most, name_of(runs.caller), time_text(runs.ns),
          time_text(all_.wall_ns));
      waste.evidence = {"no trace tells which numbers differ"};
      waste.action =
          "if the runs differ in one parameter each (finite differences for a gradient), let "
          "autograd take the gradient of all parameters: requires_grad_(True) and one backward "
          "pass, about the cost of a few runs (torch.func.jvp for few parameters and many "
          "results); if they differ in a start or a setting and do not need each other, run all "
          "at once with a dimension for them (torch.func.vmap, a batch)";
      waste.ns = runs.ns;
      waste.proof = WasteProof::question;
      OpTimes times;
      std::vector<uint32_t> ops;
      waste.between_ns = add_ops(runs.spans, times, ops);
      waste.op_calls = static_cast<int64_t>(ops.size());
      add(std::move(waste), ops, times);
    }
  }

  std::vector<PythonFrame> frames_;
  std::vector<uint32_t> parents_;
};

}  // namespace

void find_wastes_of_functions(const CountedOps& all, const Places& places,
                              std::vector<Waste>& found) {
  Functions(all, places, found).run();
}

}  // namespace epilogue::trace
