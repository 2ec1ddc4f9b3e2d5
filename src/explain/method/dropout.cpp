// SPDX-License-Identifier: Apache-2.0
// Passes of inference that differ by dropout alone: what comes before it may run once.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

#include "explain/method/asked_search.h"

namespace epilogue::trace {
namespace {

constexpr size_t kPassesOfStep = 3;
constexpr size_t kPassesWithoutSteps = 8;  // of the trace

class DropoutPasses : AskedSearch {
 public:
  DropoutPasses(const AskedOps& asked, const Places& places, std::vector<Waste>& found)
      : AskedSearch(asked, places, found) {}

  void run() {
    if (all_.has_backward || asked_.empty() || all_.trace.inputs.size() == 0) return;
    bool is_active = false;
    for (size_t i = 0; i < asked_.size() && !is_active; ++i) is_active = drops(i);
    if (!is_active) return;
    const std::vector<Places::ModuleCall> calls = places_.module_calls();
    std::map<std::string_view, std::vector<uint32_t>> by_name;
    for (uint32_t c = 0; c < calls.size(); ++c)
      if (calls[c].around == kNone) by_name[calls[c].name].push_back(c);
    for (const auto& [name, runs] : by_name) {
      const bool has_steps = !all_.links.steps.empty();
      if (runs.size() < (has_steps ? kPassesOfStep * all_.steps : kPassesWithoutSteps)) continue;
      add_passes(calls, runs, has_steps);
    }
  }

 private:
  // Dropout that draws numbers.
  bool drops(size_t i) const {
    if (asked_.base(i).find("dropout") == std::string_view::npos) return false;
    const uint32_t first = asked_.at(i);
    const int64_t end = all_.event(first).end_ns();
    for (size_t at = first; at < all_.ops.size() && all_.event(at).ts_ns < end; ++at)
      if (all_.base(at) == "bernoulli" || all_.base(at) == "native_dropout" ||
          all_.base(at) == "_fused_dropout")
        return true;
    return false;
  }

  void add_passes(const std::vector<Places::ModuleCall>& calls, const std::vector<uint32_t>& runs,
                  bool has_steps) {
    CostlyForm form;
    std::vector<uint64_t> first_keys;
    std::string_view part;  // the longest module before the dropout
    for (const uint32_t run : runs) {
      auto at =
          std::lower_bound(asked_.list().begin(), asked_.list().end(), calls[run].start_ns,
                           [&](uint32_t op, int64_t ts) { return all_.event(op).ts_ns < ts; });
      std::vector<uint64_t> keys;
      std::optional<size_t> dropout;
      for (; at != asked_.list().end() && all_.event(*at).ts_ns < calls[run].end_ns; ++at) {
        const auto i = static_cast<size_t>(at - asked_.list().begin());
        if (drops(i)) {
          dropout = i;
          break;
        }
        if (form.count == 0 && keys.empty()) form.first = i;
        keys.push_back(asked_.key(i));
        take(form, i);
      }
      if (!dropout || keys.empty()) return;
      if (form.count++ == 0) {
        first_keys = keys;
        part = part_before(calls, run, all_.event(asked_.at(*dropout)).ts_ns);
      }
      if (keys != first_keys) return;
    }
    const auto per_step = has_steps ? runs.size() / all_.steps : runs.size();
    report(WasteKind::repeated_module, form,
           fmt::format("{} runs {} times {} on the same shapes with dropout active, and what comes "
                       "before its first dropout{} does not differ by it",
                       calls[runs.front()].name, per_step, has_steps ? "in a step" : "in all",
                       part.empty() ? "" : fmt::format(" ({})", part)),
           {times_of(form), "no trace tells whether the input is the same each time"},
           "if these are passes on the same input (Monte-Carlo dropout), run what comes before the "
           "first dropout once and repeat only what differs, the dropout and the head (or once, "
           "with the features repeated as one batch); if dropout is not wanted, model.eval()",
           std::nullopt, WasteProof::question);
  }

  // Of the modules that a call of one calls, the longest that ends before `ts_ns`.
  static std::string_view part_before(const std::vector<Places::ModuleCall>& calls, uint32_t run,
                                      int64_t ts_ns) {
    std::string_view name;
    int64_t longest = 0;
    for (uint32_t c = run + 1; c < calls.size() && calls[c].start_ns < ts_ns; ++c) {
      if (calls[c].around != run || calls[c].end_ns > ts_ns) continue;
      if (calls[c].end_ns - calls[c].start_ns <= longest) continue;
      longest = calls[c].end_ns - calls[c].start_ns;
      name = calls[c].name;
    }
    return name;
  }
};

}  // namespace

void find_dropout_passes(const AskedOps& asked, const Places& places, std::vector<Waste>& found) {
  DropoutPasses(asked, places, found).run();
}

}  // namespace epilogue::trace
