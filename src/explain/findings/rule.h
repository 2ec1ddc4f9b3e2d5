// SPDX-License-Identifier: Apache-2.0
// What a rule is: it turns the numbers of an explanation into findings. And what rules share.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/units.h"
#include "epilogue/trace/explain.h"

namespace epilogue::trace {

// `find` adds what it has to say, mostly nothing. A finding that it gives no id gets the rule's.
template <class Input>
struct FindingRule {
  std::string_view id;
  void (*find)(const Input&, std::vector<Finding>&);
  Confidence confidence = Confidence::medium;  // of findings that do not say theirs
  FindingPlace where = FindingPlace::device;   // the same
};
using ExplanationRule = FindingRule<Explanation>;
using RanksRule = FindingRule<RanksExplanation>;

template <class Input, size_t n>
std::vector<Finding> apply_rules(const FindingRule<Input>* const (&rules)[n], const Input& input) {
  std::vector<Finding> findings;
  for (const FindingRule<Input>* rule : rules) {
    size_t next = findings.size();
    rule->find(input, findings);
    for (; next < findings.size(); ++next) {
      Finding& f = findings[next];
      if (f.id.empty()) f.id = rule->id;
      if (!f.where) f.where = rule->where;
      if (!f.confidence && (f.saving_us || f.cost_us)) f.confidence = rule->confidence;
    }
  }
  return findings;
}

// A saving or a share below this part of the wall time is not worth a line.
inline constexpr double kMinShare = 0.005;

inline double wall_us(const Explanation& e) { return to_us(e.timeline.span_ns()); }

inline bool is_worth_it(const Explanation& e, double saving_us) {
  return saving_us > kMinShare * wall_us(e);
}

// What to do, as evidence and as the finding's action.
inline void advise(Finding& f, std::string_view action) {
  f.action = action;
  f.evidence.emplace_back(action);
}

// Device time that some idle cause takes, on the busiest device.
inline int64_t idle_ns(const Explanation& e, IdleCause cause) {
  return e.idle.empty() ? 0 : e.idle.front().of(cause);
}

inline std::string duration(int64_t ns) { return format_duration_ns(static_cast<double>(ns)); }

// "cudaLaunchKernel: 96 calls, median 4.00 us, in all 1.01 ms"
inline std::string times_line(const std::string& name, const std::string& count,
                              const Distribution& time) {
  return name + ": " + count + ", median " + duration(time.median_ns) + ", in all " +
         duration(time.total_ns);
}

}  // namespace epilogue::trace
