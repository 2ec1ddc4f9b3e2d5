// SPDX-License-Identifier: Apache-2.0
#include "explain/findings/claims.h"
#include "explain/findings/index.h"

namespace epilogue::trace {
namespace {

constexpr double kCopyShare = 0.2;

// Ops that copy because they were asked to: a copy below them is theirs.
constexpr std::array<std::string_view, 11> kCopiers = {
    "aten::to",      "aten::_to_copy", "aten::contiguous", "aten::clone",
    "aten::reshape", "aten::repeat",   "aten::stack",      "aten::copy_",
    "aten::cat",     "aten::float",    "aten::pad"};

// Copies by what asked for them (to, contiguous), and cat.
struct CopiesAsked : OpVisitor {
  // Copies that are part of an op which computes (a bias, a number that is cast) are not counted.
  void visit(const VisitedOp& op) override {
    if (op.name != "aten::copy_" && op.name != "aten::cat") return;
    std::string_view asked = op.name;
    uint32_t p = op.parent_of(op.index);
    for (; p != kNone && is_one_of(kCopiers, op.name_of(p)); p = op.parent_of(p))
      asked = op.name_of(p);
    if (p != kNone) {
      if (is_indexing_op(op.name_of(p))) return;
      const OpClass around = op_class(op.name_of(p));
      const bool computes = around != OpClass::view && around != OpClass::unknown;
      if (computes || asked == "aten::copy_") return;
    }
    found.add(asked, op.self_ns);
  }

  OpLosses found;
};

std::string_view copy_advice(std::string_view name) {
  if (name == "aten::cat" || name == "aten::stack")
    return "cat copies all that it joins: write into a tensor made beforehand (slices, "
           "index_copy_), "
           "and let a cache grow in blocks";
  if (name == "aten::to" || name == "aten::_to_copy" || name == "aten::float")
    return "casts: keep tensors in the type that the next op takes; autocast casts weights again "
           "in "
           "each step, model.bfloat16() once";
  return "keep tensors in the layout that the next op takes; a view (expand, as_strided) needs no "
         "copy";
}

void find_copies(const Explanation& e, const CopiesAsked& asked, std::vector<Finding>& out) {
  const std::vector<OpLoss> copies = asked.found.by_time();
  const int64_t ns = asked.found.total_ns();
  if (ns == 0 || !is_share_of(*e.host, ns, kCopyShare)) return;
  Finding f;
  f.severity = Severity::warning;
  f.title =
      fmt::format("copies take {}, most of it in {}", share(*e.host, ns), copies.front().name);
  for (size_t i = 0; i < std::min(kHostFindings, copies.size()); ++i)
    f.evidence.push_back(fmt::format("{}: {}, {}", copies[i].name,
                                     counted(copies[i].count, "copy", "copies"),
                                     duration(copies[i].ns)));
  advise(f, copy_advice(copies.front().name));
  f.cost_us = to_us(ns);
  f.claims.push_back({{"aten::copy_", "aten::cat"}, to_us(ns)});
  out.push_back(std::move(f));
}

}  // namespace

constinit const ExplanationRule kCopiesRule = {
    .id = "copies",
    .says = "what a run without a device copies: `cat`, casts, `contiguous`",
    .said_if =
        [] {
          return "copies take " + share_of_wall(kCopyShare) +
                 "; copies within ops that compute do not count";
        },
    .visits = visits_of<CopiesAsked, find_copies>(),
    .confidence = Confidence::high};

}  // namespace epilogue::trace
