// SPDX-License-Identifier: Apache-2.0
// For scripts: launches, queues, ranges of the device, torch.compile, occupancy and memory.
#include <string>
#include <vector>

#include "explain/render/curve_json.h"
#include "explain/render/explain_json_parts.h"
#include "explain/render/json_numbers.h"

namespace epilogue::trace {
namespace {

using ResourceJson = nlohmann::ordered_json;

// Of what changes over time; the page has more.
constexpr size_t kCurveBuckets = 200;

ResourceJson range_json(const CompiledRange& r) {
  return {{"name", r.name},
          {"count", r.count},
          {"cpu_us", to_us(r.cpu_ns)},
          {"kernels", r.kernels},
          {"device_us", to_us(r.device_ns)}};
}

ResourceJson memory_categories_json(const DeviceMemory& m) {
  ResourceJson list = ResourceJson::array();
  for (size_t c = 0; !m.category_totals.empty() && c < kMemoryCategories; ++c)
    list.push_back({{"category", memory_category_name(static_cast<MemoryCategory>(c))},
                    {"at_peak_bytes", m.category_at_peak[c]},
                    {"peak_bytes", m.category_peak[c]}});
  return list;
}

// `path` is the place of the device in the explanation: "memory.0".
ResourceJson device_memory_json(const DeviceMemory& m, const std::string& path, JsonLists& lists) {
  return {
      {"device_type", static_cast<int>(m.type)},
      {"device", m.device},
      {"allocations", m.allocations},
      {"frees", m.frees},
      {"peak_bytes", m.peak_bytes},
      {"peak_us", to_us(m.peak_ns)},
      {"peak_reserved_bytes", m.peak_reserved_bytes},
      {"before_window_bytes", or_null(m.before_window_bytes)},
      {"is_relative", m.is_relative},
      {"out_of_memory", m.out_of_memory},
      {"categories", memory_categories_json(m)},
      {"at_peak",
       array_of(
           m.at_peak,
           [](const MemoryHolder& h) {
             return ResourceJson{{"op", h.op}, {"allocations", h.allocations}, {"bytes", h.bytes}};
           })},
      {"at_peak_by_python", lists.of(path + ".at_peak_by_python", m.at_peak_by_python,
                                     [](const PythonMemoryHolder& h) {
                                       return ResourceJson{{"module", h.module},
                                                           {"function", h.function},
                                                           {"allocations", h.allocations},
                                                           {"bytes", h.bytes}};
                                     })},
      {"over_time", curve_json(m.totals, kCurveBuckets, &MemoryPoint::allocated_bytes)}};
}

ResourceJson queue_json(const StreamQueue& q) {
  return {{"device", q.device},
          {"stream", q.stream},
          {"works", q.works},
          {"max_length", q.max_length},
          {"max_us", to_us(q.max_ns)},
          {"mean_length", q.mean_length},
          {"over_time", curve_json(q.points, kCurveBuckets, &QueuePoint::length)}};
}

ResourceJson device_range_json(const DeviceRange& r) {
  return {{"name", r.name},
          {"device", r.device},
          {"count", r.count},
          {"total_us", to_us(r.total_ns)},
          {"max_us", to_us(r.max_ns)},
          {"busy_us", to_us(r.busy_ns)},
          {"idle_us", to_us(r.idle_ns)}};
}

ResourceJson occupancy_json(const KernelOccupancy& k) {
  return {
      {"kernel", k.kernel},
      {"count", k.count},
      {"total_us", to_us(k.total_ns)},
      {"recorded_pct", or_null(k.recorded_pct)},
      {"theoretical_pct", k.computed ? ResourceJson(k.computed->theoretical_pct) : ResourceJson()},
      {"limit",
       k.computed ? ResourceJson(occupancy_limit_name(k.computed->limit)) : ResourceJson()},
      {"is_recorded_zero_artefact", k.is_recorded_zero_artefact},
      {"note", k.note}};
}

}  // namespace

ResourceJson distribution_json(const Distribution& d) {
  return {
      {"count", d.count},          {"min_us", to_us(d.min_ns)}, {"median_us", to_us(d.median_ns)},
      {"p95_us", to_us(d.p95_ns)}, {"max_us", to_us(d.max_ns)}, {"total_us", to_us(d.total_ns)}};
}

ResourceJson launches_json(const LaunchStats& l, JsonLists& lists) {
  return {{"launches", l.launches},
          {"graph_launches", l.graph_launches},
          {"graph_kernels", l.graph_kernels},
          {"kernels_shorter_than_launch", l.kernels_shorter_than_launch},
          {"kernels_per_launch", or_null(l.kernels_per_launch)},
          {"launches_per_step", or_null(l.launches_per_step)},
          {"queue_delay", l.queue_delay ? distribution_json(*l.queue_delay) : ResourceJson()},
          {"calls", lists.of("launches.calls", l.calls, [](const CallStats& c) {
             ResourceJson json = distribution_json(c.time);
             json["name"] = c.name;
             json["starts_work"] = c.starts_work;
             return json;
           })}};
}

ResourceJson hot_spots_json(const HotSpots& h, JsonLists& lists) {
  return {{"syncs", lists.of("hot_spots.syncs", h.syncs,
                             [](const SyncSpot& s) {
                               return ResourceJson{{"call", s.call},
                                                   {"where", s.where},
                                                   {"is_implied", s.is_implied},
                                                   {"time", distribution_json(s.time)}};
                             })},
          {"copies", lists.of("hot_spots.copies", h.copies,
                              [](const CopySpot& c) {
                                return ResourceJson{{"name", c.name},
                                                    {"where", c.where},
                                                    {"is_pageable", c.is_pageable},
                                                    {"bytes", or_null(c.bytes)},
                                                    {"gb_per_s", or_null(c.bandwidth_gb_s)},
                                                    {"time", distribution_json(c.time)}};
                              })},
          {"loaders", lists.of("hot_spots.loaders", h.loaders, [](const LoaderSpot& l) {
             return ResourceJson{{"name", l.name}, {"time", distribution_json(l.time)}};
           })}};
}

ResourceJson queues_json(const std::vector<StreamQueue>& queues, JsonLists& lists) {
  return lists.of("queues", queues, queue_json);
}

ResourceJson device_ranges_json(const std::vector<DeviceRange>& ranges, JsonLists& lists) {
  return lists.of("device_ranges", ranges, device_range_json);
}

ResourceJson compile_json(const CompileSummary& c, JsonLists& lists) {
  return {{"regions", lists.of("compile.regions", c.regions, range_json)},
          {"graphs", lists.of("compile.graphs", c.graphs, range_json)},
          {"regions_per_step", or_null(c.regions_per_step)},
          {"frames_per_step", or_null(c.frames_per_step)},
          {"triton", lists.of("compile.triton", c.triton, [](const TritonKernel& k) {
             return ResourceJson{{"name", k.name},
                                 {"fused_ops", k.fused_ops},
                                 {"count", k.count},
                                 {"device_us", to_us(k.device_ns)},
                                 {"kernel_file", k.file},
                                 {"kernel_files", k.files},
                                 {"kernel_hash", k.hash},
                                 {"kernel_kwargs", k.config},
                                 {"num_warps", or_null(k.warps)},
                                 {"num_stages", or_null(k.stages)}};
           })}};
}

ResourceJson occupancies_json(const std::vector<KernelOccupancy>& kernels, JsonLists& lists) {
  return lists.of("occupancy", kernels, occupancy_json);
}

ResourceJson memory_json(const std::vector<DeviceMemory>& devices, JsonLists& lists) {
  ResourceJson array = ResourceJson::array();
  for (const DeviceMemory& m : devices)
    array.push_back(device_memory_json(m, "memory." + std::to_string(array.size()), lists));
  return array;
}

}  // namespace epilogue::trace
