// SPDX-License-Identifier: Apache-2.0
// Where the difference of two runs comes from.
#include "explain/compare/diff_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <set>
#include <span>
#include <tuple>

#include "base/units.h"
#include "epilogue/trace/diff.h"
#include "epilogue/trace/fusion.h"
#include "explain/index/aten_ops.h"
#include "explain/index/device_busy.h"
#include "explain/index/intervals.h"
#include "explain/timeline/time_account.h"

namespace epilogue::trace {
namespace {

void longest_first(std::vector<KernelUse>& uses) {
  std::stable_sort(uses.begin(), uses.end(), [](const KernelUse& a, const KernelUse& b) {
    return a.booked_ns > b.booked_ns;
  });
}

// The ops that a fused kernel says it stands for, with their namespace: by the trace, else by
// Triton's names. Empty for other kernels.
std::vector<std::string> ops_in(const KernelUse& use) {
  std::vector<std::string> ops;
  for (const std::string_view op : fused_op_names(use.fused_ops)) ops.emplace_back(op);
  if (!ops.empty()) return ops;
  const KernelName name = decode_kernel_name(use.name);
  if (name.kind != KernelKind::triton) return ops;
  for (const std::string& op : name.ops) ops.push_back("aten::" + op);
  return ops;
}

// Ops named by the fused kernels that have kernels on the other side.
std::vector<std::string> replaced_ops(const Match& match, size_t parts_side, size_t fused_side) {
  const std::vector<KernelUse>& parts = match.uses[parts_side];
  std::vector<std::string> ops;
  for (const KernelUse& whole : match.uses[fused_side])
    for (std::string& op : ops_in(whole)) {
      const bool is_listed = std::find(ops.begin(), ops.end(), op) != ops.end();
      const bool has_kernels = std::any_of(parts.begin(), parts.end(),
                                           [&](const KernelUse& use) { return use.op == op; });
      if (has_kernels && !is_listed) ops.push_back(std::move(op));
    }
  return ops;
}

// An op stands for its work, not for its letter: aten::add_ and aten::add are one.
std::string plain_op(const KernelUse& use) {
  std::string_view op = use.op;
  if (op.ends_with('_') && op.size() > 1) op.remove_suffix(1);
  return std::string(op);
}

// The op of all uses; "" where they differ or one is not known.
std::string common_op(const Match& match) {
  std::set<std::string> exact;
  std::set<std::string> plain;
  for (const std::vector<KernelUse>& uses : match.uses)
    for (const KernelUse& use : uses) {
      exact.emplace(use.op);
      plain.insert(plain_op(use));
    }
  if (exact.size() == 1) return *exact.begin();
  return plain.size() == 1 ? *plain.begin() : "";
}

// Uses that no match has taken yet, of both traces.
class Matcher {
 public:
  Matcher(std::vector<KernelUse> before, std::vector<KernelUse> after)
      : rest_{std::move(before), std::move(after)} {}

  std::vector<Match> run() {
    by_key(MatchKind::same_kernel, [](const KernelUse& use) {
      return use.op.empty() ? std::string() : std::string(use.name) + '\0' + plain_op(use);
    });
    kernels_of_unknown_ops();
    fused(0, 1);
    fused(1, 0);
    by_key(MatchKind::same_op, plain_op);
    by_key(MatchKind::same_kernel, [](const KernelUse& use) { return std::string(use.name); });
    by_key(MatchKind::same_kind, [](const KernelUse& use) {
      const KernelKind kind = decode_kernel_name(use.name).kind;
      return kind == KernelKind::unknown ? std::string() : std::string(kernel_kind_name(kind));
    });
    remaining(0, MatchKind::only_before);
    remaining(1, MatchKind::only_after);
    return std::move(matches_);
  }

