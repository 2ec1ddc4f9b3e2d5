// SPDX-License-Identifier: Apache-2.0
// torch.compile, occupancy, modules and collectives of this rank.
#include <fmt/format.h>

#include "base/units.h"
#include "explain/sections/section.h"

namespace epilogue::trace {
namespace {

Json range_json(const CompiledRange& r) {
  return {{"name", r.name},
          {"count", r.count},
          {"cpu_us", to_us(r.cpu_ns)},
          {"kernels", r.kernels},
          {"device_us", to_us(r.device_ns)}};
}

Json triton_json(const TritonKernel& k) {
  return {{"name", k.name},
          {"fused_ops", k.fused_ops},
          {"count", k.count},
          {"device_us", to_us(k.device_ns)},
          {"kernel_file", k.file},
          {"kernel_files", k.files},
          {"kernel_hash", k.hash},
          {"kernel_kwargs", k.config},
          {"num_warps", or_null(k.warps)},
          {"num_stages", or_null(k.stages)}};
}

void add_compile_json(const Explanation& e, Json& json, JsonLists& lists) {
  const CompileSummary& c = e.compile;
  json["compile"] = {{"regions", lists.of("compile.regions", c.regions, range_json)},
                     {"graphs", lists.of("compile.graphs", c.graphs, range_json)},
                     {"regions_per_step", or_null(c.regions_per_step)},
                     {"frames_per_step", or_null(c.frames_per_step)},
                     {"graph_breaks_per_step", or_null(c.graph_breaks_per_step)},
                     {"triton", lists.of("compile.triton", c.triton, triton_json)}};
}

std::vector<Column> range_columns() {
  return {Column(Kind::text, "name", "name").wide(70), Column(Kind::count, "count", "count"),
          Column(Kind::us, "host", "cpu_us"), Column(Kind::count, "kernels", "kernels"),
          Column(Kind::us, "device", "device_us")};
}

// Text has regions, graphs and kernels in one table, and the sources below.
void show_compile_text(const CompileSummary& c, SectionSink& sink) {
  std::vector<Json> ranges;
  for (const auto* list : {&c.regions, &c.graphs})
    for (const CompiledRange& r : *list) ranges.push_back(range_json(r));
  std::vector<Json> sources;
  for (const TritonKernel& k : c.triton) {
    ranges.push_back({{"name", k.name},
                      {"count", k.count},
                      {"cpu_us", nullptr},
                      {"kernels", k.count},
                      {"device_us", to_us(k.device_ns)}});
    if (k.file.empty()) continue;
    std::string config = k.config.empty() ? "-" : k.config;
    if (k.warps) config += fmt::format(", {}", counted(*k.warps, "warp", "warps"));
    sources.push_back({{"name", k.name}, {"config", std::move(config)}, {"source", k.file}});
  }
  const auto same = [](const Json& row) { return row; };
  sink.table(table_of("", "", ranges, same, range_columns()));
  if (sources.empty()) return;
  sink.table(table_of(
      "", "", sources, same,
      {Column(Kind::text, "Triton kernel", "name"), Column(Kind::text, "config", "config").wide(40),
       Column(Kind::text, "source", "source").wide(90)}));
}

void show_compile(const Explanation& e, SectionSink& sink) {
  const CompileSummary& c = e.compile;
  if (!c.is_compiled()) return;
  sink.head("Compiled regions");
  show_compile_text(c, sink);
  sink.page_table(table_of("Compiled regions", "compile.regions", c.regions, range_json,
                           range_columns(), "device_us"));
  sink.page_table(table_of("Compiled graphs", "compile.graphs", c.graphs, range_json,
                           range_columns(), "device_us"));
  const bool has_files =
      std::ranges::any_of(c.triton, [](const auto& k) { return !k.file.empty(); });
  sink.page_table(
      table_of("Triton kernels", "compile.triton", c.triton, triton_json,
               {Column(Kind::kernel, "name", "name"), Column(Kind::list, "fuses", "fused_ops"),
                Column(Kind::count, "count", "count"), Column(Kind::us, "device", "device_us"),
                Column(Kind::text, "source", "kernel_file").when(has_files),
                Column(Kind::text, "config", "kernel_kwargs").when(has_files),
                Column(Kind::count, "warps", "num_warps").when(has_files),
                Column(Kind::count, "stages", "num_stages").when(has_files)},
               "device_us"));
}

Json occupancy_json(const KernelOccupancy& k) {
  return {{"kernel", k.kernel},
          {"count", k.count},
          {"total_us", to_us(k.total_ns)},
          {"recorded_pct", or_null(k.recorded_pct)},
          {"theoretical_pct", k.computed ? Json(k.computed->theoretical_pct) : Json()},
          {"limit", k.computed ? Json(occupancy_limit_name(k.computed->limit)) : Json()},
          {"is_recorded_zero_artefact", k.is_recorded_zero_artefact},
          {"note", k.note}};
}

void add_occupancy_json(const Explanation& e, Json& json, JsonLists& lists) {
  json["occupancy"] = lists.of("occupancy", e.occupancies, occupancy_json);
}

void show_occupancy(const Explanation& e, SectionSink& sink) {
  if (e.occupancies.empty()) return;
  sink.head("Occupancy", Where::page);
  sink.page_table(table_of(
      "Occupancy by kernel", "occupancy", e.occupancies, occupancy_json,
      {Column(Kind::kernel, "kernel", "kernel"), Column(Kind::count, "count", "count"),
       Column(Kind::us, "total", "total_us"), Column(Kind::percent, "recorded", "recorded_pct"),
       Column(Kind::percent, "computed", "theoretical_pct"),
       Column(Kind::text, "limited by", "limit"), Column(Kind::text, "note", "note")},
      "total_us"));
}

Json module_json(const ModuleTime& m) {
  return {{"path", m.path},
          {"count", m.count},
          {"cpu_us", to_us(m.cpu_ns)},
          {"device_us", to_us(m.device_ns)},
          {"kernels", m.kernels}};
}

void add_modules_json(const Explanation& e, Json& json, JsonLists& lists) {
  json["modules"] = lists.of("modules", e.modules, module_json);
}

// Text has the last part of the path, indented by its depth.
void show_modules(const Explanation& e, SectionSink& sink) {
  if (e.modules.empty()) return;
  sink.head("Modules");
  SectionTable table =
      table_of("Time by nn.Module", "modules", e.modules, module_json,
               {Column(Kind::text, "module", "path").page(),
                Column(Kind::text, "module", "name").text().wide(70),
                Column(Kind::count, "count", "count"), Column(Kind::us, "host", "cpu_us"),
                Column(Kind::us, "device", "device_us"), Column(Kind::count, "kernels", "kernels")},
               "device_us");
  table.row = [&](size_t i) {
    const ModuleTime& m = e.modules[i];
    Json json = module_json(m);
    json["name"] = std::string(static_cast<size_t>(m.depth) * 2, ' ') + m.name;
    return json;
  };
  sink.table(table);
}

Json collective_json(const CollectiveStats& c) {
  return {{"name", c.name},
          {"count", c.time.count},
          {"bytes", or_null(c.bytes)},
          {"total_us", to_us(c.time.total_ns)},
          {"overlap_us", to_us(c.overlap_ns)},
          {"exposed_us", to_us(c.exposed_ns)},
          {"sized_count", c.rates ? c.rates->count : 0},
          {"algbw_gb_per_s", c.rates ? Json(c.rates->algbw_gb_s) : Json()},
          {"busbw_gb_per_s", c.rates ? or_null(c.rates->busbw_gb_s) : Json()}};
}

void add_collectives_json(const Explanation& e, Json& json, JsonLists&) {
  json["collectives"] = collectives_json(e.collectives);
}

void show_collectives(const Explanation& e, SectionSink& sink) {
  const std::vector<CollectiveStats>& kinds = e.collectives.kinds;
  if (kinds.empty()) return;
  sink.head("Collectives");
  sink.table(
      table_of("Collectives of this rank", "collectives.kinds", kinds, collective_json,
               {Column(Kind::text, "name", "name"), Column(Kind::count, "count", "count"),
                Column(Kind::bytes, "bytes", "bytes"), Column(Kind::us, "time", "total_us"),
                Column(Kind::us, "hidden", "overlap_us"), Column(Kind::us, "exposed", "exposed_us"),
                Column(Kind::bandwidth, "algbw", "algbw_gb_per_s"),
                Column(Kind::bandwidth, "busbw", "busbw_gb_per_s")},
               "total_us"));
  sink.note(bandwidth_note(
      std::ranges::any_of(kinds, [](const CollectiveStats& c) { return c.rates.has_value(); }),
      "by the kernels' time, in which this rank may wait for others"));
}

}  // namespace

Json collectives_json(const RankCollectives& rank) {
  return {{"rank", rank.rank},
          {"communication_us", to_us(rank.communication_ns)},
          {"overlap_us", to_us(rank.overlap_ns)},
          {"kinds", array_of(rank.kinds, collective_json)}};
}

std::string bandwidth_note(bool has_sizes, std::string_view time) {
  if (!has_sizes)
    return "The sizes of these collectives are not recorded: no bandwidth can be told.";
  return fmt::format(
      "algbw is the size by the time and busbw what each link carried, as nccl-tests defines them, "
      "{}. \"-\": the size, or for busbw the number of ranks, is not recorded.",
      time);
}

extern const Section kCompile, kOccupancy, kModules, kCollectives;
constinit const Section kCompile{"compile", "torch.compile", add_compile_json, show_compile};
constinit const Section kOccupancy{"occupancy", "Occupancy", add_occupancy_json, show_occupancy};
constinit const Section kModules{"modules", "Modules", add_modules_json, show_modules};
constinit const Section kCollectives{"collectives", "Collectives", add_collectives_json,
                                     show_collectives};

}  // namespace epilogue::trace
