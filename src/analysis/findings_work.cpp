// SPDX-License-Identifier: Apache-2.0
// Findings about the work itself: fusions, matrix products, compiled regions, occupancy, memory.
#include <fmt/format.h>

#include <algorithm>

#include "analysis/findings.h"

namespace epilogue::trace {
namespace {

constexpr size_t kFusionsShown = 5;
constexpr size_t kGemmsShown = 3;
constexpr double kPoorWavePct = 75;  // below it, over a quarter of the device idles in whole waves
constexpr double kMaxOpsShown = 8;

std::string duration_us(double us) { return format_duration_ns(us * kNsPerUs); }

std::string ops_text(const Fusion& fusion) {
  std::string text;
  for (size_t i = 0; i < fusion.ops.size(); ++i) {
    if (static_cast<double>(i) >= kMaxOpsShown)
      return text + fmt::format(" and {} more", fusion.ops.size() - i);
    text += (i > 0 ? " + " : "") + fusion.ops[i];
  }
  return text;
}

std::string_view advice(FusionKind kind) {
  switch (kind) {
    case FusionKind::kPointwiseChain: return "one kernel could run";
    case FusionKind::kGemmEpilogue: return "the GEMM's write-back could take over";
    case FusionKind::kMergedGemms: return "one GEMM could compute";
    case FusionKind::kRowChain: return "compile() could run as one kernel";
  }
  return "";
}

Finding fusion_finding(const Fusion& fusion) {
  Finding f;
  f.id = "fusion";
  f.severity = Severity::kInfo;
  f.title = fmt::format("{} {}", advice(fusion.kind), ops_text(fusion));
  std::string line = fmt::format("{} times, {} in all", fusion.count, duration_us(fusion.time_us));
  if (fusion.kernels_now > 0)
    line += fmt::format(", {} -> {} kernels", fusion.kernels_now, fusion.kernels_after);
  if (!fusion.shape.empty()) line += ", result " + fusion.shape;
  f.evidence.push_back(std::move(line));
  if (fusion.bytes_now > 0)
    f.evidence.push_back(fmt::format("{} of {} moved would not be",
                                     format_bytes(fusion.bytes_now - fusion.bytes_after),
                                     format_bytes(fusion.bytes_now)));
  f.evidence.push_back(fmt::format("confidence {}; assumes that {}",
                                   confidence_name(fusion.confidence), fusion.assumption));
  f.saving_us = fusion.predicted_saving_us;
  return f;
}

std::string shape_text(const Gemm& g) {
  if (!g.shape) return "of unknown shape";
  const std::string batch =
      g.shape->batch > 1 ? fmt::format("{} x ", g.shape->batch) : std::string();
  return fmt::format("{}{} x {} x {}", batch, g.shape->m, g.shape->n, g.shape->k);
}

Finding slow_gemm(std::string id, std::string title, const Gemm& g) {
  Finding f;
  f.id = std::move(id);
  f.severity = Severity::kWarning;
  f.title = std::move(title);
  std::string line = fmt::format("{} {}: {} executions, {}", g.op.empty() ? g.kernel : g.op,
                                 shape_text(g), g.time.count, format_duration_ns(g.time.total_ns));
  if (g.tflops) line += fmt::format(", {:.1f} TFLOP/s", *g.tflops);
  if (g.peak_pct) line += fmt::format(" ({:.0f} % of the peak for {})", *g.peak_pct, g.math_type);
  f.evidence.push_back(std::move(line));
  return f;
}

}  // namespace

void find_fusion_advice(const Explanation& e, std::vector<Finding>& out) {
  size_t shown = 0;
  for (const Fusion& fusion : e.fusions.fusions) {
    if (shown == kFusionsShown || fusion.predicted_saving_us < kMinShare * wall_us(e)) break;
    out.push_back(fusion_finding(fusion));
    ++shown;
  }
}

void find_gemm_advice(const Explanation& e, std::vector<Finding>& out) {
  size_t shown = 0;
  for (const Gemm& g : e.gemms.gemms) {
    if (shown == kGemmsShown) return;
    if (to_us(g.time.total_ns) < kMinShare * wall_us(e)) return;
    if (g.uses_tensor_cores == false && !g.tensor_core_note.empty()) {
      Finding f = slow_gemm("no-tensor-cores", "a matrix product does not use tensor cores", g);
      f.evidence.push_back(g.tensor_core_note);
      out.push_back(std::move(f));
      ++shown;
    } else if (g.tiling && g.tiling->wave_efficiency_pct &&
               *g.tiling->wave_efficiency_pct<kPoorWavePct&& * g.tiling->waves> 1) {
      Finding f = slow_gemm("wave-quantisation", "a matrix product ends in a half-empty wave", g);
      f.evidence.push_back(fmt::format(
          "{} tiles in waves of {}: {:.2f} waves take the time of {}; the last is {:.0f} % full",
          g.tiling->tiles, *g.tiling->tiles_per_wave, *g.tiling->waves,
          static_cast<int64_t>(*g.tiling->waves) + 1, g.tiling->last_wave_fill_pct.value_or(0)));
      out.push_back(std::move(f));
      ++shown;
    }
  }
}

void find_graph_breaks(const Explanation& e, std::vector<Finding>& out) {
  if (!e.compile.regions_per_step || *e.compile.regions_per_step <= 1) return;
  Finding f;
  f.id = "graph-breaks";
  f.title = fmt::format("{:.1f} compiled regions run per step: the graph breaks",
                        *e.compile.regions_per_step);
  constexpr size_t kShown = 4;
  for (size_t i = 0; i < std::min(kShown, e.compile.regions.size()); ++i) {
    const CompiledRange& r = e.compile.regions[i];
    f.evidence.push_back(fmt::format("{}: {} times, {} on the host, {} kernels", r.name, r.count,
                                     format_duration_ns(r.cpu_ns), r.kernels));
  }
  f.evidence.emplace_back("torch._dynamo.explain(model)(input) names the causes");
  out.push_back(std::move(f));
}

void find_occupancy_artefact(const Explanation& e, std::vector<Finding>& out) {
  int64_t kernels = 0;
  const KernelOccupancy* longest = nullptr;
  for (const KernelOccupancy& k : e.occupancies) {
    if (!k.is_recorded_zero_artefact) continue;
    kernels += k.count;
    if (longest == nullptr) longest = &k;
  }
  if (longest == nullptr) return;
  Finding f;
  f.id = "occupancy-artefact";
  f.title = fmt::format("{} kernels are recorded with 0 % occupancy, which is wrong", kernels);
  f.evidence.push_back(longest->kernel + ": " + longest->note);
  out.push_back(std::move(f));
}

void find_memory_peak(const Explanation& e, std::vector<Finding>& out) {
  for (const DeviceMemory& m : e.memory) {
    if (m.type == DeviceType::kCpu && e.memory.size() > 1) continue;
    Finding f;
    f.id = "memory-peak";
    f.title = fmt::format("memory peaks at {}{}", format_bytes(static_cast<double>(m.peak_bytes)),
                          m.is_relative ? " above the level at the start" : "");
    constexpr size_t kShown = 3;
    for (size_t i = 0; i < std::min(kShown, m.at_peak.size()); ++i)
      f.evidence.push_back(fmt::format(
          "{} holds {} in {} allocations",
          m.at_peak[i].op.empty() ? "what no op allocated" : m.at_peak[i].op,
          format_bytes(static_cast<double>(m.at_peak[i].bytes)), m.at_peak[i].allocations));
    if (m.out_of_memory > 0) {
      f.severity = Severity::kError;
      f.evidence.push_back(fmt::format("{} allocations failed", m.out_of_memory));
    }
    out.push_back(std::move(f));
  }
}

}  // namespace epilogue::trace