 private:
  // Where one trace does not say of which op a kernel is (a graph's, a launch cut off), its name
  // decides: it joins what is left of the other trace, else the op that it has in both.
  void kernels_of_unknown_ops() {
    std::map<std::string_view, std::array<bool, 2>> is_unknown;
    for (size_t side = 0; side < 2; ++side)
      for (const KernelUse& use : rest_[side])
        if (use.op.empty()) is_unknown[use.name][side] = true;
    by_key(MatchKind::same_kernel, [&](const KernelUse& use) {
      return is_unknown.contains(use.name) ? std::string(use.name) : std::string();
    });
    std::map<std::string_view, std::vector<size_t>> by_kernel;
    for (size_t i = 0; i < matches_.size(); ++i)
      by_kernel[matches_[i].uses[0].front().name].push_back(i);
    for (size_t side = 0; side < 2; ++side)
      std::erase_if(rest_[side], [&](const KernelUse& use) {
        const auto found = by_kernel.find(use.name);
        if (!use.op.empty() || found == by_kernel.end() || found->second.size() != 1) return false;
        matches_[found->second.front()].uses[side].push_back(use);
        return true;
      });
  }

  // Fused kernels of trace `b` take those kernels of trace `a` whose ops they name, the longest
  // first. Two that name one op share its kernels: which of them ran in which is unknown.
  void fused(size_t a, size_t b) {
    std::vector<KernelUse> left;
    std::vector<Match> found;
    for (const KernelUse& whole : rest_[b]) {
      const std::vector<std::string> ops = ops_in(whole);
      const auto is_part = [&](const KernelUse& use) {
        return std::find(ops.begin(), ops.end(), use.op) != ops.end();
      };
      Match match = {.kind = MatchKind::fused, .what = std::string(whole.name), .fused_side = b};
      std::copy_if(rest_[a].begin(), rest_[a].end(), std::back_inserter(match.uses[a]), is_part);
      std::erase_if(rest_[a], is_part);
      // A kernel's name gives each op once, sorted: there only what is left alone is shared.
      const bool may_share = !whole.fused_ops.empty() || match.uses[a].empty();
      const auto shared = std::find_if(found.begin(), found.end(), [&](const Match& other) {
        return may_share && std::any_of(other.uses[a].begin(), other.uses[a].end(), is_part);
      });
      if (shared != found.end()) {
        shared->uses[a].insert(shared->uses[a].end(), match.uses[a].begin(), match.uses[a].end());
        shared->uses[b].push_back(whole);
      } else if (match.uses[a].empty()) {
        left.push_back(whole);
      } else {
        match.uses[b].push_back(whole);
        found.push_back(std::move(match));
      }
    }
    for (Match& match : found) {
      match.ops = replaced_ops(match, a, b);
      matches_.push_back(std::move(match));
    }
    rest_[b] = std::move(left);
  }

  // Groups what has the same key in both traces; "" is no key.
  template <class Key>
  void by_key(MatchKind kind, Key&& key) {
    std::map<std::string, Match> groups;
    for (size_t side = 0; side < 2; ++side)
      for (const KernelUse& use : rest_[side])
        if (std::string k = key(use); !k.empty()) groups[std::move(k)].uses[side].push_back(use);
    std::erase_if(groups, [](const auto& group) {
      return group.second.uses[0].empty() || group.second.uses[1].empty();
    });
    for (auto& uses : rest_)
      std::erase_if(uses, [&](const KernelUse& use) { return groups.contains(key(use)); });
    for (auto& [name, match] : groups) {
      match.kind = kind;
      match.what = kind == MatchKind::same_kernel ? match.uses[0].front().name : name;
      matches_.push_back(std::move(match));
    }
  }

  void remaining(size_t side, MatchKind kind) {
    std::map<std::string_view, Match> groups;
    for (const KernelUse& use : rest_[side]) {
      const std::string_view name = use.op.empty() ? use.name : use.op;
      Match& match = groups[name];
      match.kind = kind;
      match.what = name;
      match.uses[side].push_back(use);
    }
    for (auto& [name, match] : groups) matches_.push_back(std::move(match));
    rest_[side].clear();
  }

