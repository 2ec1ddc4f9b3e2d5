// SPDX-License-Identifier: Apache-2.0
// Steps, else regions: their time and verdicts.
#include "base/units.h"
#include "explain/sections/section.h"

namespace epilogue::trace {
namespace {

Json region_json(const RegionVerdict& r) {
  return {{"name", r.region.name},
          {"start_us", to_us(r.region.start_ns)},
          {"wall_us", to_us(r.region.wall_ns())},
          {"gpu_busy_us", to_us(r.region.device_busy_ns)},
          {"launched_work_us", to_us(r.region.launched_work_ns)},
          {"device_window_start_us", to_us(r.region.device_start_ns)},
          {"device_window_us", to_us(r.region.device_end_ns - r.region.device_start_ns)},
          {"device_window_busy_us", to_us(r.region.window_busy_ns)},
          {"cpu_op_us", to_us(r.region.cpu_op_ns)},
          {"ops", r.region.ops},
          {"launches", r.region.launches},
          {"kernels", r.region.kernels},
          {"verdict", bound_name(r.verdict.bound)},
          {"bound_pct", parts_json(r.verdict)},
          {"judged_pct", or_null(r.verdict.judged_pct)},
          {"evidence", r.verdict.evidence}};
}

void add_steps_json(const Explanation& e, Json& json, JsonLists& lists) {
  const bool has_steps = !e.steps.empty();
  json["steps"] = Json::array();
  json["regions"] = Json::array();
  const char* key = has_steps ? "steps" : "regions";
  json[key] = lists.of(key, e.verdicts.regions, region_json);
  json["span_us"] = to_us(e.timeline.span_ns());
  json["gpu_busy_us"] =
      e.timeline.devices.empty() ? Json() : Json(to_us(e.timeline.devices.front().busy_ns));
  json["gpu_busy_pct"] = or_null(e.timeline.busy_pct());
}

void show_steps(const Explanation& e, SectionSink& sink) {
  const std::vector<RegionVerdict>& regions = e.verdicts.regions;
  if (regions.empty()) return;
  const bool has_device = !e.host;
  const char* title = e.steps.empty() ? "Regions" : "Steps";
  sink.head(title);
  sink.table(
      table_of(std::string(title) + " of the trace", e.steps.empty() ? "regions" : "steps", regions,
               region_json,
               {Column(Kind::text, "name", "name").wide(40), Column(Kind::us, "wall", "wall_us"),
                Column(Kind::us, "device busy", "device_window_busy_us").when(has_device),
                Column(Kind::us, "idle",
                       [](const Json& r) {
                         return Json(r["device_window_us"].get<double>() -
                                     r["device_window_busy_us"].get<double>());
                       })
                    .when(has_device),
                Column(Kind::us, has_device ? "host in ops" : "in ops", "cpu_op_us"),
                Column(Kind::count, "ops", "ops").at(has_device ? Where::page : Where::all),
                Column(Kind::count, "launches", "launches").when(has_device),
                Column(Kind::count, "kernels", "kernels").when(has_device),
                Column(Kind::percent, "judged", "judged_pct")
                    .hint("without collectives that nothing hides, less the profiler's part")
                    .when(has_device),
                Column(Kind::text, "verdict", "verdict").when(has_device),
                Column(Kind::wall_parts, "division of the wall time", "bound_pct")
                    .page()
                    .when(has_device)}));
  sink.note("A click on a row shows it in the timeline.", Where::page);
  if (has_device && std::any_of(regions.begin(), regions.end(), [](const RegionVerdict& r) {
        return r.region.device_end_ns > r.region.end_ns;
      }))
    sink.note(
        "Where the host left a region before the device began it, busy, idle and verdict are of "
        "the time in which the device ran what the region launched.");
}

}  // namespace

extern const Section kSteps;
constinit const Section kSteps{"steps", "Steps", add_steps_json, show_steps};

}  // namespace epilogue::trace
