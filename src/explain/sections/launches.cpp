// SPDX-License-Identifier: Apache-2.0
// Calls that start work, the queues in which it waits, waits of the host, copies, and ranges that
// annotate the device.
#include <fmt/format.h>

#include "base/units.h"
#include "explain/sections/curve_json.h"
#include "explain/sections/section.h"

namespace epilogue::trace {
namespace {

Json call_json(const CallStats& c) {
  Json json = distribution_json(c.time);
  json["name"] = c.name;
  json["starts_work"] = c.starts_work;
  return json;
}

void add_launches_json(const Explanation& e, Json& json, JsonLists& lists) {
  const LaunchStats& l = e.launches;
  json["launches"] = {{"launches", l.launches},
                      {"graph_launches", l.graph_launches},
                      {"graph_kernels", l.graph_kernels},
                      {"kernels_shorter_than_launch", l.kernels_shorter_than_launch},
                      {"kernels_per_launch", or_null(l.kernels_per_launch)},
                      {"launches_per_step", or_null(l.launches_per_step)},
                      {"queue_delay", l.queue_delay ? distribution_json(*l.queue_delay) : Json()},
                      {"calls", lists.of("launches.calls", l.calls, call_json)}};
}

// A kernel may start before its launch call returns.
std::string queue_delay_text(const Distribution& delay) {
  const auto when = [](int64_t ns) {
    return ns < 0 ? format_duration_ns(-static_cast<double>(ns)) + " before"
                  : format_duration_ns(static_cast<double>(ns)) + " after";
  };
  return fmt::format("A kernel starts {} its launch call ends (median); 95 % start {} or earlier.",
                     when(delay.median_ns), when(delay.p95_ns));
}

void show_launches(const Explanation& e, SectionSink& sink) {
  const LaunchStats& l = e.launches;
  if (!l.calls.empty()) {
    sink.head("Runtime calls");
    sink.table(
        table_of("Runtime calls", "launches.calls", l.calls, call_json,
                 {Column(Kind::text, "call", "name"), Column(Kind::count, "count", "count"),
                  Column(Kind::us, "median", "median_us"), Column(Kind::us, "p95", "p95_us"),
                  Column(Kind::us, "max", "max_us").page(), Column(Kind::us, "total", "total_us"),
                  Column(Kind::text, "starts work",
                         [](const Json& c) { return c["starts_work"].get<bool>() ? "yes" : ""; })
                      .page()},
                 "total_us"));
  }
  if (!l.queue_delay) return;
  sink.note(queue_delay_text(*l.queue_delay));
  sink.note(
      fmt::format("Kernels shorter than their launch call: {} of {}.",
                  format_count(l.kernels_shorter_than_launch), format_count(l.queue_delay->count)),
      Where::page);
}

// Points of a curve over time; the page has more.
constexpr size_t kCurveBuckets = 200;

Json queue_json(const StreamQueue& q) {
  return {{"device", q.device},
          {"stream", q.stream},
          {"works", q.works},
          {"max_length", q.max_length},
          {"max_us", to_us(q.max_ns)},
          {"mean_length", q.mean_length},
          {"over_time", curve_json(q.points, kCurveBuckets, &QueuePoint::length)}};
}

void add_queues_json(const Explanation& e, Json& json, JsonLists& lists) {
  json["queues"] = lists.of("queues", e.queues, queue_json);
}

void show_queues(const Explanation& e, SectionSink& sink) {
  if (e.queues.empty() || e.queues.front().max_length == 0) return;
  const StreamQueue& q = e.queues.front();
  sink.head("Work that waits in queues", Where::page);
  sink.note(fmt::format(
      "On stream {} of device {}, up to {} launched and had not started, on average {:.1f}.",
      q.stream, q.device, counted(q.max_length, "piece of work was", "pieces of work were"),
      q.mean_length));
  sink.plot("queues", nullptr);
}

Json sync_json(const SyncSpot& s) {
  return {{"call", s.call},
          {"where", s.where},
          {"is_implied", s.is_implied},
          {"time", distribution_json(s.time)}};
}

Json copy_json(const CopySpot& c) {
  return {{"name", c.name},
          {"where", c.where},
          {"is_pageable", c.is_pageable},
          {"bytes", or_null(c.bytes)},
          {"gb_per_s", or_null(c.bandwidth_gb_s)},
          {"time", distribution_json(c.time)}};
}

Json loader_json(const LoaderSpot& l) {
  return {{"name", l.name}, {"time", distribution_json(l.time)}};
}

void add_hot_spots_json(const Explanation& e, Json& json, JsonLists& lists) {
  const HotSpots& h = e.hot_spots;
  json["hot_spots"] = {{"syncs", lists.of("hot_spots.syncs", h.syncs, sync_json)},
                       {"copies", lists.of("hot_spots.copies", h.copies, copy_json)},
                       {"loaders", lists.of("hot_spots.loaders", h.loaders, loader_json)}};
}

// median, 95 % and longest of "time", on the page.
void add_times(std::vector<Column>& columns) {
  for (const auto& [title, key] :
       {std::pair{"median", "time.median_us"}, {"p95", "time.p95_us"}, {"max", "time.max_us"}})
    columns.push_back(Column(Kind::us, title, key).page());
}

void show_waits(const Explanation& e, SectionSink& sink) {
  if (e.hot_spots.syncs.empty()) return;
  std::vector<Column> columns = {
      Column(Kind::text, "call", "call"), Column(Kind::text, "in", "where"),
      Column(Kind::count, "count", "time.count"), Column(Kind::us, "total", "time.total_us")};
  add_times(columns);
  columns.push_back(Column(Kind::text, "implied", [](const Json& s) {
    return s["is_implied"].get<bool>() ? "by the op" : "";
  }));
  sink.head("Where the host waits", Where::page);
  sink.page_table(table_of("Waits of the host", "hot_spots.syncs", e.hot_spots.syncs, sync_json,
                           std::move(columns), "time.total_us"));
}

void show_copies(const Explanation& e, SectionSink& sink) {
  if (e.hot_spots.copies.empty()) return;
  std::vector<Column> columns = {
      Column(Kind::text, "name", "name"), Column(Kind::text, "in", "where").wide(40),
      Column(Kind::count, "count", "time.count"), Column(Kind::bytes, "bytes", "bytes"),
      Column(Kind::us, "total", "time.total_us")};
  add_times(columns);
  columns.push_back(Column(Kind::number, "GB/s", "gb_per_s"));
  columns.push_back(Column(Kind::text, "memory", [](const Json& c) {
                      return c["is_pageable"].get<bool>() ? "pageable" : "";
                    }).page());
  sink.head("Copies");
  sink.table(table_of("Copies and fills", "hot_spots.copies", e.hot_spots.copies, copy_json,
                      std::move(columns), "time.total_us"));
}

Json device_range_json(const DeviceRange& r) {
  return {{"name", r.name},
          {"device", r.device},
          {"count", r.count},
          {"total_us", to_us(r.total_ns)},
          {"max_us", to_us(r.max_ns)},
          {"busy_us", to_us(r.busy_ns)},
          {"idle_us", to_us(r.idle_ns)}};
}

void add_device_ranges_json(const Explanation& e, Json& json, JsonLists& lists) {
  json["device_ranges"] = lists.of("device_ranges", e.device_ranges, device_range_json);
}

void show_device_ranges(const Explanation& e, SectionSink& sink) {
  if (e.device_ranges.empty()) return;
  sink.head("Annotations on the device");
  sink.table(
      table_of("Ranges of the device", "device_ranges", e.device_ranges, device_range_json,
               {Column(Kind::text, "name", "name"), Column(Kind::count, "device", "device").page(),
                Column(Kind::count, "count", "count"), Column(Kind::us, "total", "total_us"),
                Column(Kind::us, "longest", "max_us"), Column(Kind::us, "busy", "busy_us"),
                Column(Kind::us, "idle", "idle_us")},
               "total_us"));
}

}  // namespace

extern const Section kLaunches, kQueues, kWaits, kCopies, kDeviceRanges;
constinit const Section kLaunches{"calls", "Calls", add_launches_json, show_launches};
constinit const Section kQueues{"queues", "Queues", add_queues_json, show_queues};
constinit const Section kWaits{"waits", "Waits", add_hot_spots_json, show_waits};
constinit const Section kCopies{"copies", "Copies", nullptr, show_copies};
constinit const Section kDeviceRanges{"ranges", "Annotations", add_device_ranges_json,
                                      show_device_ranges};

}  // namespace epilogue::trace
