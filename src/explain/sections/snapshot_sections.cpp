// SPDX-License-Identifier: Apache-2.0
#include "explain/sections/snapshot_sections.h"

#include <fmt/format.h>

#include "base/units.h"

namespace epilogue::trace {
namespace {

std::string bytes_text(int64_t bytes) { return format_bytes(static_cast<double>(bytes)); }

const DeviceMemoryReport& device_of(const SnapshotAnswer& a, size_t i) {
  return a.report.devices[i];
}

// Where a device's lists lie in the JSON.
std::string path_of(size_t device, const char* list) {
  return fmt::format("devices.{}.{}", device, list);
}

std::string device_name(int32_t device) {
  return device == kHostDevice ? "pinned memory of the host" : fmt::format("device {}", device);
}

// --- The head: verdict and findings -------------------------------------------------------------

Json memory_finding_json(const MemoryFinding& f) {
  return {{"id", f.id},         {"severity", f.severity},
          {"title", f.title},   {"evidence", f.evidence},
          {"remedy", f.remedy}, {"saving_bytes", or_null(f.saving_bytes)}};
}

void add_snapshot_head(const SnapshotAnswer& a, size_t i, Json& json) {
  const DeviceMemoryReport& d = device_of(a, i);
  json["device"] = d.device;
  json["peak_bytes"] = d.peak_bytes;
  json["peak_us"] = d.has_times ? Json(d.peak_us) : Json();
  json["peak_event"] = d.peak_at;
  json["peak_reserved_bytes"] = d.peak_reserved_bytes;
  json["alive_at_peak"] = d.alive_at_peak;
  json["before_history_bytes"] = d.before_bytes;
  json["events"] = d.events;
  json["span_us"] = d.has_times ? Json(d.span_us) : Json();
  json["unmatched_frees"] = d.unmatched_frees;
  json["findings"] = array_of(d.findings, memory_finding_json);
}

void show_snapshot_head(const SnapshotAnswer& a, size_t i, SectionSink& sink) {
  const DeviceMemoryReport& d = device_of(a, i);
  sink.head(fmt::format("Peak of {}: {} allocated, {} reserved", device_name(d.device),
                        bytes_text(d.peak_bytes), bytes_text(d.peak_reserved_bytes)));
  std::string facts =
      d.events == 0
          ? "No history of this device: the peak is the end"
          : counted(d.events, "event", "events") +
                (d.has_times
                     ? " in " + format_duration_ns(static_cast<double>(d.span_us) * kNsPerUs)
                     : "");
  if (d.events > 0)
    facts += fmt::format(
        "; the peak is at event {}{}, with {} alive", d.peak_at,
        d.has_times ? " (" + format_duration_ns(static_cast<double>(d.peak_us) * kNsPerUs) + ")"
                    : "",
        counted(d.alive_at_peak, "allocation", "allocations"));
  if (d.before_bytes > 0)
    facts += fmt::format("; {} were allocated before the history", bytes_text(d.before_bytes));
  sink.note(facts + ".");
  std::vector<SectionSink::Item> items;
  for (const MemoryFinding& f : d.findings) {
    std::vector<std::string> below = f.evidence;
    if (!f.remedy.empty()) below.push_back("remedy: " + f.remedy);
    items.emplace_back(fmt::format("[{}] {}", f.id, f.title), std::move(below));
  }
  if (!items.empty()) sink.bullets(items, Where::text);
  sink.plot("snapshot_findings", i);
  sink.plot("snapshot_curve", i);
}

// --- Who held the peak --------------------------------------------------------------------------

Json snapshot_holder_json(const SnapshotHolder& h) {
  return {{"name", h.label}, {"bytes", h.bytes}, {"allocations", h.allocations}};
}

void add_snapshot_holders(const SnapshotAnswer& a, size_t i, Json& json) {
  const DeviceMemoryReport& d = device_of(a, i);
  json["at_peak_by_category"] = array_of(d.by_category, snapshot_holder_json);
  json["at_peak_by_frame"] = array_of(d.by_frame, snapshot_holder_json);
  json["at_peak_by_module"] = array_of(d.by_module, snapshot_holder_json);
  json["at_peak_by_metadata"] = array_of(d.by_metadata, snapshot_holder_json);
  json["at_peak_by_stack"] = array_of(d.by_stack, snapshot_holder_json);
}

void show_holder_table(SectionSink& sink, size_t device, const char* caption, const char* list,
                       const char* title, const std::vector<SnapshotHolder>& holders,
                       int64_t peak_bytes) {
  if (holders.empty()) return;
  sink.head(caption, Where::text);
  const auto share = [peak_bytes](const Json& row) {
    return peak_bytes > 0
               ? Json(100.0 * row["bytes"].get<double>() / static_cast<double>(peak_bytes))
               : Json();
  };
  sink.table(
      table_of(caption, path_of(device, list), holders, snapshot_holder_json,
               {Column(Kind::text, title, "name").wide(84),
                Column(Kind::count, "allocations", "allocations"),
                Column(Kind::bytes, "bytes", "bytes"), Column(Kind::percent, "of the peak", share)},
               "bytes"));
}

void show_snapshot_holders(const SnapshotAnswer& a, size_t i, SectionSink& sink) {
  const DeviceMemoryReport& d = device_of(a, i);
  if (d.alive_at_peak == 0) return;
  sink.head(fmt::format("Alive at the peak of {}", device_name(d.device)), Where::page);
  show_holder_table(sink, i, "At the peak, by category", "at_peak_by_category", "category",
                    d.by_category, d.peak_bytes);
  sink.note(
      "Categories are read off frames and lifetimes (docs/memory.md); unknown is what neither "
      "says.",
      Where::page);
  show_holder_table(sink, i, "At the peak, by frame", "at_peak_by_frame", "allocated in",
                    d.by_frame, d.peak_bytes);
  show_holder_table(sink, i, "At the peak, by module", "at_peak_by_module", "module", d.by_module,
                    d.peak_bytes);
  show_holder_table(sink, i, "At the peak, by metadata", "at_peak_by_metadata", "metadata",
                    d.by_metadata, d.peak_bytes);
  sink.page_table(table_of(
      "At the peak, by stack", path_of(i, "at_peak_by_stack"), d.by_stack, snapshot_holder_json,
      {Column(Kind::text, "stack, the outermost frame first", "name"),
       Column(Kind::count, "allocations", "allocations"), Column(Kind::bytes, "bytes", "bytes")},
      "bytes"));
}

// --- Growth -------------------------------------------------------------------------------------

Json snapshot_leak_json(const SnapshotLeak& l) {
  return {{"name", l.label},
          {"bytes", l.bytes},
          {"steps", l.steps},
          {"bytes_per_step", l.bytes_per_step}};
}
Json snapshot_step_json(const SnapshotStepMemory& s) {
  return {{"name", s.name}, {"peak_bytes", s.peak_bytes}, {"end_bytes", s.end_bytes}};
}

void add_snapshot_growth(const SnapshotAnswer& a, size_t i, Json& json) {
  const DeviceMemoryReport& d = device_of(a, i);
  json["steps_by"] = d.steps_by;
  json["steps"] = array_of(d.steps, snapshot_step_json);
  json["growth"] = array_of(d.leaks, snapshot_leak_json);
}

void show_snapshot_growth(const SnapshotAnswer& a, size_t i, SectionSink& sink) {
  const DeviceMemoryReport& d = device_of(a, i);
  if (!d.leaks.empty()) {
    sink.head("Growth over steps");
    sink.note(fmt::format(
        "Bytes alive at the end of each step ({}) that grow and never fall, behind the first step.",
        d.steps_by));
    sink.table(table_of(
        "", path_of(i, "growth"), d.leaks, snapshot_leak_json,
        {Column(Kind::text, "allocated in", "name"), Column(Kind::count, "steps", "steps"),
         Column(Kind::bytes, "bytes", "bytes"), Column(Kind::bytes, "per step", "bytes_per_step")},
        "bytes"));
  }
  if (d.steps.empty()) return;
  if (d.leaks.empty()) sink.head("Steps", Where::page);
  sink.page_table(
      table_of("Steps, by " + d.steps_by, path_of(i, "steps"), d.steps, snapshot_step_json,
               {Column(Kind::text, "step", "name"), Column(Kind::bytes, "peak", "peak_bytes"),
                Column(Kind::bytes, "at its end", "end_bytes")}));
}

// --- Fragmentation ------------------------------------------------------------------------------

// What would fit without freeing anything.
Json fits_json(const SnapshotAnswer& a, const DeviceMemoryReport& d) {
  const Json device_free = d.ooms.empty() ? Json() : Json(d.ooms.back().device_free_bytes);
  const int64_t free = d.ooms.empty() ? 0 : d.ooms.back().device_free_bytes;
  Json rows = Json::array();
  rows.push_back({{"way", "from the cache, as it is"}, {"bytes", d.largest_free_bytes}});
  rows.push_back({{"way", "after empty_cache()"},
                  {"bytes", std::max(d.largest_free_bytes, d.releasable_bytes + free)}});
  rows.push_back(
      {{"way", a.report.expandable ? "all that is free, in one piece" : "with expandable segments"},
       {"bytes", d.reserved_bytes - d.active_bytes + free}});
  return {{"device_free_bytes", device_free}, {"rows", std::move(rows)}};
}

std::vector<Json> reserved_parts(const DeviceMemoryReport& d) {
  const std::pair<const char*, int64_t> parts[] = {
      {"reserved in segments", d.reserved_bytes},
      {"in use", d.allocated_bytes},
      {"rounding within that", d.allocated_bytes - d.requested_bytes},
      {"freed, waiting for a stream", d.pending_bytes},
      {"free within segments in use", d.inactive_split_bytes},
      {"in segments without use", d.releasable_bytes},
      {"largest free block", d.largest_free_bytes}};
  std::vector<Json> rows;
  for (const auto& [part, bytes] : parts) rows.push_back({{"part", part}, {"bytes", bytes}});
  return rows;
}

void add_snapshot_fragmentation(const SnapshotAnswer& a, size_t i, Json& json) {
  const DeviceMemoryReport& d = device_of(a, i);
  json["at_end"] = {{"segments", d.segments},
                    {"reserved_bytes", d.reserved_bytes},
                    {"allocated_bytes", d.allocated_bytes},
                    {"active_bytes", d.active_bytes},
                    {"requested_bytes", d.requested_bytes},
                    {"pending_free_bytes", d.pending_bytes},
                    {"inactive_bytes", d.reserved_bytes - d.active_bytes},
                    {"inactive_split_bytes", d.inactive_split_bytes},
                    {"releasable_bytes", d.releasable_bytes},
                    {"free_blocks", d.free_blocks},
                    {"largest_free_block_bytes", d.largest_free_bytes}};
  json["at_end_parts"] = reserved_parts(d);
  json["fits"] = fits_json(a, d);
  json["at_end_by_stack"] = array_of(d.at_end_by_stack, snapshot_holder_json);
}

void show_snapshot_fragmentation(const SnapshotAnswer& a, size_t i, SectionSink& sink) {
  const DeviceMemoryReport& d = device_of(a, i);
  if (d.segments == 0) return;
  sink.head("Reserved memory at the end");
  const std::vector<Json> rows = reserved_parts(d);
  const auto same = [](const Json& row) { return row; };
  sink.table(table_of("", path_of(i, "at_end_parts"), rows, same,
                      {Column(Kind::text, "part", "part"), Column(Kind::bytes, "bytes", "bytes")}));
  const Json fits = fits_json(a, d);
  const std::vector<Json> ways(fits["rows"].begin(), fits["rows"].end());
  sink.head("Largest allocation that would fit", Where::text);
  sink.note(
      fits["device_free_bytes"].is_null()
          ? "The snapshot does not say what the device has free beyond this; that comes on top."
          : fmt::format("The device had {} free at the last failure; they are counted in.",
                        bytes_text(fits["device_free_bytes"].get<int64_t>())));
  sink.table(table_of("Largest allocation that would fit", path_of(i, "fits.rows"), ways, same,
                      {Column(Kind::text, "way", "way"), Column(Kind::bytes, "at most", "bytes")}));
  sink.plot("snapshot_map", i);
}

// --- Out of memory, pools -----------------------------------------------------------------------

Json snapshot_oom_json(const SnapshotOom& o) {
  return {{"time_us", o.time_us},
          {"asked_bytes", o.asked_bytes},
          {"device_free_bytes", o.device_free_bytes},
          {"allocated_bytes", o.allocated_bytes},
          {"reserved_bytes", o.reserved_bytes},
          {"name", o.label},
          {"module", o.module}};
}
Json snapshot_pool_json(const SnapshotPool& p) {
  return {{"pool", fmt::format("({}, {})", p.first, p.second)},
          {"segments", p.segments},
          {"reserved_bytes", p.reserved_bytes},
          {"active_bytes", p.active_bytes}};
}

void add_snapshot_ooms(const SnapshotAnswer& a, size_t i, Json& json) {
  const DeviceMemoryReport& d = device_of(a, i);
  json["out_of_memory"] = array_of(d.ooms, snapshot_oom_json);
  json["pools"] = array_of(d.pools, snapshot_pool_json);
}

void show_snapshot_ooms(const SnapshotAnswer& a, size_t i, SectionSink& sink) {
  const DeviceMemoryReport& d = device_of(a, i);
  if (!d.ooms.empty()) {
    sink.head("Failed allocations");
    sink.table(table_of(
        "", path_of(i, "out_of_memory"), d.ooms, snapshot_oom_json,
        {Column(Kind::text, "asked in", "name"), Column(Kind::bytes, "asked", "asked_bytes"),
         Column(Kind::bytes, "device had free", "device_free_bytes"),
         Column(Kind::bytes, "allocated", "allocated_bytes"),
         Column(Kind::bytes, "reserved", "reserved_bytes"),
         Column(Kind::text, "module", "module")}));
  }
  const bool has_private =
      d.pools.size() > 1 ||
      (d.pools.size() == 1 && (d.pools[0].first != 0 || d.pools[0].second != 0));
  if (!has_private) return;
  sink.head("Pools");
  sink.note("Pool (0, 0) is everybody's; the others belong to CUDA graphs and MemPools.");
  sink.table(
      table_of("", path_of(i, "pools"), d.pools, snapshot_pool_json,
               {Column(Kind::text, "pool", "pool"), Column(Kind::count, "segments", "segments"),
                Column(Kind::bytes, "reserved", "reserved_bytes"),
                Column(Kind::bytes, "active", "active_bytes")}));
}

// --- Comparison ---------------------------------------------------------------------------------

Json memory_change_json(const MemoryChange& c) {
  return {{"name", c.label},
          {"before_bytes", c.before},
          {"after_bytes", c.after},
          {"delta_bytes", c.after - c.before}};
}

const DeviceMemoryDiff* diff_of(const SnapshotAnswer& a, size_t i) {
  for (const DeviceMemoryDiff& diff : a.diffs)
    if (diff.device == device_of(a, i).device) return &diff;
  return nullptr;
}

void add_snapshot_diff(const SnapshotAnswer& a, size_t i, Json& json) {
  const DeviceMemoryDiff* d = diff_of(a, i);
  if (d == nullptr) return;
  json["diff"] = {{"totals", array_of(d->totals, memory_change_json)},
                  {"by_category", array_of(d->by_category, memory_change_json)},
                  {"by_frame", array_of(d->by_frame, memory_change_json)},
                  {"at_end_by_stack", array_of(d->by_frame_end, memory_change_json)},
                  {"segments_only_before", d->segments_only_before},
                  {"segments_only_after", d->segments_only_after}};
}

std::string signed_bytes(int64_t n) {
  return (n > 0 ? "+" : n < 0 ? "-" : "") + bytes_text(n < 0 ? -n : n);
}

void show_snapshot_diff(const SnapshotAnswer& a, size_t i, SectionSink& sink) {
  const DeviceMemoryDiff* d = diff_of(a, i);
  if (d == nullptr) return;
  sink.head("Against " + a.before_path);
  const auto show = [&](const char* caption, const char* list,
                        const std::vector<MemoryChange>& changes) {
    if (changes.empty()) return;
    sink.table(table_of(
        caption, path_of(i, list), changes, memory_change_json,
        {Column(Kind::text, caption, "name").wide(84),
         Column(Kind::bytes, "before", "before_bytes"), Column(Kind::bytes, "after", "after_bytes"),
         Column(Kind::cell, "change", [](const Json& row) {
           return Json(signed_bytes(row["delta_bytes"].get<int64_t>()));
         })}));
  };
  show("bytes", "diff.totals", d->totals);
  show("at the peak, by category", "diff.by_category", d->by_category);
  show("at the peak, by frame", "diff.by_frame", d->by_frame);
  sink.note(fmt::format("{} at the end in the earlier snapshot alone, {} in this one alone.",
                        counted(d->segments_only_before, "segment is", "segments are"),
                        counted(d->segments_only_after, "is", "are")));
}

constinit const SnapshotSection kSnapshotHead{"peak", "Peak", add_snapshot_head,
                                              show_snapshot_head};
constinit const SnapshotSection kSnapshotHolders{"holders", "Alive at the peak",
                                                 add_snapshot_holders, show_snapshot_holders};
constinit const SnapshotSection kSnapshotGrowth{"growth", "Growth", add_snapshot_growth,
                                                show_snapshot_growth};
constinit const SnapshotSection kSnapshotReserved{
    "reserved", "Reserved memory", add_snapshot_fragmentation, show_snapshot_fragmentation};
constinit const SnapshotSection kSnapshotOoms{"failures", "Failures and pools", add_snapshot_ooms,
                                              show_snapshot_ooms};
constinit const SnapshotSection kSnapshotDiff{"diff", "Comparison", add_snapshot_diff,
                                              show_snapshot_diff};

}  // namespace

std::span<const SnapshotSection* const> snapshot_sections() {
  static constexpr const SnapshotSection* kAll[] = {&kSnapshotHead,   &kSnapshotOoms,
                                                    &kSnapshotDiff,   &kSnapshotHolders,
                                                    &kSnapshotGrowth, &kSnapshotReserved};
  return kAll;
}

Json snapshot_json(const SnapshotAnswer& a) {
  Json settings = Json::array();
  for (const auto& [name, value] : a.report.settings)
    settings.push_back({{"name", name}, {"value", value}});
  Json json = {{"path", a.report.path},           {"file_bytes", a.report.file_bytes},
               {"frames", a.report.frames},       {"stacks", a.report.stacks},
               {"settings", std::move(settings)}, {"notes", a.report.notes}};
  if (!a.before_path.empty()) json["before_path"] = a.before_path;
  Json& devices = json["devices"] = Json::array();
  for (size_t i = 0; i < a.report.devices.size(); ++i) {
    Json& device = devices.emplace_back(Json::object());
    for (const SnapshotSection* section : snapshot_sections()) section->add_json(a, i, device);
  }
  return json;
}

}  // namespace epilogue::trace
