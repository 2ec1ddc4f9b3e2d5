// SPDX-License-Identifier: Apache-2.0
#include "explain/findings/claims.h"
#include "explain/findings/index.h"

namespace epilogue::trace {
namespace {

constexpr size_t kFusionsShown = 5;

constexpr size_t kMaxOpsShown = 8;

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

std::string_view remedy_of(FusionKind kind) {
  switch (kind) {
    case FusionKind::pointwise_chain:
      return "torch.compile the function or module that calls these ops";
    case FusionKind::gemm_epilogue:
      return "torch.compile(mode=\"max-autotune\") the module, whose templates take the ops after "
             "a product along";
    case FusionKind::merged_gemms:
      return "join the weights along their output dimension (torch.cat once, or one nn.Linear), "
             "multiply once, and split the result";
    case FusionKind::row_chain: return "epilogue.compile() the module";
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

// Where the op of a fusion that takes most is called from; "" if most of that op is elsewhere.
std::string place_of(const Explanation& e, const Fusion& fusion) {
  const auto most =
      std::max_element(fusion.op_us.begin(), fusion.op_us.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  if (most == fusion.op_us.end()) return "";
  for (const CostItem& item : e.method.items)
    if (const std::string place = item.place.text();
        item.op == most->first && 2 * most->second >= to_us(item.ns) && !place.empty())
      return most->first + place;
  return "";
}

Finding fusion_finding(const Explanation& e, const Fusion& fusion, bool pays_for_pages) {
  Finding f;
  f.severity = Severity::info;
  f.title = fmt::format("{} {}", advice(fusion.kind), ops_text(fusion));
  std::string line = fmt::format("{}, {} in all", counted(fusion.count, "time", "times"),
                                 duration_us(fusion.time_us));
  if (waits_for_host(e) && fusion.host_us > 0)
    line += fmt::format(" on the device and {} on the host", duration_us(fusion.host_us));
  // Copies that are no kernels save none.
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
  if (const std::string place = place_of(e, fusion); !place.empty())
    f.evidence.push_back("most of " + place);
  advise(f, are_fills(fusion)
                ? "if optimizer.zero_grad() does this: zero_grad(set_to_none=True) leaves it out"
                : remedy_of(fusion.kind));
  f.saving_us = fusion.predicted_saving_us;
  if (fusion.new_pages_us > 0 && pays_for_pages) {
    *f.saving_us -= fusion.new_pages_us;
    f.evidence.push_back(fmt::format("{} more would be saved of what page-faults is about",
                                     duration_us(fusion.new_pages_us)));
  }
  f.cost_us = fusion.predicted_cost_us;
  f.confidence = fusion.confidence;
  f.kernels = fusion.kernels;
  // What it saves, not what its ops take: the rest stays, and other findings may be about it.
  if (waits_for_host(e) && fusion.confidence == Confidence::low)
    return f;  // it is not sure enough to take from what is
  if (waits_for_host(e))
    claim_idle(e, f, {IdleCause::host_in_ops, IdleCause::launch, IdleCause::host_between_ops},
               *f.saving_us);
  else
    claim_saving(f, fusion.op_us, *f.saving_us);
  return f;
}

// unfused-* says more of a chain that is mostly one of the patterns.
bool is_mostly_pattern(const Fusion& fusion) { return 2 * fusion.pattern_us >= fusion.time_us; }

void find_fusion_advice(const Explanation& e, std::vector<Finding>& out) {
  // page-faults comes before: it claims the time of new pages.
  const bool pays_for_pages = is_said(out, kPageFaultsRule);
  size_t shown = 0;
  for (const Fusion& fusion : e.fusions.fusions) {
    if (shown == kFusionsShown || fusion.predicted_saving_us < kMinShare * wall_us(e)) break;
    if (is_mostly_pattern(fusion)) continue;
    out.push_back(fusion_finding(e, fusion, pays_for_pages));
    ++shown;
  }
}

}  // namespace

constinit const ExplanationRule kFusionRule = {
    .id = "fusion",
    .says = "which ops could be one kernel, and what that would save",
    .said_if =
        [] {
          return fmt::format("it saves {}; the best {}", share_of_span(kMinShare), kFusionsShown);
        },
    .find = find_fusion_advice};

}  // namespace epilogue::trace