  std::array<std::vector<KernelUse>, 2> rest_;
  std::vector<Match> matches_;
};

}  // namespace

std::vector<KernelUse> kernel_uses(const Trace& trace, const TimeAccount& account) {
  std::vector<KernelUse> uses;
  uses.reserve(account.work.size());
  for (const BookedWork& work : account.work)
    uses.push_back({trace.strings[work.kernel], account.op_name(trace, work.op), work.count,
                    work.total_ns, work.booked_ns, work.bytes, trace.strings[work.fused_ops]});
  std::sort(uses.begin(), uses.end(), [](const KernelUse& a, const KernelUse& b) {
    return std::tie(a.name, a.op) < std::tie(b.name, b.op);
  });
  longest_first(uses);
  return uses;
}

int64_t Match::booked_ns(size_t side) const {
  int64_t sum = 0;
  for (const KernelUse& use : uses[side]) sum += use.booked_ns;
  return sum;
}

double Match::count(size_t side) const {
  double sum = 0;
  for (const KernelUse& use : uses[side]) sum += use.count;
  return sum;
}

int64_t Match::bytes(size_t side) const {
  int64_t sum = 0;
  for (const KernelUse& use : uses[side]) {
    if (use.bytes < 0) return -1;
    sum += use.bytes;
  }
  return sum;
}

std::vector<Match> match_kernels(std::vector<KernelUse> before, std::vector<KernelUse> after) {
  std::vector<Match> matches = Matcher(std::move(before), std::move(after)).run();
  for (Match& match : matches) {
    for (std::vector<KernelUse>& uses : match.uses) longest_first(uses);
    if (match.kind == MatchKind::same_kernel) match.op = common_op(match);
  }
  return matches;
}

namespace {

constexpr size_t kKernelsNamed = 3;  // of a part

double mean_us(const std::vector<KernelUse>& uses, double count) {
  int64_t total_ns = 0;
  for (const KernelUse& use : uses) total_ns += use.total_ns;
  return count == 0 ? 0 : to_us(total_ns) / count;
}

// Names of the kernels, each once, the longest first.
std::vector<std::string> kernel_names(const std::vector<KernelUse>& uses) {
  std::vector<std::string> names;
  for (const KernelUse& use : uses)
    if (std::find(names.begin(), names.end(), use.name) == names.end())
      names.emplace_back(use.name);
  return names;
}

class PartWriter {
 public:
  PartWriter(const Match& match, const KernelLabels& labels, const TraceDiff& diff)
      : match_(match), labels_(labels), diff_(diff) {}

  void write(DiffPart& part) const {
    switch (match_.kind) {
      case MatchKind::same_kernel:
        part.what = same_what();
        part.why = counts() + other_ops();
        break;
      case MatchKind::same_op:
        part.what = match_.what + ": other kernels";
        part.why = kernels_why();
        break;
      case MatchKind::same_kind:
        part.what = "other kernels for the same kind of work: " + match_.what;
        part.why = kernels_why();
        break;
      case MatchKind::fused:
        part.what = fused_what();
        part.why = fused_why();
        break;
      case MatchKind::only_before:
        part.what = only_what(0) + ": gone";
        part.why = only_why(0);
        break;
      case MatchKind::only_after:
        part.what = only_what(1) + ": new";
        part.why = only_why(1);
        break;
    }
  }

 private:
  std::string label(std::string_view name) const { return labels_.of(name); }

  // "aten::mm: same kernel, ampere_sgemm_128x128_tn"; without the op where it is not one.
  std::string same_what() const {
    if (!diff_.has_device_work) return match_.what + ": same op";
    const std::string kernel = label(match_.what);
    return match_.op.empty() || match_.op == kernel ? kernel + ": same kernel"
                                                    : match_.op + ": same kernel, " + kernel;
  }

  // Where the same kernel belongs to other ops than before.
  std::string other_ops() const {
    if (!diff_.has_device_work || !match_.op.empty()) return "";
    std::array<std::string, 2> ops;
    for (size_t side = 0; side < 2; ++side) {
      std::set<std::string_view> names;
      for (const KernelUse& use : match_.uses[side])
        names.insert(use.op.empty() ? "unknown ops" : use.op);
      ops[side] = fmt::format("{}", fmt::join(names, ", "));
    }
    if (ops[0] == ops[1]) return "; of " + ops[0];
    return fmt::format("; of {} -> {}", ops[0], ops[1]);
  }

