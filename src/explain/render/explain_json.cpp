// SPDX-License-Identifier: Apache-2.0
// An explanation for scripts: everything that the text shows, and what it cuts.
#include <limits>
#include <string>
#include <vector>

#include "epilogue/trace/explain.h"
#include "epilogue/trace/report.h"
#include "explain/render/explain_json_parts.h"
#include "explain/render/json_numbers.h"

namespace epilogue::trace {
namespace {

using Json = nlohmann::ordered_json;

Json parts_json(const Verdict& verdict) {
  Json json = Json::object();
  if (verdict.part_pct.empty()) return json;
  for (int i = 0; i < kTimeParts; ++i)
    json[std::string(time_part_name(static_cast<TimePart>(i)))] =
        verdict.part_pct[static_cast<size_t>(i)];
  return json;
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

Json idle_json(const DeviceIdle& idle) {
  Json causes = Json::object();
  for (int i = 0; i < kIdleCauses; ++i) {
    const auto cause = static_cast<IdleCause>(i);
    causes[std::string(idle_cause_name(cause)) + "_us"] = to_us(idle.of(cause));
  }
  return {{"device", idle.device}, {"idle_us", to_us(idle.idle_ns)}, {"causes", std::move(causes)}};
}

Json module_json(const ModuleTime& m) {
  return {{"path", m.path},
          {"count", m.count},
          {"cpu_us", to_us(m.cpu_ns)},
          {"device_us", to_us(m.device_ns)},
          {"kernels", m.kernels}};
}

Json source_json(const KernelSource& s) {
  return {{"kernel", s.kernel},
          {"kernel_file", s.file},
          {"kernel_files", s.files},
          {"fused_ops", s.fused_ops}};
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
          {"action", f.action},
          {"remedy", f.action},
          {"where", f.where ? Json(finding_place_name(*f.where)) : Json()},
          {"sources", array_of(f.sources, source_json)}};
}

ExplanationJson explanation_json(const Explanation& e, size_t max_rows) {
  JsonLists lists(max_rows);
  const bool has_steps = !e.steps.empty();
  Json steps = Json::array();
  Json regions = Json::array();
  (has_steps ? steps : regions) =
      lists.of(has_steps ? "steps" : "regions", e.verdicts.regions, region_json);
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
      {"top_ops", top_ops_json(e.host, lists)},
      {"products", products_json(e, lists)},
      {"idle", array_of(e.idle, idle_json)},
      {"idle_gaps", lists.of("idle_gaps", e.gaps, gap_json)},
      {"critical_path", critical_path_json(e.critical_path, lists)},
      {"launches", launches_json(e.launches, lists)},
      {"queues", queues_json(e.queues, lists)},
      {"device_ranges", device_ranges_json(e.device_ranges, lists)},
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
      {"occupancy", occupancies_json(e.occupancies, lists)},
      {"memory", memory_json(e.memory, lists)},
      {"collectives", collectives_json(e.collectives)},
      {"modules", lists.of("modules", e.modules, module_json)}};
  return {std::move(json), std::move(lists).left_out()};
}

std::string explain_json(const Explanation& e) {
  return dump_json(explanation_json(e, std::numeric_limits<size_t>::max()).json);
}

}  // namespace epilogue::trace
