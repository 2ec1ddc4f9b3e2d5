// SPDX-License-Identifier: Apache-2.0
// An explanation for scripts: everything that the text shows, and what it cuts.
#include <algorithm>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "epilogue/trace/explain.h"
#include "epilogue/trace/report.h"
#include "report/curve_json.h"
#include "report/json_numbers.h"

namespace epilogue::trace {
namespace {

using Json = nlohmann::ordered_json;

// Of what changes over time; the page has more.
constexpr size_t kCurveBuckets = 200;

// A list of objects, one per element.
template <class List, class F>
Json array_of(const List& list, F&& make) {
  Json array = Json::array();
  for (const auto& element : list) array.push_back(make(element));
  return array;
}

// The same for lists that grow with the trace: the first `limit` elements. What is cut is counted
// under the list's path.
class Lists {
 public:
  explicit Lists(size_t limit) : limit_(limit) {}

  template <class List, class F>
  Json of(const std::string& path, const List& list, F&& make) {
    if (list.size() > limit_) left_out_[path] = list.size() - limit_;
    return array_of(std::span(list).first(std::min(limit_, list.size())), make);
  }
  Json left_out() && { return std::move(left_out_); }

 private:
  size_t limit_;
  Json left_out_ = Json::object();
};

Json distribution_json(const Distribution& d) {
  return {
      {"count", d.count},          {"min_us", to_us(d.min_ns)}, {"median_us", to_us(d.median_ns)},
      {"p95_us", to_us(d.p95_ns)}, {"max_us", to_us(d.max_ns)}, {"total_us", to_us(d.total_ns)}};
}

Json parts_json(const Verdict& verdict) {
  Json json = Json::object();
  if (verdict.part_pct.empty()) return json;
  for (int i = 0; i < kTimeParts; ++i)
    json[std::string(time_part_name(static_cast<TimePart>(i)))] =
        verdict.part_pct[static_cast<size_t>(i)];
  return json;
}

// Of a run without a device; null of others.
Json host_json(const std::optional<HostTime>& host, Lists& lists) {
  if (!host) return nullptr;
  Json parts = Json::object();
  for (int i = 0; i < kHostParts; ++i) {
    const auto part = static_cast<HostPart>(i);
    parts[std::string(host_part_name(part))] = host->pct(part);
  }
  return {{"verdict", bound_name(host->bound)},
          {"bound_pct", std::move(parts)},
          {"wall_us", to_us(host->wall_ns)},
          {"op_calls", host->op_calls},
          {"ops", lists.of("host.ops", host->ops,
                           [](const HostOp& op) {
                             return Json{{"name", op.name},
                                         {"part", host_part_name(op.part)},
                                         {"count", op.count},
                                         {"self_us", to_us(op.self_ns)},
                                         {"gb_per_s", or_null(op.gb_per_s)}};
                           })},
          {"products", lists.of("host.products", host->products,
                                [](const HostProduct& p) {
                                  return Json{{"op", p.op},
                                              {"shape",
                                               {{"m", p.shape.m},
                                                {"n", p.shape.n},
                                                {"k", p.shape.k},
                                                {"batch", p.shape.batch}}},
                                              {"type", p.type},
                                              {"time", distribution_json(p.time)},
                                              {"gflops", p.gflops},
                                              {"flops_per_byte", p.flops_per_byte},
                                              {"waits_for_memory", p.waits_for_memory},
                                              {"is_dispatch", p.is_dispatch}};
                                })},
          {"python_functions",
           lists.of("host.python_functions", host->functions, [](const HostFunction& f) {
             return Json{{"name", f.name}, {"count", f.count}, {"self_us", to_us(f.self_ns)}};
           })}};
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

Json tiling_json(const std::optional<GemmTiling>& t) {
  if (!t) return nullptr;
  return {{"tiles", t->tiles},
          {"padding_pct", t->padding_pct},
          {"tiles_per_wave", or_null(t->tiles_per_wave)},
          {"waves", or_null(t->waves)},
          {"wave_efficiency_pct", or_null(t->wave_efficiency_pct)}};
}

Json gemm_json(const Gemm& g) {
  Json shape = nullptr;
  if (g.shape)
    shape = {{"m", g.shape->m}, {"n", g.shape->n}, {"k", g.shape->k}, {"batch", g.shape->batch}};
  Json side = nullptr;
  if (g.side) side = *g.side == RooflineSide::memory ? "memory" : "compute";
  return {{"op", g.op},
          {"kernel", g.kernel},
          {"family", g.name.family},
          {"shape", std::move(shape)},
          {"a_type", g.a_type},
          {"b_type", g.b_type},
          {"c_type", g.c_type},
          {"time", distribution_json(g.time)},
          {"reduction_us", g.reduction_ns_per_launch() / kNsPerUs},
          {"rate_time_us", g.rate_time_ns() / kNsPerUs},
          {"flops", or_null(g.flops)},
          {"bytes", or_null(g.bytes)},
          {"intensity_flops_per_byte", or_null(g.intensity)},
          {"tflops", or_null(g.tflops)},
          {"gb_per_s", or_null(g.gb_per_s)},
          {"math_type", g.math_type},
          {"peak_of", g.peak_of},
          {"peak_tflops", or_null(g.peak_tflops)},
          {"peak_pct", or_null(g.peak_pct)},
          {"attainable_tflops", or_null(g.attainable_tflops)},
          {"attainable_pct", or_null(g.attainable_pct)},
          {"roofline_side", std::move(side)},
          {"uses_tensor_cores", or_null(g.uses_tensor_cores)},
          {"tensor_core_note", g.tensor_core_note},
          {"tensor_core_advice", g.tensor_core_advice},
          {"tiling", tiling_json(g.tiling)}};
}

Json roofline_json(const OpRoofline& r) {
  Json side = nullptr;
  if (r.side) side = *r.side == RooflineSide::memory ? "memory" : "compute";
  return {{"kind", roofline_kind_name(r.kind)},
          {"op", r.op},
          {"shapes", r.shapes},
          {"type", r.type},
          {"kernel", r.kernel},
          {"device", r.device},
          {"kernels", r.kernels},
          {"time", distribution_json(r.time)},
          {"flops", or_null(r.flops)},
          {"bytes", r.bytes},
          {"intensity_flops_per_byte", or_null(r.intensity)},
          {"tflops", or_null(r.tflops)},
          {"gb_per_s", or_null(r.gb_per_s)},
          {"peak_of", r.peak_of},
          {"peak_tflops", or_null(r.peak_tflops)},
          {"peak_gb_per_s", or_null(r.peak_gb_per_s)},
          {"attainable_pct", or_null(r.attainable_pct)},
          {"roofline_side", std::move(side)}};
}

Json fusion_json(const Fusion& f) {
  return {{"kind", fusion_kind_name(f.kind)},
          {"ops", f.ops},
          {"kernels", f.kernels},
          {"shape", f.shape},
          {"count", f.count},
          {"kernels_now", f.kernels_now},
          {"kernels_after", f.kernels_after},
          {"time_us", f.time_us},
          {"host_us", f.host_us},
          {"bytes_now", f.bytes_now},
          {"bytes_after", f.bytes_after},
          {"device_saving_us", f.device_saving_us},
          {"host_saving_us", f.host_saving_us},
          {"predicted_saving_us", f.predicted_saving_us},
          {"predicted_cost_us", f.predicted_cost_us},
          {"confidence", confidence_name(f.confidence)},
          {"assumption", f.assumption}};
}

Json fused_json(const FusedKernel& f) {
  const auto bytes = [](int64_t n) { return n < 0 ? Json() : Json(n); };
  return {{"kernel", f.kernel},      {"ops", f.ops},
          {"count", f.count},        {"total_us", to_us(f.total_ns)},
          {"bytes", bytes(f.bytes)}, {"unfused_bytes", bytes(f.unfused_bytes)}};
}

Json health_json(const HealthItem& h) {
  return {{"id", h.id},
          {"severity", severity_name(h.severity)},
          {"count", h.count},
          {"detail", h.detail}};
}

Json chain_json(const DispatchChain& c) {
  return {{"chain", c.text},
          {"op", c.op},
          {"count", c.count},
          {"cpu_us", to_us(c.cpu_ns)},
          {"device_us", to_us(c.device_ns)},
          {"kernels", c.kernels},
          {"ops", c.ops},
          {"no_launch_ops", c.no_launch_ops},
          {"no_launch_us", to_us(c.no_launch_ns)}};
}

Json range_json(const CompiledRange& r) {
  return {{"name", r.name},
          {"count", r.count},
          {"cpu_us", to_us(r.cpu_ns)},
          {"kernels", r.kernels},
          {"device_us", to_us(r.device_ns)}};
}

Json compile_json(const CompileSummary& c, Lists& lists) {
  return {{"regions", lists.of("compile.regions", c.regions, range_json)},
          {"graphs", lists.of("compile.graphs", c.graphs, range_json)},
          {"regions_per_step", or_null(c.regions_per_step)},
          {"frames_per_step", or_null(c.frames_per_step)},
          {"triton", lists.of("compile.triton", c.triton, [](const TritonKernel& k) {
             return Json{{"name", k.name},
                         {"fused_ops", k.fused_ops},
                         {"count", k.count},
                         {"device_us", to_us(k.device_ns)},
                         {"kernel_file", k.file},
                         {"kernel_hash", k.hash},
                         {"kernel_kwargs", k.config},
                         {"num_warps", or_null(k.warps)},
                         {"num_stages", or_null(k.stages)}};
           })}};
}

Json memory_categories_json(const DeviceMemory& m) {
  Json list = Json::array();
  for (size_t c = 0; !m.category_totals.empty() && c < kMemoryCategories; ++c)
    list.push_back({{"category", memory_category_name(static_cast<MemoryCategory>(c))},
                    {"at_peak_bytes", m.category_at_peak[c]},
                    {"peak_bytes", m.category_peak[c]}});
  return list;
}

// `path` is the place of the device in the explanation: "memory.0".
Json memory_json(const DeviceMemory& m, const std::string& path, Lists& lists) {
  return {{"device_type", static_cast<int>(m.type)},
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
           array_of(m.at_peak,
                    [](const MemoryHolder& h) {
                      return Json{{"op", h.op}, {"allocations", h.allocations}, {"bytes", h.bytes}};
                    })},
          {"at_peak_by_python", lists.of(path + ".at_peak_by_python", m.at_peak_by_python,
                                         [](const PythonMemoryHolder& h) {
                                           return Json{{"module", h.module},
                                                       {"function", h.function},
                                                       {"allocations", h.allocations},
                                                       {"bytes", h.bytes}};
                                         })},
          {"over_time", curve_json(m.totals, kCurveBuckets, &MemoryPoint::allocated_bytes)}};
}

Json memory_devices_json(const std::vector<DeviceMemory>& devices, Lists& lists) {
  Json array = Json::array();
  for (const DeviceMemory& m : devices)
    array.push_back(memory_json(m, "memory." + std::to_string(array.size()), lists));
  return array;
}

Json idle_json(const DeviceIdle& idle) {
  Json causes = Json::object();
  for (int i = 0; i < kIdleCauses; ++i) {
    const auto cause = static_cast<IdleCause>(i);
    causes[std::string(idle_cause_name(cause)) + "_us"] = to_us(idle.of(cause));
  }
  return {{"device", idle.device}, {"idle_us", to_us(idle.idle_ns)}, {"causes", std::move(causes)}};
}

Json queue_json(const StreamQueue& q) {
  return {{"device", q.device},
          {"stream", q.stream},
          {"works", q.works},
          {"max_length", q.max_length},
          {"max_us", to_us(q.max_ns)},
          {"mean_length", q.mean_length},
          {"over_time", curve_json(q.points, kCurveBuckets, &QueuePoint::length)}};
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

Json critical_path_json(const std::optional<CriticalPath>& path, Lists& lists) {
  if (!path) return nullptr;
  const auto us = [](const std::optional<int64_t>& ns) { return ns ? Json(to_us(*ns)) : Json(); };
  Json kinds = Json::object();
  for (int i = 0; i < kPathKinds; ++i) {
    const auto kind = static_cast<PathKind>(i);
    kinds[std::string(path_kind_name(kind)) + "_us"] = to_us(path->of(kind));
  }
  return {{"span_us", to_us(path->span_ns())},
          {"kinds", std::move(kinds)},
          {"stream_waits", path->stream_waits},
          {"inferred_stream_waits", path->inferred_waits},
          {"groups", lists.of("critical_path.groups", path->groups, [&](const PathGroup& g) {
             return Json{{"kind", path_kind_name(g.kind)},
                         {"name", g.name},
                         {"count", g.count},
                         {"path_us", to_us(g.path_ns)},
                         {"total_us", to_us(g.total_ns)},
                         {"span_if_half_us", us(g.if_half_ns)},
                         {"span_if_none_us", us(g.if_none_ns)}};
           })}};
}

Json calls_json(const LaunchStats& l, Lists& lists) {
  return {{"launches", l.launches},
          {"graph_launches", l.graph_launches},
          {"graph_kernels", l.graph_kernels},
          {"kernels_shorter_than_launch", l.kernels_shorter_than_launch},
          {"kernels_per_launch", or_null(l.kernels_per_launch)},
          {"launches_per_step", or_null(l.launches_per_step)},
          {"queue_delay", l.queue_delay ? distribution_json(*l.queue_delay) : Json()},
          {"calls", lists.of("launches.calls", l.calls, [](const CallStats& c) {
             Json json = distribution_json(c.time);
             json["name"] = c.name;
             json["starts_work"] = c.starts_work;
             return json;
           })}};
}

Json hot_spots_json(const HotSpots& h, Lists& lists) {
  return {{"syncs", lists.of("hot_spots.syncs", h.syncs,
                             [](const SyncSpot& s) {
                               return Json{{"call", s.call},
                                           {"where", s.where},
                                           {"is_implied", s.is_implied},
                                           {"time", distribution_json(s.time)}};
                             })},
          {"copies", lists.of("hot_spots.copies", h.copies,
                              [](const CopySpot& c) {
                                return Json{{"name", c.name},
                                            {"where", c.where},
                                            {"is_pageable", c.is_pageable},
                                            {"bytes", or_null(c.bytes)},
                                            {"gb_per_s", or_null(c.bandwidth_gb_s)},
                                            {"time", distribution_json(c.time)}};
                              })},
          {"loaders", lists.of("hot_spots.loaders", h.loaders, [](const LoaderSpot& l) {
             return Json{{"name", l.name}, {"time", distribution_json(l.time)}};
           })}};
}

Json module_json(const ModuleTime& m) {
  return {{"path", m.path},
          {"count", m.count},
          {"cpu_us", to_us(m.cpu_ns)},
          {"device_us", to_us(m.device_ns)},
          {"kernels", m.kernels}};
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

}  // namespace

Json finding_json(const Finding& f) {
  return {{"id", f.id},
          {"severity", severity_name(f.severity)},
          {"title", f.title},
          {"evidence", f.evidence},
          {"saving_us", or_null(f.saving_us)},
          {"cost_us", or_null(f.cost_us)},
          {"remains_us", or_null(f.remains_us())},
          {"confidence", f.confidence ? Json(confidence_name(*f.confidence)) : Json()},
          {"action", f.action}};
}

ExplanationJson explanation_json(const Explanation& e, size_t max_rows) {
  Lists lists(max_rows);
  const bool has_steps = !e.steps.empty();
  Json divided = lists.of(has_steps ? "steps" : "regions", e.verdicts.regions, region_json);
  Json steps = has_steps ? std::move(divided) : Json::array();
  Json regions = has_steps ? Json::array() : std::move(divided);
  Json json = {
      {"schema_version", kJsonSchemaVersion},
      {"path", e.path},
      {"device", e.device},
      {"verdict", bound_name(e.verdicts.whole.bound)},
      {"bound_pct", parts_json(e.verdicts.whole)},
      {"judged_pct", or_null(e.verdicts.whole.judged_pct)},
      {"thresholds",
       {{"device_bound_pct", kDeviceBoundPct}, {"compute_bound_pct", kComputeBoundPct}}},
      {"profiler_ns_per_op", e.verdicts.profiler.ns_per_op},
      {"profiler_us", to_us(e.verdicts.profiler.total_ns)},
      {"events", e.events},
      {"skipped_events", e.skipped_events},
      {"ops", e.ops},
      {"kernels", e.kernels},
      {"distinct_kernels", e.distinct_kernels},
      {"kernels_without_launch", e.kernels_without_launch},
      {"launches_without_kernel", e.launches_without_kernel},
      {"steps", std::move(steps)},
      {"regions", std::move(regions)},
      {"span_us", to_us(e.timeline.span_ns())},
      {"gpu_busy_us",
       e.timeline.devices.empty() ? Json() : Json(to_us(e.timeline.devices.front().busy_ns))},
      {"gpu_busy_pct", or_null(e.timeline.busy_pct())},
      {"host_verdict", e.host ? Json(bound_name(e.host->bound)) : Json()},
      {"host", host_json(e.host, lists)},
      {"idle", array_of(e.idle, idle_json)},
      {"idle_gaps", lists.of("idle_gaps", e.gaps, gap_json)},
      {"critical_path", critical_path_json(e.critical_path, lists)},
      {"launches", calls_json(e.launches, lists)},
      {"queues", lists.of("queues", e.queues, queue_json)},
      {"device_ranges", lists.of("device_ranges", e.device_ranges, device_range_json)},
      {"gemms", lists.of("gemms", e.gemms.gemms, gemm_json)},
      {"gemm_comparisons", lists.of("gemm_comparisons", e.gemms.comparisons,
                                    [](const GemmComparison& c) { return Json(c.sentence); })},
      {"rooflines", lists.of("rooflines", e.rooflines, roofline_json)},
      {"fusions", lists.of("fusions", e.fusions.fusions, fusion_json)},
      {"fused_kernels", lists.of("fused_kernels", e.fused, fused_json)},
      {"fusion_bandwidth_gb_per_s", e.fusions.bandwidth_gb_per_s},
      {"findings", array_of(e.findings, finding_json)},
      {"health", array_of(e.health, health_json)},
      {"dispatch_chains", lists.of("dispatch_chains", e.chains.chains, chain_json)},
      {"hot_spots", hot_spots_json(e.hot_spots, lists)},
      {"compile", compile_json(e.compile, lists)},
      {"occupancy", lists.of("occupancy", e.occupancies, occupancy_json)},
      {"memory", memory_devices_json(e.memory, lists)},
      {"collectives", collectives_json(e.collectives)},
      {"modules", lists.of("modules", e.modules, module_json)}};
  return {std::move(json), std::move(lists).left_out()};
}

std::string explain_json(const Explanation& e) {
  return dump_json(explanation_json(e, std::numeric_limits<size_t>::max()).json);
}

}  // namespace epilogue::trace