  // "6 -> 3 executions, mean 12.3 -> 10.1 us".
  std::string counts() const {
    const std::array<double, 2> n = {match_.count(0), match_.count(1)};
    std::string text = count_text(n[0]);
    if (n[0] != n[1]) text += " -> " + count_text(n[1]);
    text.append(" ").append(noun_for(n, "execution", "executions"));
    if (diff_.per_step) text += " per step";
    if (n[0] > 0 && n[1] > 0)
      text += fmt::format(", mean {:.1f} -> {:.1f} us", mean_us(match_.uses[0], n[0]),
                          mean_us(match_.uses[1], n[1]));
    return text;
  }

  std::string kernels_why() const {
    const std::string_view before = match_.uses[0].front().name;
    const std::string_view after = match_.uses[1].front().name;
    return fmt::format("{}; {} became {}: {}", counts(), label(before), label(after),
                       describe_difference(decode_kernel_name(before), decode_kernel_name(after)));
  }

  std::string fused_what() const {
    const size_t others = kernel_names(match_.uses[match_.fused_side]).size() - 1;
    return fmt::format("{}{}: {}", label(match_.what),
                       others > 0 ? fmt::format(" and {} more", others) : "",
                       match_.fused_side == 1 ? "fused" : "split");
  }

  // "15 kernels of aten::mm, aten::gelu became 3; saved 2.1 ms: launches 15 -> 3, bytes read and
  // written 3.1 GB -> 151 MB". A change against that of the time is no reason for it.
  std::string fused_why() const {
    const std::string ops = fmt::format("{}", fmt::join(match_.ops, ", "));
    const std::array<std::string, 2> n = {count_text(match_.count(0)), count_text(match_.count(1))};
    std::string text =
        match_.fused_side == 1
            ? fmt::format("{} kernel{} of {} became {}", n[0], n[0] == "1" ? "" : "s", ops, n[1])
            : fmt::format("{} became {} kernel{} of {}", n[0], n[1], n[1] == "1" ? "" : "s", ops);
    const int64_t saved_ns = match_.booked_ns(0) - match_.booked_ns(1);
    const bool is_saved = saved_ns >= 0;
    const bool explains = is_saved == (match_.count(1) <= match_.count(0));
    text += fmt::format("; {} {}{} launches {} -> {}", is_saved ? "saved" : "lost",
                        format_duration_ns(static_cast<double>(std::abs(saved_ns))),
                        explains ? ":" : ", in spite of", n[0], n[1]);
    if (match_.bytes(0) >= 0 && match_.bytes(1) >= 0)
      text += fmt::format(", bytes read and written {} -> {}",
                          format_bytes(static_cast<double>(match_.bytes(0))),
                          format_bytes(static_cast<double>(match_.bytes(1))));
    if (diff_.per_step) text += ", per step";
    if (explains) return text;
    const bool fused_is_slower = is_saved == (match_.fused_side == 0);
    return text + (fused_is_slower ? ": the fused kernel takes longer than those it stands for"
                                   : ": the fused kernel takes less time than those it became");
  }

  std::string only_what(size_t side) const {
    const KernelUse& longest = match_.uses[side].front();
    return longest.op.empty() && diff_.has_device_work ? label(longest.name) + " (of an unknown op)"
                                                       : match_.what;
  }

  std::string only_why(size_t side) const {
    if (!diff_.has_device_work) return counts();
    const std::vector<std::string> names = kernel_names(match_.uses[side]);
    std::string text = counts() + " of ";
    for (size_t i = 0; i < std::min(names.size(), kKernelsNamed); ++i)
      text += (i > 0 ? ", " : "") + label(names[i]);
    if (names.size() > kKernelsNamed)
      text += fmt::format(" and {} more", names.size() - kKernelsNamed);
    return text;
  }

