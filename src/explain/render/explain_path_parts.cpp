// SPDX-License-Identifier: Apache-2.0
// The critical path.
#include <fmt/format.h>

#include "base/units.h"
#include "epilogue/trace/explain.h"
#include "explain/render/explain_parts.h"

namespace epilogue::trace {
namespace {

// What a trace spans outside of its path is said if it is more than this part of the span.
constexpr double kNamedOutsidePart = 0.01;

std::string path_group_text(const PathGroup& g) {
  switch (g.kind) {
    case PathKind::host_between_ops: return "host between ops";
    case PathKind::launch_latency: return "from launch to start";
    case PathKind::device_gap: return "between kernels of the queue";
    case PathKind::before: return "before the path begins";
    case PathKind::sync_call: return g.name + ", after the wait";
    default: return g.name;
  }
}

// "1.20 ms (3 % less)"
std::string path_what_if_text(const CriticalPath& path, const std::optional<int64_t>& span_ns) {
  if (!span_ns || path.span_ns() <= 0) return "-";
  const double less_pct =
      100 - 100 * static_cast<double>(*span_ns) / static_cast<double>(path.span_ns());
  return fmt::format("{} ({:.1f} % less)", format_duration_ns(*span_ns), less_pct);
}

}  // namespace

void add_critical_path(ExplainParts& p) {
  if (!p.e.critical_path) return;
  const CriticalPath& path = *p.e.critical_path;
  const double span_ns = std::max<double>(1, static_cast<double>(path.span_ns()));
  p.head(fmt::format("Critical path: {}", format_duration_ns(path.span_ns())));
  Grid grid{{{"on the path", true, 56},
             {"kind", true},
             {"time"},
             {"share"},
             {"if it took half"},
             {"if it took nothing"}},
            {},
            ""};
  for (const PathGroup& g : path.groups)
    grid.rows.push_back(
        {path_group_text(g), std::string(path_kind_name(g.kind)), format_duration_ns(g.path_ns),
         fmt::format("{:.1f} %", static_cast<double>(g.path_ns) / span_ns * 100),
         path_what_if_text(path, g.if_half_ns), path_what_if_text(path, g.if_none_ns)});
  p.add(std::move(grid));
  std::string text =
      "The chain of host work, launches, device work and waits that decides how long the trace is. "
      "The last columns say how long it would be if all of that name took half its time, or none, "
      "and everything else stayed as it was.";
  if (const int64_t outside_ns = p.e.timeline.span_ns() - path.span_ns();
      outside_ns > kNamedOutsidePart * static_cast<double>(p.e.timeline.span_ns()))
    text += fmt::format(
        " The trace spans {}: {} of it lie before the first moment of the path or after its last.",
        format_duration_ns(p.e.timeline.span_ns()), format_duration_ns(outside_ns));
  if (path.inferred_waits > 0)
    text += fmt::format(" {} of streams for each other {} told by calls and times alone.",
                        counted(path.inferred_waits, "wait", "waits"),
                        path.inferred_waits == 1 ? "is" : "are");
  p.document.push_back(Paragraph{std::move(text)});
}

}  // namespace epilogue::trace
