// SPDX-License-Identifier: Apache-2.0
// The head of the answer: verdict, health, findings, how wall time divides, and idle time.
#include <fmt/format.h>

#include "base/units.h"
#include "explain/sections/section.h"

namespace epilogue::trace {
namespace {

void add_head_json(const Explanation& e, Json& json, JsonLists&) {
  json["path"] = e.path;
  json["device"] = e.device;
  json["verdict"] = bound_name(e.verdicts.whole.bound);
  json["bound_pct"] = parts_json(e.verdicts.whole);
  json["judged_pct"] = or_null(e.verdicts.whole.judged_pct);
  json["thresholds"] = {{"device_bound_pct", kDeviceBoundPct},
                        {"compute_bound_pct", kComputeBoundPct}};
  json["profiler_ns_per_op"] = e.verdicts.profiler.ns_per_op;
  json["profiler_us"] = to_us(e.verdicts.profiler.total_ns);
  json["events"] = e.events;
  json["skipped_events"] = e.skipped_events;
  json["ops"] = e.ops;
  json["kernels"] = e.kernels;
  json["distinct_kernels"] = e.distinct_kernels;
  json["kernels_without_launch"] = e.kernels_without_launch;
  json["launches_without_kernel"] = e.launches_without_kernel;
}

// The page has a masthead instead.
void show_head(const Explanation& e, SectionSink& sink) {
  std::string title(bound_name(e.host ? e.host->bound : e.verdicts.whole.bound));
  if (e.host) title += " on the CPU";
  if (!e.path.empty()) title = e.path + ": " + title;
  sink.head(std::move(title), Where::text);
  std::string line =
      fmt::format("{}, {}, {} ({} distinct), span {}", counted(e.events, "event", "events"),
                  counted(e.ops, "op", "ops"), counted(e.kernels, "kernel", "kernels"),
                  format_count(e.distinct_kernels), format_duration_ns(e.timeline.span_ns()));
  if (!e.device.empty()) line += ", " + e.device;
  if (e.skipped_events > 0)
    line += "; " + counted(e.skipped_events, "event", "events") + " could not be read";
  sink.note(std::move(line), Where::text);
}

Json health_json(const HealthItem& h) {
  return {{"id", h.id},
          {"severity", severity_name(h.severity)},
          {"count", h.count},
          {"detail", h.detail}};
}

void add_health_json(const Explanation& e, Json& json, JsonLists&) {
  json["health"] = array_of(e.health, health_json);
}

void show_health(const Explanation& e, SectionSink& sink) {
  if (e.health.empty()) return;
  std::vector<SectionSink::Item> items;
  for (const HealthItem& item : e.health)
    items.push_back({fmt::format("{}: {}", severity_name(item.severity), item.detail), {}});
  sink.head("What to know about this trace first");
  sink.bullets(items, Where::text);
  sink.plot("health", nullptr);
}

Json source_json(const KernelSource& s) {
  return {{"kernel", s.kernel},
          {"kernel_file", s.file},
          {"kernel_files", s.files},
          {"fused_ops", s.fused_ops}};
}

void add_findings_json(const Explanation& e, Json& json, JsonLists&) {
  json["findings"] = array_of(e.findings, finding_json);
}

void show_findings(const Explanation& e, SectionSink& sink) {
  std::vector<SectionSink::Item> items;
  Json details = Json::array();
  for (const Finding& f : e.findings) {
    std::string text = f.title;
    if (f.saving_us && *f.saving_us > 0)
      text += fmt::format(" [up to {}]", format_duration_ns(*f.saving_us * 1000));
    else if (f.cost_us)
      text += fmt::format(" [costs {}]", format_duration_ns(*f.cost_us * 1000));
    items.push_back({std::move(text), finding_details(f, to_us(e.timeline.span_ns()))});
    details.push_back(items.back().second);
  }
  sink.head("Findings");
  sink.bullets(items, Where::text);
  sink.note("Savings are estimates over the whole trace; several may save the same time.");
  sink.plot("findings", details);
}

void show_wall(const Explanation& e, SectionSink& sink) {
  const Verdict& whole = e.verdicts.whole;
  if (whole.part_pct.empty()) return;
  std::vector<Json> parts;
  for (int i = 0; i < kTimeParts; ++i)
    if (const auto part = static_cast<TimePart>(i); whole.pct(part) > 0)
      parts.push_back({{"part", time_part_name(part)}, {"pct", whole.pct(part)}});
  sink.head("How the wall time divides", Where::text);
  sink.table(table_of("", "", parts, [](const Json& row) { return row; },
                      {Column(Kind::text, "part", "part"), Column(Kind::percent, "share", "pct")}));
  sink.note(fmt::format(
                "If the device works {:.0f} % of the time or more, it limits the run: "
                "compute-bound if {:.0f} % of that or more is compute, else memory-bound. If not, "
                "the largest cause of idle time limits the run. The profiler's part of the time is "
                "left out, and collectives that no other kernel hides do not count as work.",
                kDeviceBoundPct, kComputeBoundPct),
            Where::text);
}

Json idle_json(const DeviceIdle& idle) {
  Json causes = Json::object();
  for (int i = 0; i < kIdleCauses; ++i) {
    const auto cause = static_cast<IdleCause>(i);
    causes[std::string(idle_cause_name(cause)) + "_us"] = to_us(idle.of(cause));
  }
  return {{"device", idle.device}, {"idle_us", to_us(idle.idle_ns)}, {"causes", std::move(causes)}};
}

Json gap_json(const IdleGap& g) {
  return {{"start_us", to_us(g.start_ns)},
          {"duration_us", to_us(g.dur_ns)},
          {"cause", idle_cause_name(g.cause)},
          {"before", g.before},
          {"after", g.after},
          {"was_launched", g.was_launched},
          {"call", g.call},
          {"op", g.op},
          {"annotation", g.annotation},
          {"python_function", g.function}};
}

void add_idle_json(const Explanation& e, Json& json, JsonLists& lists) {
  json["idle"] = array_of(e.idle, idle_json);
  json["idle_gaps"] = lists.of("idle_gaps", e.gaps, gap_json);
}

void show_idle(const Explanation& e, SectionSink& sink) {
  if (std::none_of(e.idle.begin(), e.idle.end(),
                   [](const DeviceIdle& idle) { return idle.idle_ns > 0; }))
    return;
  sink.head("Idle time by cause", Where::page);
  sink.plot("idle", nullptr);
  sink.page_table(
      table_of("The longest gaps", "idle_gaps", e.gaps, gap_json,
               {Column(Kind::us, "duration", "duration_us"), Column(Kind::text, "cause", "cause"),
                Column(Kind::kernel, "after", "before"), Column(Kind::kernel, "before", "after"),
                Column(Kind::text, "call", "call"), Column(Kind::text, "op", "op"),
                Column(Kind::text, "annotation", "annotation"),
                Column(Kind::text, "Python function", "python_function")},
               "duration_us"));
}

}  // namespace

Json parts_json(const Verdict& verdict) {
  Json json = Json::object();
  if (verdict.part_pct.empty()) return json;
  for (int i = 0; i < kTimeParts; ++i)
    json[std::string(time_part_name(static_cast<TimePart>(i)))] =
        verdict.part_pct[static_cast<size_t>(i)];
  return json;
}

Json finding_json(const Finding& f) {
  return {{"id", f.id},
          {"severity", severity_name(f.severity)},
          {"title", f.title},
          {"evidence", f.evidence},
          {"saving_us", or_null(f.saving_us)},
          {"cost_us", or_null(f.cost_us)},
          {"remains_us", or_null(f.remains_us())},
          {"confidence", f.confidence ? Json(confidence_name(*f.confidence)) : Json()},
          {"action", f.action},
          {"remedy", f.action},
          {"where", f.where ? Json(finding_place_name(*f.where)) : Json()},
          {"sources", array_of(f.sources, source_json)}};
}

std::vector<std::string> finding_details(const Finding& f, double span_us) {
  std::vector<std::string> lines;
  for (const std::string& line : f.evidence)
    if (line != f.action) lines.push_back(line);
  if (f.cost_us && *f.cost_us > 0) {
    const double whole_us = std::max(1 / kNsPerUs, span_us);
    std::string line =
        fmt::format("Costs {} of {} ({:.0f} %).", format_duration_ns(*f.cost_us * kNsPerUs),
                    format_duration_ns(whole_us * kNsPerUs), *f.cost_us / whole_us * 100);
    if (f.remains_us())
      line += *f.remains_us() < 0.01 * *f.cost_us
                  ? " Up to all of it can be saved."
                  : fmt::format(" Up to {} of it can be saved.",
                                format_duration_ns(*f.saving_us * kNsPerUs));
    if (f.confidence) line += fmt::format(" Confidence: {}.", confidence_name(*f.confidence));
    lines.push_back(std::move(line));
  }
  if (!f.action.empty()) lines.push_back("To do: " + f.action + ".");
  return lines;
}

extern const Section kHead, kHealth, kFindings, kWall, kIdle;
constinit const Section kHead{"head", "Head", add_head_json, show_head};
constinit const Section kHealth{"health", "Data health", add_health_json, show_health};
constinit const Section kFindings{"findings", "Findings", add_findings_json, show_findings};
constinit const Section kWall{"wall", "Wall time", nullptr, show_wall};
constinit const Section kIdle{"idle", "Idle", add_idle_json, show_idle};

}  // namespace epilogue::trace