  const Match& match_;
  const KernelLabels& labels_;
  const TraceDiff& diff_;
};

}  // namespace

std::string count_text(double count) {
  const double whole = std::round(count);
  return count == whole ? format_count(static_cast<int64_t>(whole)) : fmt::format("{:.2f}", count);
}

std::string_view noun_for(const std::array<double, 2>& n, std::string_view one,
                          std::string_view many) {
  return n[0] == 1 && n[1] == 1 ? one : many;
}

DiffPart part_of(const Match& match, const KernelLabels& labels, const TraceDiff& diff) {
  DiffPart part = {.before_ns = match.booked_ns(0), .after_ns = match.booked_ns(1)};
  if (diff.has_device_work) {
    part.kernels = {match.count(0), match.count(1)};
    part.bytes = {match.bytes(0), match.bytes(1)};
    part.kernel_names = {kernel_names(match.uses[0]), kernel_names(match.uses[1])};
  }
  PartWriter(match, labels, diff).write(part);
  return part;
}

namespace {

constexpr double kSameMean = 0.05;  // means within 5 % are the same

struct Side {
  TimeAccount account;
  double steps = 0;
  double kernels = 0;
  double launches = 0;
  double ops = 0;
};

// The steps, each with the device work that it launched, which may outlast it.
IntervalSet step_windows(const Trace& trace, const Links& links) {
  std::vector<Interval> windows;
  windows.reserve(links.steps.size());
  for (const uint32_t step : links.steps)
    windows.push_back({trace.events[step].ts_ns, trace.events[step].end_ns()});
  for (const uint32_t i : links.device_work) {
    const uint32_t step = links.step[i];
    if (step == kNone) continue;
    windows[step].end_ns = std::max(windows[step].end_ns, trace.events[i].end_ns());
  }
  return united(std::move(windows));
}

// Wall time of one trace, and the work that ran in it.
Side account_of(const Trace& trace, const Links& links, bool by_steps,
                const CapturedOps* captured) {
  Side side;
  const IntervalSet windows =
      by_steps ? step_windows(trace, links) : wall_windows(trace, links, false);
  side.account = account_time(trace, links, windows, captured);
  side.steps = static_cast<double>(links.steps.size());
  const Coverage wall(windows);
  // The span holds all events, also those of no length at its end.
  const auto is_within = [&](const Event& e) {
    return !by_steps || wall.contains(e.ts_ns) || wall.within_ns({e.ts_ns, e.end_ns()}) > 0;
  };
  for (const Event& e : trace.events) {
    if (e.category == Category::cpu_op && is_within(e)) ++side.ops;
    if (e.category == Category::kernel && is_within(e)) ++side.kernels;
  }
  for (const uint32_t i : links.launches)
    if (is_within(trace.events[i])) ++side.launches;
  return side;
}

void average_step(Side& side) {
  average_over(side.account, static_cast<int64_t>(side.steps));
  side.kernels /= side.steps;
  side.launches /= side.steps;
  side.ops /= side.steps;
}

std::string change_text(const std::array<double, 2>& n) {
  return count_text(n[0]) + " -> " + count_text(n[1]);
}

// The change on the host that explains idle time of the device.
std::string host_why(IdleCause cause, const TraceDiff& diff) {
  switch (cause) {
    case IdleCause::queue: return "work was launched and had not started yet";
    case IdleCause::launch:
      return fmt::format("{} {} for {} {}", change_text(diff.launches),
                         noun_for(diff.launches, "launch", "launches"), change_text(diff.kernels),
                         noun_for(diff.kernels, "kernel", "kernels"));
    case IdleCause::sync: return "the host waited for the device or for a copy";
    case IdleCause::data: return "the host was in the data loader";
    case IdleCause::profiler: return "the profiler asked for buffers or emptied them";
    case IdleCause::host_in_ops:
    case IdleCause::host_between_ops:
      if (!diff.has_device_work)
        return fmt::format("{} {}", change_text(diff.ops), noun_for(diff.ops, "op", "ops"));
      return fmt::format("{} {} on the host, {} {}", change_text(diff.ops),
                         noun_for(diff.ops, "op", "ops"), change_text(diff.launches),
                         noun_for(diff.launches, "launch", "launches"));
    case IdleCause::other: return "no event of the host says why";
  }
  return "";
}

std::string idle_what(IdleCause cause, bool has_device_work) {
  if (!has_device_work) return "host between ops (Python, or what the trace does not show)";
  switch (cause) {
    case IdleCause::queue: return "device idle: launched work waits";
    case IdleCause::launch: return "device idle: host in launch calls";
    case IdleCause::sync: return "device idle: host synchronises";
    case IdleCause::data: return "device idle: host loads data";
    case IdleCause::profiler: return "device idle: the profiler's own work";
    case IdleCause::host_in_ops: return "device idle: host in ops";
    case IdleCause::host_between_ops: return "device idle: host between ops (Python)";
    case IdleCause::other: return "unexplained";
  }
  return "";
}

void add_idle_parts(const Side& a, const Side& b, TraceDiff& diff) {
  for (size_t c = 0; c < kIdleCauses; ++c) {
    const auto cause = static_cast<IdleCause>(c);
    DiffPart part{idle_what(cause, diff.has_device_work), host_why(cause, diff),
                  a.account.idle_ns[c], b.account.idle_ns[c]};
    if (cause == IdleCause::other) diff.unexplained_ns = part.delta_ns();
    diff.parts.push_back(std::move(part));
  }
}

// Small changes go into one part for the slower and one for the faster; that kernels became one, or
// one became several, is worth a line whatever it took. Unchanged work is none.
void merge_small(TraceDiff& diff, double min_part_pct) {
  const auto limit = static_cast<int64_t>(
      static_cast<double>(std::max(diff.wall_ns[0], diff.wall_ns[1])) * min_part_pct / 100);
  std::array<DiffPart, 2> merged;
  std::array<int64_t, 2> count{};
  std::vector<DiffPart> kept;
  for (DiffPart& part : diff.parts) {
    if (part.delta_ns() == 0) continue;
    const bool is_fusion = part.what.ends_with(": fused") || part.what.ends_with(": split");
    const bool is_small =
        std::abs(part.delta_ns()) < limit && part.what != "unexplained" && !is_fusion;
    if (!is_small) {
      kept.push_back(std::move(part));
      continue;
    }
    const size_t slower = part.delta_ns() > 0 ? 1 : 0;
    ++count[slower];
    merged[slower].before_ns += part.before_ns;
    merged[slower].after_ns += part.after_ns;
  }
  for (size_t slower = 0; slower < 2; ++slower) {
    if (count[slower] == 0) continue;
    merged[slower].what =
        fmt::format("{} smaller change{}, {}", count[slower], count[slower] == 1 ? "" : "s",
                    slower == 1 ? "slower" : "faster");
    merged[slower].why = fmt::format("each under {} % of the wall time", min_part_pct);
    kept.push_back(std::move(merged[slower]));
  }
  diff.parts = std::move(kept);
  std::stable_sort(diff.parts.begin(), diff.parts.end(), [](const DiffPart& x, const DiffPart& y) {
    return std::abs(x.delta_ns()) > std::abs(y.delta_ns());
  });
}

// Kernels (or ops) by name, whatever they were matched with.
using Changes = std::map<std::string_view, KernelChange>;

Changes changes_by_name(const std::array<std::vector<KernelUse>, 2>& uses,
                        const KernelLabels& labels) {
  Changes changes;
  for (size_t side = 0; side < 2; ++side)
    for (const KernelUse& use : uses[side]) {
      KernelChange& change = changes[use.name];
      if (change.name.empty()) {
        change.name = use.name;
        change.label = labels.of(use.name);
      }
      change.count[side] += use.count;
      change.total_ns[side] += use.total_ns;
    }
  return changes;
}

bool is_changed(const KernelChange& change) {
  const double before = static_cast<double>(change.total_ns[0]) / change.count[0];
  const double after = static_cast<double>(change.total_ns[1]) / change.count[1];
  return change.count[0] != change.count[1] || std::abs(after - before) > kSameMean * before;
}

void add_changes(Changes changes, TraceDiff& diff) {
  const bool is_device = diff.has_device_work;
  auto& added = is_device ? diff.kernels_added : diff.ops_added;
  auto& removed = is_device ? diff.kernels_removed : diff.ops_removed;
  auto& changed = is_device ? diff.kernels_changed : diff.ops_changed;
  for (auto& [name, change] : changes) {
    if (change.count[0] == 0)
      added.push_back(std::move(change));
    else if (change.count[1] == 0)
      removed.push_back(std::move(change));
    else if (is_changed(change))
      changed.push_back(std::move(change));
  }
  for (auto* list : {&added, &removed, &changed})
    std::stable_sort(list->begin(), list->end(), [](const auto& x, const auto& y) {
      return x.total_ns[0] + x.total_ns[1] > y.total_ns[0] + y.total_ns[1];
    });
}

KernelLabels labels_of(const std::array<std::vector<KernelUse>, 2>& uses, bool has_device_work) {
  std::vector<std::string_view> names;
  if (has_device_work)
    for (const auto& side : uses)
      for (const KernelUse& use : side) names.push_back(use.name);
  return KernelLabels(names);
}

// "512 x 768, 768 x 3072": of the first tensors.
std::string argument_sizes(std::span<const OpInput> inputs) {
  constexpr size_t kTensorsShown = 3;
  std::string text;
  size_t shown = 0;
  for (const TensorShape& tensor : tensor_inputs(inputs)) {
    if (tensor.dims.empty()) continue;  // a number
    if (shown++ == kTensorsShown) break;
    text += fmt::format("{}{}", text.empty() ? "" : ", ", fmt::join(tensor.dims, " x "));
  }
  return text;
}

// What an op is called with: type and sizes that it spends most of its time on, and all sizes.
struct OpArguments {
  std::string_view type;  // as traces write it; "" if none is known
  std::string sizes;
  int64_t longest_ns = -1;
  std::set<std::string> all_sizes;
};
using ArgumentsByOp = std::map<std::string_view, OpArguments>;

ArgumentsByOp arguments_by_op(const Trace& trace) {
  std::map<std::pair<StringId, uint32_t>, int64_t> time;  // by op and list of arguments
  for (const Event& e : trace.events) {
    const OpArgs* args = e.category == Category::cpu_op ? trace.op_args(e) : nullptr;
    if (args != nullptr && args->inputs < trace.inputs.size())
      time[{e.name, args->inputs}] += e.dur_ns;
  }
  ArgumentsByOp ops;
  std::map<std::pair<std::string_view, std::string_view>, int64_t> time_of_type;
  std::map<std::pair<std::string_view, std::string>, int64_t> time_of_sizes;
  for (const auto& [key, ns] : time) {
    const std::string_view name = trace.strings[key.first];
    const std::span<const OpInput> inputs = trace.inputs[key.second];
    std::string sizes = argument_sizes(inputs);
    if (sizes.empty()) continue;
    OpArguments& op = ops[name];
    op.all_sizes.insert(sizes);
    const int64_t of_sizes = time_of_sizes[{name, sizes}] += ns;
    if (of_sizes > op.longest_ns) {
      op.longest_ns = of_sizes;
      op.sizes = std::move(sizes);
    }
    for (const TensorShape& tensor : tensor_inputs(inputs)) {
      if (tensor.dims.empty()) continue;
      time_of_type[{name, tensor.type}] += ns;
      break;
    }
  }
  std::map<std::string_view, int64_t> longest;
  for (const auto& [key, ns] : time_of_type)
    if (const auto [place, is_new] = longest.try_emplace(key.first, ns);
        is_new || ns > place->second) {
      place->second = ns;
      ops[key.first].type = key.second;
    }
  return ops;
}

std::string_view plain_type(std::string_view type) {
  constexpr std::string_view kPrefix = "c10::";
  return type.starts_with(kPrefix) ? type.substr(kPrefix.size()) : type;
}

// The sizes that take most of the time before do not occur after, and the other way round.
bool is_resized(const OpArguments& a, const OpArguments& b) {
  return !b.all_sizes.contains(a.sizes) && !a.all_sizes.contains(b.sizes);
}

// The same op of another type or other sizes is another op: a comparison of its times alone says
// nothing.
void name_changed_arguments(const Trace& before, const Trace& after, TraceDiff& diff) {
  constexpr std::string_view kSame = ": same op";
  const ArgumentsByOp ops_before = arguments_by_op(before);
  const ArgumentsByOp ops_after = arguments_by_op(after);
  for (DiffPart& part : diff.parts) {
    const std::string_view op = std::string_view(part.what).substr(0, part.what.find(": "));
    const auto a = ops_before.find(op);
    const auto b = ops_after.find(op);
    if (a == ops_before.end() || b == ops_after.end()) continue;
    const OpArguments& x = a->second;
    const OpArguments& y = b->second;
    const bool is_same_op = part.what.ends_with(kSame);
    // Of sparse tensors and elements of lists no trace tells the type.
    const bool is_retyped = is_same_op && x.type != y.type && !x.type.empty() && !y.type.empty();
    if (is_resized(x, y)) part.why = fmt::format("sizes {} -> {}; {}", x.sizes, y.sizes, part.why);
    if (!is_same_op) continue;
    if (is_retyped)
      part.what = fmt::format("{}: {} -> {}", op, plain_type(x.type), plain_type(y.type));
    else if (is_resized(x, y))
      part.what = fmt::format("{}: other sizes", op);
  }
}

std::string device_name(const Trace& trace, const Links& links) {
  const std::optional<int32_t> id = busiest_device(trace, links);
  for (const DeviceProperties& device : trace.devices)
    if (device.id == id) return device.name;
  return "";
}

}  // namespace

TraceDiff diff_traces(const Trace& before, const Links& before_links, const Trace& after,
                      const Links& after_links, const DiffOptions& options) {
  TraceDiff diff;
  diff.steps = {static_cast<int64_t>(before_links.steps.size()),
                static_cast<int64_t>(after_links.steps.size())};
  diff.by_steps = diff.steps[0] > 0 && diff.steps[1] > 0;
  diff.per_step = diff.by_steps && diff.steps[0] != diff.steps[1];
  Side a = account_of(before, before_links, diff.by_steps, options.captured[0]);
  Side b = account_of(after, after_links, diff.by_steps, options.captured[1]);
  for (size_t side = 0; side < 2; ++side)
    if (const CapturedOps* captured = options.captured[side];
        captured != nullptr && captured->graph_ns > 0)
      diff.captured_pct[side] =
          100.0 * static_cast<double>(captured->named_ns) / static_cast<double>(captured->graph_ns);
  if (diff.per_step)
    for (Side* side : {&a, &b}) average_step(*side);
  diff.wall_ns = {a.account.wall_ns, b.account.wall_ns};
  diff.busy_ns = {a.account.busy_ns, b.account.busy_ns};
  diff.kernels = {a.kernels, b.kernels};
  diff.launches = {a.launches, b.launches};
  diff.ops = {a.ops, b.ops};
  diff.devices = {device_name(before, before_links), device_name(after, after_links)};
  diff.has_device_work = a.account.has_device_work || b.account.has_device_work;
  const std::array<std::vector<KernelUse>, 2> uses = {kernel_uses(before, a.account),
                                                      kernel_uses(after, b.account)};
  const KernelLabels labels = labels_of(uses, diff.has_device_work);
  for (const Match& match : match_kernels(uses[0], uses[1]))
    diff.parts.push_back(part_of(match, labels, diff));
  name_changed_arguments(before, after, diff);
  add_idle_parts(a, b, diff);
  merge_small(diff, options.min_part_pct);
  // Ops of a trace without device work are not listed beside the other's kernels.
  std::array<std::vector<KernelUse>, 2> listed = uses;
  if (a.account.has_device_work != b.account.has_device_work)
    listed[a.account.has_device_work ? 1 : 0].clear();
  add_changes(changes_by_name(listed, labels), diff);
  return diff;
}

}  // namespace epilogue::trace
