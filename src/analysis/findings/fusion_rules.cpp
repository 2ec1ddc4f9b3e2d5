// SPDX-License-Identifier: Apache-2.0
// Findings about kernels that could be one.
#include <fmt/format.h>

#include "analysis/findings/rules.h"

namespace epilogue::trace {
namespace {

constexpr size_t kFusionsShown = 5;
constexpr double kMinPatternShare = 0.02;  // of the wall time

bool waits_for_host(const Explanation& e) {
  const Bound bound = e.verdicts.whole.bound;
  return bound == Bound::overhead || bound == Bound::launch;
}
constexpr size_t kMaxOpsShown = 8;

std::string duration_us(double us) { return format_duration_ns(us * kNsPerUs); }

std::string ops_text(const Fusion& fusion) {
  std::string text;
  for (size_t i = 0; i < fusion.ops.size(); ++i) {
    if (i >= kMaxOpsShown) return text + fmt::format(" and {} more", fusion.ops.size() - i);
    text += (i > 0 ? " + " : "") + fusion.ops[i];
  }
  return text;
}

std::string_view advice(FusionKind kind) {
  switch (kind) {
    case FusionKind::pointwise_chain: return "one kernel could run";
    case FusionKind::gemm_epilogue: return "the GEMM's write-back could take over";
    case FusionKind::merged_gemms: return "one GEMM could compute";
    case FusionKind::row_chain: return "compile() could run as one kernel";
  }
  return "";
}

Finding fusion_finding(const Fusion& fusion) {
  Finding f;
  f.severity = Severity::info;
  f.title = fmt::format("{} {}", advice(fusion.kind), ops_text(fusion));
  std::string line = fmt::format("{}, {} in all", counted(fusion.count, "time", "times"),
                                 duration_us(fusion.time_us));
  if (fusion.kernels_now > 0)
    line += fmt::format(", {} -> {}", fusion.kernels_now,
                        counted(fusion.kernels_after, "kernel", "kernels"));
  if (!fusion.shape.empty()) line += ", result " + fusion.shape;
  f.evidence.push_back(std::move(line));
  if (fusion.bytes_now > 0)
    f.evidence.push_back(fmt::format("{} of {} would no longer be moved",
                                     format_bytes(fusion.bytes_now - fusion.bytes_after),
                                     format_bytes(fusion.bytes_now)));
  f.evidence.push_back(fmt::format("confidence {}; assumes that {}",
                                   confidence_name(fusion.confidence), fusion.assumption));
  f.saving_us = fusion.predicted_saving_us;
  return f;
}

void find_fusion_advice(const Explanation& e, std::vector<Finding>& out) {
  size_t shown = 0;
  for (const Fusion& fusion : e.fusions.fusions) {
    if (shown == kFusionsShown || fusion.predicted_saving_us < kMinShare * wall_us(e)) break;
    out.push_back(fusion_finding(fusion));
    ++shown;
  }
}

template <PatternKind kind>
void find_patterns(const Explanation& e, std::vector<Finding>& out) {
  constexpr bool is_attention = kind == PatternKind::attention;
  for (const Pattern& pattern : e.fusions.patterns) {
    // Where the device waits for the host, the host's time is what counts.
    const bool is_host_time = waits_for_host(e) && !is_attention;
    const double cost_us = is_host_time ? pattern.host_us : pattern.time_us;
    if (pattern.kind != kind || cost_us < kMinPatternShare * wall_us(e)) continue;
    Finding f;
    f.severity = Severity::warning;
    f.title = is_attention ? fmt::format("attention runs as {}: one kernel does it", pattern.name)
                           : fmt::format("{} runs as {}: one kernel does a step", pattern.name,
                                         counted(pattern.ops, "op", "ops"));
    f.evidence.push_back(fmt::format(
        "{}, {} in all",
        counted(pattern.count, is_attention ? "time" : "step", is_attention ? "times" : "steps"),
        duration_us(cost_us) + (is_host_time ? " on the host" : "")));
    f.evidence.emplace_back(
        is_attention ? "torch.nn.functional.scaled_dot_product_attention never writes the scores; "
                       "what stays is the time of the products"
                     : "pass fused=True to the optimizer: parameters, gradients and state are then "
                       "read and written once");
    // Where the device waits for the host, its time is not what is saved.
    if (!waits_for_host(e)) f.saving_us = pattern.saving_us;
    f.cost_us = cost_us;
    out.push_back(std::move(f));
  }
}

}  // namespace

constinit const ExplanationRule kUnfusedAttentionRule = {"unfused-attention",
                                                         find_patterns<PatternKind::attention>};
constinit const ExplanationRule kUnfusedOptimizerRule = {"unfused-optimizer",
                                                         find_patterns<PatternKind::optimizer>};
constinit const ExplanationRule kFusionRule = {"fusion", find_fusion_advice};

}  // namespace epilogue::trace
