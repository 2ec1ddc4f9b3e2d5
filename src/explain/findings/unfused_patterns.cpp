// SPDX-License-Identifier: Apache-2.0
// Chains of ops that are a known function: one kernel does it.
#include "explain/findings/claims.h"
#include "explain/findings/index.h"

namespace epilogue::trace {
namespace {

constexpr double kMinPatternShare = 0.02;  // of the wall time

// "RMSNorm runs as 84 ops: ...", and what to call instead.
struct PatternText {
  std::string_view subject;  // "": the pattern's name
  std::string_view remedy;   // ends the title
  std::string_view action;
};

const PatternText& text_of(PatternKind kind) {
  static constexpr PatternText kAttention = {
      "attention", "one kernel does it",
      "torch.nn.functional.scaled_dot_product_attention never writes the scores "
      "(nn.MultiheadAttention calls it with need_weights=False); what stays is the time of the "
      "products, and on a CPU that of the softmax"};
  static constexpr PatternText kOptimizer = {
      "", "one kernel does a step",
      "pass fused=True to the optimizer: parameters, gradients and state are then read and written "
      "once"};
  static constexpr PatternText kRmsNorm = {
      "RMSNorm", "one kernel does it",
      "torch.nn.functional.rms_norm (torch.nn.RMSNorm) or torch.compile reads the rows once"};
  static constexpr PatternText kLayerNorm = {
      "LayerNorm", "one kernel does it",
      "torch.nn.functional.layer_norm (torch.nn.LayerNorm) reads the rows once"};
  static constexpr PatternText kGelu = {
      "GELU", "one kernel does it",
      "torch.nn.functional.gelu(x, approximate=\"tanh\") computes the same in one pass"};
  static constexpr PatternText kRotary = {
      "rotary position embedding", "one kernel does it",
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
  // A device that waits for the host saves nothing.
  if (!waits_for_host(e)) f.saving_us = pattern.saving_us;
  f.cost_us = cost_us;
  if (f.saving_us)
    claim_saving(f, pattern.op_us, *f.saving_us);
  else if (is_host_time)
    claim_idle(e, f, {IdleCause::host_in_ops, IdleCause::launch, IdleCause::host_between_ops},
               cost_us);
  if (is_host_time) f.where = FindingPlace::host;
  return f;
}

std::string takes_pattern_share(std::string_view as_long_as) {
  return fmt::format("they take {}; one kernel takes about as long as {}",
                     share_of_span(kMinPatternShare), as_long_as);
}

template <PatternKind... kinds>
void find_patterns(const Explanation& e, std::vector<Finding>& out) {
  for (const Pattern& pattern : e.fusions.patterns) {
    if (((pattern.kind != kinds) && ...)) continue;
    // The host's time counts if the device waits for it.
    const bool is_host_time = waits_for_host(e) && pattern.kind == PatternKind::optimizer;
    const double cost_us = is_host_time ? pattern.host_us : pattern.time_us;
    if (cost_us < kMinPatternShare * wall_us(e)) continue;
    out.push_back(pattern_finding(e, pattern, cost_us, is_host_time));
  }
}

}  // namespace

constinit const ExplanationRule kUnfusedAttentionRule = {
    .id = "unfused-attention",
    .says =
        "that attention runs as products and a softmax of their own; "
        "`scaled_dot_product_attention` is one kernel",
    .said_if =
        [] {
          return "batched product, elementwise ops, softmax, elementwise ops, batched product "
                 "follow each other and take " +
                 share_of_span(kMinPatternShare) +
                 "; saves the time between the products, on a CPU without the softmax";
        },
    .find = find_patterns<PatternKind::attention>};
constinit const ExplanationRule kUnfusedOptimizerRule = {
    .id = "unfused-optimizer",
    .says = "that an optimizer's step is many kernels; `fused=True` is one",
    .said_if =
        [] {
          return "three ops or more for each step within `Optimizer.step#Adam...`, `SGD` or "
                 "`Adagrad` take " +
                 share_of_span(kMinPatternShare) +
                 " (if the device waits for the host, the step on the host does); Adam moves 7 "
                 "tensors instead of 21, the others 5 instead of 8";
        },
    .find = find_patterns<PatternKind::optimizer>};
constinit const ExplanationRule kUnfusedNormRule = {
    .id = "unfused-norm",
    .says = "that RMSNorm or LayerNorm over rows is a chain of simple ops",
    .said_if = [] { return takes_pattern_share("the longest of them"); },
    .find = find_patterns<PatternKind::rms_norm, PatternKind::layer_norm>};
constinit const ExplanationRule kUnfusedGeluRule = {
    .id = "unfused-gelu",
    .says = "that GELU with tanh is a chain of simple ops",
    .said_if = [] { return takes_pattern_share("the longest of them"); },
    .find = find_patterns<PatternKind::gelu>};
constinit const ExplanationRule kUnfusedRotaryRule = {
    .id = "unfused-rotary",
    .says = "that rotary position embeddings are mul, neg, cat, mul, add",
    .said_if = [] { return takes_pattern_share("the last addition"); },
    .find = find_patterns<PatternKind::rotary>};

}  // namespace epilogue::trace
