// SPDX-License-Identifier: Apache-2.0
#include "explain/findings/claims.h"
#include "explain/findings/index.h"

namespace epilogue::trace {
namespace {

constexpr double kMaskShare = 0.05;
constexpr int64_t kManyMasks = 8;  // in a step: a loop over ids

// Ops that index by a boolean mask, with the search of it.
struct Masks : OpVisitor {
  void visit(const VisitedOp& op) override {
    if (op.name != "aten::nonzero") return;
    uint32_t outermost = kNone;
    for (uint32_t p = op.parent_of(op.index); p != kNone && is_indexing_op(op.name_of(p));
         p = op.parent_of(p))
      outermost = p;
    // Several masks in one call find the same op.
    if (outermost == kNone || outermost == last) return;
    found.add(op.name_of(outermost), op.trace.events[outermost].dur_ns);
    last = outermost;
  }

  OpLosses found;
  uint32_t last = kNone;
};

void find_boolean_masks(const Explanation& e, const Masks& indexed, std::vector<Finding>& out) {
  const std::vector<OpLoss> masks = indexed.found.by_time();
  const int64_t ns = indexed.found.total_ns();
  if (ns == 0 || !is_share_of(*e.host, ns, kMaskShare)) return;
  Finding f;
  f.severity = Severity::warning;
  f.title = fmt::format("indexing by a boolean mask takes {}", share(*e.host, ns));
  for (size_t i = 0; i < std::min(kHostFindings, masks.size()); ++i)
    f.evidence.push_back(fmt::format("{}: {}, {}, with aten::nonzero", masks[i].name,
                                     counted(masks[i].count, "call", "calls"),
                                     duration(masks[i].ns)));
  const auto steps = static_cast<int64_t>(std::max<size_t>(1, e.steps.size()));
  int64_t count = 0;
  for (const OpLoss& mask : masks) count += mask.count;
  const int64_t per_step = count / steps;
  const std::string_view plain =
      "masked_fill and torch.where keep the size and need no search; (x * mask).sum() sums what is "
      "chosen";
  if (per_step >= kManyMasks) {
    f.evidence.push_back(fmt::format("{} masks in a step, each compared and searched", per_step));
    advise(f,
           fmt::format("if each mask picks the rows of one id or label (x == i), order them once "
                       "outside of the loop: argsort and bincount (or searchsorted) give each id a "
                       "slice, as CSR (indptr) does for the edges of a graph; else {}",
                       plain));
  } else {
    advise(f, std::string(plain));
  }
  f.cost_us = to_us(ns);
  for (const OpLoss& mask : masks)
    f.claims.push_back({{std::string(mask.name), "aten::nonzero"}, to_us(mask.ns)});
  out.push_back(std::move(f));
}

}  // namespace

constinit const ExplanationRule kBooleanMaskRule = {
    .id = "boolean-mask",
    .says = "how long indexing by boolean masks takes in a run without a device",
    .said_if = [] { return "ops that index and call `nonzero` take " + share_of_wall(kMaskShare); },
    .visits = visits_of<Masks, find_boolean_masks>()};

}  // namespace epilogue::trace
