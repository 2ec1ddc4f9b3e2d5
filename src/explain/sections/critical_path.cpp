// SPDX-License-Identifier: Apache-2.0
// The critical path.
#include <fmt/format.h>

#include "base/units.h"
#include "explain/sections/section.h"

namespace epilogue::trace {
namespace {

// The time outside of the path is named if it is more than this part of the span.
constexpr double kNamedOutsidePart = 0.01;

Json optional_us(const std::optional<int64_t>& ns) { return ns ? Json(to_us(*ns)) : Json(); }

Json group_json(const PathGroup& g) {
  return {{"kind", path_kind_name(g.kind)},
          {"name", g.name},
          {"count", g.count},
          {"path_us", to_us(g.path_ns)},
          {"total_us", to_us(g.total_ns)},
          {"span_if_half_us", optional_us(g.if_half_ns)},
          {"span_if_none_us", optional_us(g.if_none_ns)}};
}

void add_path_json(const Explanation& e, Json& json, JsonLists& lists) {
  Json& path = json["critical_path"];
  if (!e.critical_path) return;
  Json kinds = Json::object();
  for (int i = 0; i < kPathKinds; ++i) {
    const auto kind = static_cast<PathKind>(i);
    kinds[std::string(path_kind_name(kind)) + "_us"] = to_us(e.critical_path->of(kind));
  }
  path = {{"span_us", to_us(e.critical_path->span_ns())},
          {"kinds", std::move(kinds)},
          {"stream_waits", e.critical_path->stream_waits},
          {"inferred_stream_waits", e.critical_path->inferred_waits},
          {"groups", lists.of("critical_path.groups", e.critical_path->groups, group_json)}};
}

Json group_text(const Json& g) {
  const auto kind = g["kind"].get<std::string>();
  const auto is = [&](PathKind k) { return kind == path_kind_name(k); };
  if (is(PathKind::host_between_ops)) return "host between ops";
  if (is(PathKind::launch_latency)) return "from launch to start";
  if (is(PathKind::device_gap)) return "between kernels of the queue";
  if (is(PathKind::before)) return "before the path begins";
  if (is(PathKind::sync_call)) return g["name"].get<std::string>() + ", after the wait";
  return g["name"];
}

// How long the path would be without a part of it: "1.20 ms (3.0 % less)" in text, two columns on
// the page.
void add_if(std::vector<Column>& columns, const char* title, const char* key, double span_us) {
  const auto less_pct = [=](const Json& g) { return 100 - 100 * g[key].get<double>() / span_us; };
  columns.push_back(Column(Kind::cell, title, [=](const Json& g) {
                      if (g[key].is_null() || span_us <= 0) return Json();
                      return Json(fmt::format("{} ({:.1f} % less)",
                                              format_duration_ns(g[key].get<double>() * kNsPerUs),
                                              less_pct(g)));
                    }).text());
  columns.push_back(Column(Kind::us, title, key).page());
  columns.push_back(Column(Kind::percent, "less", [=](const Json& g) {
                      return g[key].is_null() || span_us <= 0 ? Json() : Json(less_pct(g));
                    }).page());
}

std::string path_note(const Explanation& e) {
  std::string text =
      "The chain of host work, launches, device work and waits that decides how long the trace is. "
      "The last columns say how long it would be if all of that name took half its time, or none, "
      "and everything else stayed as it was.";
  const CriticalPath& path = *e.critical_path;
  const int64_t span_ns = e.timeline.span_ns();
  if (const int64_t outside_ns = span_ns - path.span_ns();
      outside_ns > kNamedOutsidePart * static_cast<double>(span_ns))
    text += fmt::format(
        " The trace spans {}: {} of it lie before the first moment of the path or after its last.",
        format_duration_ns(span_ns), format_duration_ns(outside_ns));
  if (path.inferred_waits > 0)
    text += fmt::format(" {} of streams for each other {} told by calls and times alone.",
                        counted(path.inferred_waits, "wait", "waits"),
                        path.inferred_waits == 1 ? "is" : "are");
  return text;
}

void show_path(const Explanation& e, SectionSink& sink) {
  if (!e.critical_path) return;
  const CriticalPath& path = *e.critical_path;
  const double span_us = to_us(path.span_ns());
  sink.head(fmt::format("Critical path: {}", format_duration_ns(path.span_ns())));
  sink.plot("critical_path", nullptr);
  std::vector<Column> columns = {
      Column(Kind::kernel, "on the path", group_text).wide(56), Column(Kind::text, "kind", "kind"),
      Column(Kind::count, "pieces", "count").page(), Column(Kind::us, "time", "path_us"),
      Column(Kind::percent, "share", [=](const Json& g) {
        return Json(g["path_us"].get<double>() / std::max(1 / kNsPerUs, span_us) * 100);
      })};
  add_if(columns, "if it took half", "span_if_half_us", span_us);
  add_if(columns, "if it took nothing", "span_if_none_us", span_us);
  sink.table(table_of("On the path", "critical_path.groups", path.groups, group_json,
                      std::move(columns), "path_us"));
  sink.note(path_note(e));
}

}  // namespace

extern const Section kCriticalPath;
constinit const Section kCriticalPath{"path", "Critical path", add_path_json, show_path};

}  // namespace epilogue::trace
