// SPDX-License-Identifier: Apache-2.0
#include "explain/timeline/longest_work.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "base/units.h"

namespace epilogue::trace {
namespace {

constexpr size_t kLongestShown = 3;
constexpr double kLeastShare = 0.1;
constexpr size_t kMostLetters = 90;  // of a kernel's name

struct NamedWork {
  StringId name = 0;
  StringId op = 0;  // that launched it; 0: not known
  int64_t count = 0;
  int64_t total_ns = 0;
};

// Without what is before the name, and without its parameters.
std::string_view bare_name(std::string_view name) {
  constexpr std::string_view kVoid = "void ";
  constexpr std::string_view kAnonymous = "(anonymous";
  if (name.starts_with(kVoid)) name.remove_prefix(kVoid.size());
  int depth = 0;  // of template arguments
  for (size_t i = 0; i < name.size(); ++i) {
    depth += name[i] == '<' ? 1 : name[i] == '>' ? -1 : 0;
    if (name[i] == '(' && depth == 0 && i > 0 && !name.substr(i).starts_with(kAnonymous))
      return name.substr(0, i);
  }
  return name;
}

std::string sentence(const Trace& trace, const NamedWork& work, int64_t all_ns) {
  std::string name(bare_name(trace.strings[work.name]));
  if (name.size() > kMostLetters) name = name.substr(0, kMostLetters - 3) + "...";
  const std::string_view op = work.op == 0 ? std::string_view() : trace.strings[work.op];
  return fmt::format("{}{}{}: {} ({:.0f} % of the device's work), {}", name,
                     op.empty() || op == name ? "" : " in ", op == name ? "" : op,
                     format_duration_ns(static_cast<double>(work.total_ns)),
                     100.0 * static_cast<double>(work.total_ns) / static_cast<double>(all_ns),
                     counted(work.count, "time", "times"));
}

}  // namespace

std::vector<std::string> longest_work(const Trace& trace, const Links& links, int32_t device) {
  std::map<std::pair<StringId, StringId>, NamedWork> sums;
  int64_t all_ns = 0;
  for (const uint32_t i : links.device_work) {
    const Event& e = trace.events[i];
    if (e.pid != device) continue;
    const StringId op = links.op[i] == kNone ? 0 : trace.events[links.op[i]].name;
    NamedWork& sum = sums[{e.name, op}];
    sum.name = e.name;
    sum.op = op;
    ++sum.count;
    sum.total_ns += e.dur_ns;
    all_ns += e.dur_ns;
  }
  std::vector<NamedWork> list;
  for (const auto& [key, sum] : sums)
    if (static_cast<double>(sum.total_ns) >= kLeastShare * static_cast<double>(all_ns))
      list.push_back(sum);
  std::stable_sort(list.begin(), list.end(),
                   [](const NamedWork& a, const NamedWork& b) { return a.total_ns > b.total_ns; });
  list.resize(std::min(list.size(), kLongestShown));
  std::vector<std::string> sentences;
  if (all_ns == 0) return sentences;
  for (const NamedWork& work : list) sentences.push_back(sentence(trace, work, all_ns));
  return sentences;
}

}  // namespace epilogue::trace
