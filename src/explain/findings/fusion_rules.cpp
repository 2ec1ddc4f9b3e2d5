// SPDX-License-Identifier: Apache-2.0
// Findings about kernels that could be one.
#include <fmt/format.h>

#include <algorithm>

#include "explain/findings/host_shares.h"
#include "explain/findings/rules.h"

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
  size_t shown = 0;
  for (size_t i = 0; i < fusion.ops.size(); ++shown) {
    if (shown >= kMaxOpsShown) return text + fmt::format(" and {} more", fusion.ops.size() - i);
    const auto first = fusion.ops.begin() + static_cast<ptrdiff_t>(i);
    const auto other =
        std::find_if(first, fusion.ops.end(), [&](const std::string& op) { return op != *first; });
    const auto same = static_cast<size_t>(other - first);
    text += (i > 0 ? " + " : "") + (same > 1 ? fmt::format("{} x {}", same, *first) : *first);
    i += same;
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

// Many fills in a row are gradients that are set to zero.
bool are_fills(const Fusion& fusion) {
  constexpr size_t kManyFills = 8;
  const auto fills =
      static_cast<size_t>(std::ranges::count_if(fusion.ops, [](const std::string& op) {
        return op == "aten::fill_" || op == "aten::zero_";
      }));
  return fills >= kManyFills && 10 * fills >= 9 * fusion.ops.size();
}

Finding fusion_finding(const Explanation& e, const Fusion& fusion) {
  Finding f;
  f.severity = Severity::info;
  f.title = fmt::format("{} {}", advice(fusion.kind), ops_text(fusion));
  std::string line = fmt::format("{}, {} in all", counted(fusion.count, "time", "times"),
                                 duration_us(fusion.time_us));
  if (waits_for_host(e) && fusion.host_us > 0)
    line += fmt::format(" on the device and {} on the host", duration_us(fusion.host_us));
  // Of copies that are no kernels none is saved.
  if (fusion.kernels_now > fusion.kernels_after)
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
  if (are_fills(fusion))
    advise(f, "if optimizer.zero_grad() does this: zero_grad(set_to_none=True) leaves it out");
  f.saving_us = fusion.predicted_saving_us;
  if (fusion.new_pages_us > 0 && !ops_on_new_pages(e).empty()) {
    *f.saving_us -= fusion.new_pages_us;
    f.evidence.push_back(fmt::format("{} more would be saved of what page-faults is about",
                                     duration_us(fusion.new_pages_us)));
  }
  f.cost_us = fusion.predicted_cost_us;
  f.confidence = fusion.confidence;
  f.kernels = fusion.kernels;
  return f;
}

// A chain that is mostly one of the patterns is told by that pattern.
bool is_told_by_pattern(const Fusion& fusion) { return 2 * fusion.pattern_us >= fusion.time_us; }

void find_fusion_advice(const Explanation& e, std::vector<Finding>& out) {
  size_t shown = 0;
  for (const Fusion& fusion : e.fusions.fusions) {
    if (shown == kFusionsShown || fusion.predicted_saving_us < kMinShare * wall_us(e)) break;
    if (is_told_by_pattern(fusion)) continue;
    out.push_back(fusion_finding(e, fusion));
    ++shown;
  }
}

// What is said of a pattern: "RMSNorm runs as 84 ops: ...", and what to call instead.
struct PatternText {
  std::string_view id;
  std::string_view subject;  // "": the pattern's name
  std::string_view remedy;   // ends the title
  std::string_view action;
};

const PatternText& text_of(PatternKind kind) {
  static constexpr PatternText kAttention = {
      "unfused-attention", "attention", "one kernel does it",
      "torch.nn.functional.scaled_dot_product_attention never writes the scores; what stays is the "
      "time of the products, and on a CPU that of the softmax"};
  static constexpr PatternText kOptimizer = {
      "unfused-optimizer", "", "one kernel does a step",
      "pass fused=True to the optimizer: parameters, gradients and state are then read and written "
      "once"};
  static constexpr PatternText kRmsNorm = {
      "unfused-norm", "RMSNorm", "one kernel does it",
      "torch.nn.functional.rms_norm (torch.nn.RMSNorm) or torch.compile reads the rows once"};
  static constexpr PatternText kLayerNorm = {
      "unfused-norm", "LayerNorm", "one kernel does it",
      "torch.nn.functional.layer_norm (torch.nn.LayerNorm) reads the rows once"};
  static constexpr PatternText kGelu = {
      "unfused-gelu", "GELU", "one kernel does it",
      "torch.nn.functional.gelu(x, approximate=\"tanh\") computes the same in one pass"};
  static constexpr PatternText kRotary = {
      "unfused-rotary", "rotary position embedding", "one kernel does it",
      "torch.compile the function that applies the rotary embedding, or call a kernel made for it "
      "(flash-attn, Liger): the halves need not be copied"};
  switch (kind) {
    case PatternKind::attention: return kAttention;
    case PatternKind::optimizer: return kOptimizer;
    case PatternKind::rms_norm: return kRmsNorm;
    case PatternKind::layer_norm: return kLayerNorm;
    case PatternKind::gelu: return kGelu;
    case PatternKind::rotary: return kRotary;
  }
  return kAttention;
}

Finding pattern_finding(const Explanation& e, const Pattern& pattern, double cost_us,
                        bool is_host_time) {
  const PatternText& text = text_of(pattern.kind);
  const bool is_optimizer = pattern.kind == PatternKind::optimizer;
  Finding f;
  f.id = text.id;
  f.severity = Severity::warning;
  f.title = is_optimizer
                ? fmt::format("{} runs as {}: {}", pattern.name, counted(pattern.ops, "op", "ops"),
                              text.remedy)
                : fmt::format("{} runs as {}: {}", text.subject, pattern.name, text.remedy);
  f.evidence.push_back(fmt::format(
      "{}, {} in all",
      counted(pattern.count, is_optimizer ? "step" : "time", is_optimizer ? "steps" : "times"),
      duration_us(cost_us) + (is_host_time ? " on the host" : "")));
  advise(f, text.action);
  // Where the device waits for the host, its time is not what is saved.
  if (!waits_for_host(e)) f.saving_us = pattern.saving_us;
  f.cost_us = cost_us;
  if (is_host_time) f.where = FindingPlace::host;
  return f;
}

template <PatternKind... kinds>
void find_patterns(const Explanation& e, std::vector<Finding>& out) {
  for (const Pattern& pattern : e.fusions.patterns) {
    if (((pattern.kind != kinds) && ...)) continue;
    // Where the device waits for the host, the host's time is what counts.
    const bool is_host_time = waits_for_host(e) && pattern.kind == PatternKind::optimizer;
    const double cost_us = is_host_time ? pattern.host_us : pattern.time_us;
    if (cost_us < kMinPatternShare * wall_us(e)) continue;
    out.push_back(pattern_finding(e, pattern, cost_us, is_host_time));
  }
}

}  // namespace

constinit const ExplanationRule kUnfusedAttentionRule = {"unfused-attention",
                                                         find_patterns<PatternKind::attention>};
constinit const ExplanationRule kUnfusedOptimizerRule = {"unfused-optimizer",
                                                         find_patterns<PatternKind::optimizer>};
constinit const ExplanationRule kUnfusedNormRule = {
    "unfused-norm", find_patterns<PatternKind::rms_norm, PatternKind::layer_norm>};
constinit const ExplanationRule kUnfusedGeluRule = {"unfused-gelu",
                                                    find_patterns<PatternKind::gelu>};
constinit const ExplanationRule kUnfusedRotaryRule = {"unfused-rotary",
                                                      find_patterns<PatternKind::rotary>};
constinit const ExplanationRule kFusionRule = {"fusion", find_fusion_advice};

}  // namespace epilogue::trace
