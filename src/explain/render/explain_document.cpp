// SPDX-License-Identifier: Apache-2.0
// An explanation as a document: findings first, then the tables that they rest on.
#include <fmt/format.h>

#include <algorithm>

#include "base/units.h"
#include "epilogue/trace/explain.h"
#include "epilogue/trace/report.h"
#include "explain/render/documents.h"
#include "explain/render/explain_parts.h"

namespace epilogue::trace {
namespace {

void add_head(ExplainParts& p) {
  std::string title(bound_name(p.e.host ? p.e.host->bound : p.e.verdicts.whole.bound));
  if (p.e.host) title += " on the CPU";
  if (!p.e.path.empty()) title = p.e.path + ": " + title;
  p.head(std::move(title));
  std::string line =
      fmt::format("{}, {}, {} ({} distinct), span {}", counted(p.e.events, "event", "events"),
                  counted(p.e.ops, "op", "ops"), counted(p.e.kernels, "kernel", "kernels"),
                  format_count(p.e.distinct_kernels), format_duration_ns(p.e.timeline.span_ns()));
  if (!p.e.device.empty()) line += ", " + p.e.device;
  if (p.e.skipped_events > 0)
    line += "; " + counted(p.e.skipped_events, "event", "events") + " could not be read";
  p.document.push_back(Paragraph{std::move(line)});
}

void add_health(ExplainParts& p) {
  Bullets list;
  for (const HealthItem& item : p.e.health)
    list.items.push_back({fmt::format("{}: {}", severity_name(item.severity), item.detail), {}});
  if (list.items.empty()) return;
  p.head("What to know about this trace first");
  p.document.push_back(std::move(list));
}

// The evidence, then what it costs and how sure that is, then what to do.
std::vector<std::string> details_of(const Explanation& e, const Finding& f) {
  std::vector<std::string> lines;
  for (const std::string& line : f.evidence)
    if (line != f.action) lines.push_back(line);
  if (f.cost_us && *f.cost_us > 0) {
    const double span_us = std::max(1e-3, to_us(e.timeline.span_ns()));
    std::string line =
        fmt::format("It takes {} of {} now ({:.0f} %).", format_duration_ns(*f.cost_us * kNsPerUs),
                    format_duration_ns(span_us * kNsPerUs), *f.cost_us / span_us * 100);
    if (f.remains_us())
      line += *f.remains_us() < 0.01 * *f.cost_us
                  ? " At best none of it remains."
                  : fmt::format(" At best {} of that remain.",
                                format_duration_ns(*f.remains_us() * kNsPerUs));
    if (f.confidence) line += fmt::format(" Confidence: {}.", confidence_name(*f.confidence));
    lines.push_back(std::move(line));
  }
  if (!f.action.empty()) lines.push_back("To do: " + f.action + ".");
  return lines;
}

void add_findings(ExplainParts& p) {
  p.head("Findings");
  Bullets list;
  for (const Finding& f : p.e.findings) {
    std::string text = f.title;
    if (f.saving_us && *f.saving_us > 0)
      text += fmt::format(" [up to {}]", format_duration_ns(*f.saving_us * 1000));
    else if (f.cost_us)
      text += fmt::format(" [costs {}]", format_duration_ns(*f.cost_us * 1000));
    list.items.push_back({std::move(text), details_of(p.e, f)});
  }
  p.document.push_back(std::move(list));
  p.document.push_back(
      Paragraph{"Savings are estimates over the whole trace; several may save the same time."});
}

void add_wall(ExplainParts& p) {
  if (p.e.verdicts.whole.part_pct.empty()) return;
  p.head("How the wall time divides");
  Grid grid{{{"part", true}, {"share"}}, {}, ""};
  for (int i = 0; i < kTimeParts; ++i) {
    const auto part = static_cast<TimePart>(i);
    if (const double pct = p.e.verdicts.whole.pct(part); pct > 0)
      grid.rows.push_back({std::string(time_part_name(part)), percent(pct)});
  }
  p.document.push_back(std::move(grid));
  p.document.push_back(Paragraph{fmt::format(
      "If the device works {:.0f} % of the time or more, it limits the run: compute-bound if "
      "{:.0f} % of that or more is compute, else memory-bound. If not, the largest cause of idle "
      "time limits the run. The profiler's part of the time is left out, and collectives that no "
      "other kernel hides do not count as work.",
      kDeviceBoundPct, kComputeBoundPct)});
}

void add_steps(ExplainParts& p) {
  if (p.e.verdicts.regions.empty()) return;
  if (p.e.host) return add_host_steps(p);
  p.head(p.e.steps.empty() ? "Regions" : "Steps");
  Grid grid{{{"name", true, 40},
             {"wall"},
             {"device busy"},
             {"idle"},
             {"host in ops"},
             {"launches"},
             {"kernels"},
             {"judged"},
             {"verdict", true}},
            {},
            ""};
  for (const RegionVerdict& r : p.e.verdicts.regions)
    grid.rows.push_back({r.region.name, format_duration_ns(r.region.wall_ns()),
                         format_duration_ns(r.region.window_busy_ns),
                         format_duration_ns(r.region.device_end_ns - r.region.device_start_ns -
                                            r.region.window_busy_ns),
                         format_duration_ns(r.region.cpu_op_ns), format_count(r.region.launches),
                         format_count(r.region.kernels), known(r.verdict.judged_pct, "{:.1f} %"),
                         std::string(bound_name(r.verdict.bound))});
  p.add(std::move(grid));
  if (std::any_of(p.e.verdicts.regions.begin(), p.e.verdicts.regions.end(),
                  [](const RegionVerdict& r) { return r.region.device_end_ns > r.region.end_ns; }))
    p.document.push_back(Paragraph{
        "Where the host left a region before the device began it, busy, idle and verdict are of "
        "the time in which the device ran what the region launched."});
}

}  // namespace

Document explain_document(const Explanation& explanation, int top) {
  ExplainParts p{explanation, top};
  for (const auto add :
       {add_head, add_health, add_findings, add_wall, add_steps, add_critical_path, add_host,
        add_gemms, add_rooflines, add_fused, add_fusions, add_chains, add_calls, add_collectives,
        add_device_ranges, add_compile, add_memory, add_modules})
    add(p);
  Document document = std::move(p.document);
  document.json = [&explanation] { return explain_json(explanation); };
  return document;
}

std::string explain_text(const Explanation& explanation, const ReportOptions& options) {
  return document_text(explain_document(explanation, options.top), options.use_bold);
}
std::string explain_markdown(const Explanation& explanation, const ReportOptions& options) {
  return document_markdown(explain_document(explanation, options.top));
}

}  // namespace epilogue::trace
