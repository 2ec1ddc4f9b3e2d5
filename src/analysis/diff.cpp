// SPDX-License-Identifier: Apache-2.0
#include "epilogue/trace/diff.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>

#include "analysis/diff_match.h"
#include "base/units.h"

namespace epilogue::trace {
namespace {

constexpr double kSameMean = 0.05;   // means within 5 % are the same
constexpr size_t kKernelsNamed = 3;  // of a part
constexpr size_t kMaxNameChars = 80;

double mean_us(int64_t total_ns, int64_t count) {
  return count == 0 ? 0 : static_cast<double>(total_ns) / static_cast<double>(count) / kNsPerUs;
}

std::string cut(std::string_view name) {
  return name.size() <= kMaxNameChars ? std::string(name)
                                      : std::string(name.substr(0, kMaxNameChars)) + "...";
}

std::string names_of(const std::vector<KernelUse>& uses) {
  std::string text;
  for (size_t i = 0; i < std::min(uses.size(), kKernelsNamed); ++i)
    text += (i > 0 ? ", " : "") + cut(uses[i].name);
  if (uses.size() > kKernelsNamed) text += fmt::format(" and {} more", uses.size() - kKernelsNamed);
  return text;
}

// "6 -> 3 executions, mean 12.3 -> 10.1 us".
std::string counts(const Match& match) {
  std::array<int64_t, 2> total{};
  for (size_t side = 0; side < 2; ++side)
    for (const KernelUse& use : match.uses[side]) total[side] += use.total_ns;
  const std::array<int64_t, 2> n = {match.count(0), match.count(1)};
  std::string text = n[0] == n[1] ? fmt::format("{} executions", n[0])
                                  : fmt::format("{} -> {} executions", n[0], n[1]);
  if (n[0] > 0 && n[1] > 0)
    text +=
        fmt::format(", mean {:.1f} -> {:.1f} us", mean_us(total[0], n[0]), mean_us(total[1], n[1]));
  return text;
}

std::string kernels_why(const Match& match) {
  const KernelUse& longest_before = match.uses[0].front();
  const KernelUse& longest_after = match.uses[1].front();
  return fmt::format("{}; {} became {}: {}", counts(match), cut(longest_before.name),
                     cut(longest_after.name),
                     describe_difference(decode_kernel_name(longest_before.name),
                                         decode_kernel_name(longest_after.name)));
}

std::string fused_what(const Match& match) {
  const size_t others = match.uses[match.fused_side].size() - 1;
  return fmt::format("{}{}: {}", cut(match.what),
                     others > 0 ? fmt::format(" and {} more", others) : "",
                     match.fused_side == 1 ? "fused" : "split");
}

// "15 kernels of aten::mm, aten::gelu became 3: launches 15 -> 3, bytes moved 3.1 GB -> 151 MB".
std::string fused_why(const Match& match) {
  const std::string ops = fmt::format("{}", fmt::join(match.ops, ", "));
  const std::array<int64_t, 2> n = {match.count(0), match.count(1)};
  std::string text = match.fused_side == 1
                         ? fmt::format("{} kernels of {} became {}", n[0], ops, n[1])
                         : fmt::format("{} became {} kernels of {}", n[0], n[1], ops);
  const int64_t saved_ns = match.booked_ns(0) - match.booked_ns(1);
  text += fmt::format("; {} {}: launches {} -> {}", saved_ns < 0 ? "lost" : "saved",
                      format_duration_ns(static_cast<double>(std::abs(saved_ns))), n[0], n[1]);
  if (match.bytes(0) >= 0 && match.bytes(1) >= 0)
    text += fmt::format(", bytes read and written {} -> {}",
                        format_bytes(static_cast<double>(match.bytes(0))),
                        format_bytes(static_cast<double>(match.bytes(1))));
  return text;
}

DiffPart part_of(const Match& match, bool has_device_work) {
  DiffPart part;
  part.before_ns = match.booked_ns(0);
  part.after_ns = match.booked_ns(1);
  if (has_device_work) {
    part.kernels = {match.count(0), match.count(1)};
    part.bytes = {match.bytes(0), match.bytes(1)};
  }
  switch (match.kind) {
    case MatchKind::kSameKernel:
      part.what = cut(match.what) + (has_device_work ? ": same kernel" : ": same op");
      part.why = counts(match);
      break;
    case MatchKind::kSameOp:
      part.what = match.what + ": other kernels";
      part.why = kernels_why(match);
      break;
    case MatchKind::kSameKind:
      part.what = "other kernels for the same kind of work: " + match.what;
      part.why = kernels_why(match);
      break;
    case MatchKind::kFused:
      part.what = fused_what(match);
      part.why = fused_why(match);
      break;
    case MatchKind::kOnlyBefore:
      part.what = cut(match.what) + ": gone";
      part.why = counts(match) + (has_device_work ? " of " + names_of(match.uses[0]) : "");
      break;
    case MatchKind::kOnlyAfter:
      part.what = cut(match.what) + ": new";
      part.why = counts(match) + (has_device_work ? " of " + names_of(match.uses[1]) : "");
      break;
  }
  return part;
}

struct Side {
  const Trace& trace;
  const Links& links;
  TimeAccount account;
  int64_t ops = 0;
};

int64_t count_ops(const Trace& trace) {
  return std::count_if(trace.events.begin(), trace.events.end(),
                       [](const Event& e) { return e.category == Category::kCpuOp; });
}

// What the host did differently, as the reason for idle time of the device.
std::string host_why(IdleCause cause, const TraceDiff& diff) {
  switch (cause) {
    case IdleCause::kQueue: return "work was launched and had not started yet";
    case IdleCause::kLaunch:
      return fmt::format("{} -> {} launches for {} -> {} kernels", diff.launches[0],
                         diff.launches[1], diff.kernels[0], diff.kernels[1]);
    case IdleCause::kSync: return "the host waited for the device or for a copy";
    case IdleCause::kData: return "the host was in the data loader";
    case IdleCause::kHostInOps:
    case IdleCause::kHostBetweenOps:
      return fmt::format("{} -> {} ops on the host, {} -> {} launches", diff.ops[0], diff.ops[1],
                         diff.launches[0], diff.launches[1]);
    case IdleCause::kOther: return "no event of the host says why";
  }
  return "";
}

std::string idle_what(IdleCause cause, bool has_device_work) {
  if (!has_device_work) return "host between ops (Python, or what the trace does not show)";
  switch (cause) {
    case IdleCause::kQueue: return "device idle: launched work waits";
    case IdleCause::kLaunch: return "device idle: host in launch calls";
    case IdleCause::kSync: return "device idle: host synchronises";
    case IdleCause::kData: return "device idle: host loads data";
    case IdleCause::kHostInOps: return "device idle: host in ops";
    case IdleCause::kHostBetweenOps: return "device idle: host between ops (Python)";
    case IdleCause::kOther: return "unexplained";
  }
  return "";
}

void add_idle_parts(const Side& a, const Side& b, bool has_device_work, TraceDiff& diff) {
  for (size_t c = 0; c < kIdleCauses; ++c) {
    const auto cause = static_cast<IdleCause>(c);
    DiffPart part{idle_what(cause, has_device_work), host_why(cause, diff), a.account.idle_ns[c],
                  b.account.idle_ns[c]};
    if (cause == IdleCause::kOther) diff.unexplained_ns = part.delta_ns();
    if (part.delta_ns() != 0) diff.parts.push_back(std::move(part));
  }
}

// Small changes go into one part for the slower and one for the faster.
void merge_small(TraceDiff& diff, double min_part_pct) {
  const auto limit = static_cast<int64_t>(
      static_cast<double>(std::max(diff.wall_ns[0], diff.wall_ns[1])) * min_part_pct / 100);
  std::array<DiffPart, 2> merged;
  std::array<int64_t, 2> count{};
  std::vector<DiffPart> kept;
  for (DiffPart& part : diff.parts) {
    const bool is_small = std::abs(part.delta_ns()) < limit && part.what != "unexplained";
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
    merged[slower].what = fmt::format("{} smaller changes, {}", count[slower],
                                      slower == 1 ? "slower" : "faster or equal");
    merged[slower].why = fmt::format("each under {} % of the wall time", min_part_pct);
    kept.push_back(std::move(merged[slower]));
  }
  diff.parts = std::move(kept);
  std::stable_sort(diff.parts.begin(), diff.parts.end(), [](const DiffPart& x, const DiffPart& y) {
    return std::abs(x.delta_ns()) > std::abs(y.delta_ns());
  });
}

void add_kernel_changes(const std::vector<Match>& matches, TraceDiff& diff) {
  for (const Match& match : matches) {
    if (match.kind == MatchKind::kSameKernel) {
      const KernelUse& a = match.uses[0].front();
      const KernelUse& b = match.uses[1].front();
      const double before = mean_us(a.total_ns, a.count);
      const double after = mean_us(b.total_ns, b.count);
      if (a.count != b.count || std::abs(after - before) > kSameMean * before)
        diff.kernels_changed.push_back(
            {std::string(a.name), {a.count, b.count}, {a.total_ns, b.total_ns}});
      continue;
    }
    for (const KernelUse& use : match.uses[0])
      diff.kernels_removed.push_back({std::string(use.name), {use.count, 0}, {use.total_ns, 0}});
    for (const KernelUse& use : match.uses[1])
      diff.kernels_added.push_back({std::string(use.name), {0, use.count}, {0, use.total_ns}});
  }
  for (auto* list : {&diff.kernels_added, &diff.kernels_removed, &diff.kernels_changed})
    std::stable_sort(list->begin(), list->end(), [](const auto& x, const auto& y) {
      return x.total_ns[0] + x.total_ns[1] > y.total_ns[0] + y.total_ns[1];
    });
}

}  // namespace

TraceDiff diff_traces(const Trace& before, const Links& before_links, const Trace& after,
                      const Links& after_links, const DiffOptions& options) {
  TraceDiff diff;
  diff.by_steps = !before_links.steps.empty() && !after_links.steps.empty();
  const auto side = [&](const Trace& trace, const Links& links) {
    return Side{trace, links, account_time(trace, links, wall_windows(trace, links, diff.by_steps)),
                count_ops(trace)};
  };
  const Side a = side(before, before_links);
  const Side b = side(after, after_links);
  size_t i = 0;
  for (const Side* s : {&a, &b}) {
    diff.steps[i] = static_cast<int64_t>(s->links.steps.size());
    diff.wall_ns[i] = s->account.wall_ns;
    diff.busy_ns[i] = s->account.busy_ns;
    diff.kernels[i] = s->links.kernels;
    diff.launches[i] = static_cast<int64_t>(s->links.launches.size());
    diff.ops[i] = s->ops;
    ++i;
  }
  const bool has_device_work = a.account.has_device_work || b.account.has_device_work;
  const std::vector<Match> matches =
      match_kernels(kernel_uses(before, a.account), kernel_uses(after, b.account));
  for (const Match& match : matches) diff.parts.push_back(part_of(match, has_device_work));
  add_idle_parts(a, b, has_device_work, diff);
  merge_small(diff, options.min_part_pct);
  add_kernel_changes(matches, diff);
  return diff;
}

}  // namespace epilogue::trace
