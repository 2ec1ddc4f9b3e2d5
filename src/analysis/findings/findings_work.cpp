// SPDX-License-Identifier: Apache-2.0
// Findings about the work itself: fusions, matrix products, compiled regions, occupancy, memory.
#include <fmt/format.h>

#include <algorithm>

#include "analysis/findings/findings.h"

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
  std::string line = fmt::format("{}, {} in all", counted(fusion.count, "time", "times"),
                                 duration_us(fusion.time_us));
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

// "aten::mm 64 x 64 x 64"
std::string product_text(const Gemm& g) {
  const std::string& name = g.op.empty() ? g.kernel : g.op;
  if (!g.shape) return name + " of unknown shape";
  const std::string batch =
      g.shape->batch > 1 ? fmt::format("{} x ", g.shape->batch) : std::string();
  return fmt::format("{} {}{} x {} x {}", name, batch, g.shape->m, g.shape->n, g.shape->k);
}

std::string gemm_line(const Gemm& g) {
  std::string line =
      fmt::format("{}: {}, {}", product_text(g), counted(g.time.count, "execution", "executions"),
                  duration(g.time.total_ns));
  if (g.tflops) line += fmt::format(", {:.1f} TFLOP/s", *g.tflops);
  if (g.peak_pct) line += fmt::format(" ({:.0f} % of the peak for {})", *g.peak_pct, g.math_type);
  return line;
}

// Products that miss the tensor cores for one reason, by time.
struct TensorCoreMisses {
  std::vector<const Gemm*> gemms;
  int64_t total_ns = 0;
};

Finding tensor_core_finding(const TensorCoreMisses& misses) {
  const Gemm& first = *misses.gemms.front();
  Finding f;
  f.id = "no-tensor-cores";
  f.severity = Severity::kWarning;
  f.title =
      misses.gemms.size() == 1
          ? fmt::format("{} does not use tensor cores: {}", product_text(first),
                        first.tensor_core_note)
          : fmt::format("{} matrix products, {} in all, do not use tensor cores: {}",
                        misses.gemms.size(), duration(misses.total_ns), first.tensor_core_note);
  const size_t shown = std::min(kGemmsShown, misses.gemms.size());
  for (size_t i = 0; i < shown; ++i) f.evidence.push_back(gemm_line(*misses.gemms[i]));
  if (shown < misses.gemms.size())
    f.evidence.push_back(fmt::format("and {} more", misses.gemms.size() - shown));
  f.evidence.push_back(first.tensor_core_advice);
  return f;
}

Finding wave_finding(const Gemm& g) {
  Finding f;
  f.id = "wave-quantisation";
  f.severity = Severity::kWarning;
  f.title = product_text(g) + " ends in a half-empty wave";
  f.evidence.push_back(gemm_line(g));
  f.evidence.push_back(fmt::format(
      "{} tiles in waves of {}: {:.2f} waves take the time of {}; the last is {:.0f} % full",
      g.tiling->tiles, *g.tiling->tiles_per_wave, *g.tiling->waves,
      static_cast<int64_t>(*g.tiling->waves) + 1, g.tiling->last_wave_fill_pct.value_or(0)));
  return f;
}

// Products that nothing is known to bring to the tensor cores are no finding.
void find_tensor_core_misses(const Explanation& e, std::vector<Finding>& out) {
  std::vector<TensorCoreMisses> groups;
  for (const Gemm& g : e.gemms.gemms) {
    if (g.uses_tensor_cores != false || g.tensor_core_advice.empty()) continue;
    auto group = std::find_if(groups.begin(), groups.end(), [&](const TensorCoreMisses& other) {
      return other.gemms.front()->tensor_core_note == g.tensor_core_note;
    });
    if (group == groups.end()) group = groups.insert(groups.end(), TensorCoreMisses());
    group->gemms.push_back(&g);
    group->total_ns += g.time.total_ns;
  }
  for (const TensorCoreMisses& group : groups)
    if (to_us(group.total_ns) >= kMinShare * wall_us(e)) out.push_back(tensor_core_finding(group));
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
  find_tensor_core_misses(e, out);
  size_t shown = 0;
  for (const Gemm& g : e.gemms.gemms) {
    if (shown == kGemmsShown || to_us(g.time.total_ns) < kMinShare * wall_us(e)) return;
    if (g.uses_tensor_cores == false && !g.tensor_core_note.empty()) continue;
    if (!g.tiling || !g.tiling->wave_efficiency_pct) continue;
    if (*g.tiling->wave_efficiency_pct >= kPoorWavePct || *g.tiling->waves <= 1) continue;
    out.push_back(wave_finding(g));
    ++shown;
  }
}

void find_graph_breaks(const Explanation& e, std::vector<Finding>& out) {
  if (e.compile.frames_per_step.value_or(0) <= 1) return;
  Finding f;
  f.id = "graph-breaks";
  f.title = fmt::format(
      "{:.1f} different compiled regions run per step: the graph breaks, or several functions are "
      "compiled",
      *e.compile.frames_per_step);
  constexpr size_t kShown = 4;
  for (size_t i = 0; i < std::min(kShown, e.compile.regions.size()); ++i) {
    const CompiledRange& r = e.compile.regions[i];
    f.evidence.push_back(fmt::format("{}: {}, {} on the host, {}", r.name,
                                     counted(r.count, "time", "times"), duration(r.cpu_ns),
                                     counted(r.kernels, "kernel", "kernels")));
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
  f.title = fmt::format("{} recorded with 0 % occupancy, which is wrong",
                        counted(kernels, "kernel is", "kernels are"));
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
    if (m.before_window_bytes.value_or(0) > 0)
      f.evidence.push_back(fmt::format("{} of it was allocated before the window",
                                       format_bytes(static_cast<double>(*m.before_window_bytes))));
    constexpr size_t kShown = 3;
    for (size_t i = 0; i < std::min(kShown, m.at_peak.size()); ++i)
      f.evidence.push_back(fmt::format(
          "{} holds {} in {}", m.at_peak[i].op.empty() ? "what no op allocated" : m.at_peak[i].op,
          format_bytes(static_cast<double>(m.at_peak[i].bytes)),
          counted(m.at_peak[i].allocations, "allocation", "allocations")));
    if (m.out_of_memory > 0) {
      f.severity = Severity::kError;
      f.evidence.push_back(counted(m.out_of_memory, "allocation", "allocations") + " failed");
    }
    out.push_back(std::move(f));
  }
}

}  // namespace epilogue::trace
