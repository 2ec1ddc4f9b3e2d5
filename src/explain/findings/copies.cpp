// SPDX-License-Identifier: Apache-2.0
#include "explain/findings/claims.h"
#include "explain/findings/index.h"
#include "explain/index/aten_ops.h"

namespace epilogue::trace {
namespace {

constexpr double kCopyShare = 0.2;
constexpr double kOfCopies = 0.75;  // of the time of copy_: then its place is that of these copies

// Ops that copy because they were asked to: a copy below them is theirs.
constexpr std::array<std::string_view, 12> kCopiers = {
    "aten::to",      "aten::_to_copy", "aten::contiguous", "aten::clone",
    "aten::reshape", "aten::repeat",   "aten::stack",      "aten::copy_",
    "aten::cat",     "aten::float",    "aten::pad",        "aten::roll"};

// One side of the copy is channels_last, and the other is not.
bool changes_layout(const VisitedOp& op) {
  return op.name == "aten::copy_" && op.inputs.size() >= 2 && op.inputs[0].dims.size() == 4 &&
         op.inputs[0].dims == op.inputs[1].dims &&
         is_channels_last(op.inputs[0]) != is_channels_last(op.inputs[1]);
}

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
    if (changes_layout(op)) layout_ns += op.self_ns;
  }

  OpLosses found;
  int64_t layout_ns = 0;  // of images between channels_last and contiguous
};

std::string_view copy_advice(std::string_view name) {
  if (name == "aten::cat" || name == "aten::stack")
    return "cat copies all that it joins: if it grows (a cache, results of a loop), write into a "
           "tensor made beforehand (slices, index_copy_), in blocks; if a product reads it next, "
           "split the weight, multiply each part and add; if the parts are made for it, let the "
           "ops before write into slices of one tensor (out=)";
  if (name == "aten::clone")
    return "clone copies the whole: if little of it is changed, keep what was there and write that "
           "back; if nothing is, detach() shares the memory; if it writes out an expanded tensor, "
           "ops that broadcast read the view as it is";
  if (name == "aten::repeat" || name == "aten::repeat_interleave" || name == "aten::tile")
    return "expand makes a view in place of copies, which ops that broadcast read; if layers "
           "follow, run them on the rows before they are repeated, and repeat the results";
  if (name == "aten::contiguous" || name == "aten::reshape" || name == "aten::flatten")
    return "it writes a transposed or sliced view anew: products and most ops read such views as "
           "they are (matmul, einsum, bmm); transpose where the tensor is small, or write it in "
           "the layout that is read from the start; if it is the same in each step, once";
  if (name == "aten::roll")
    return "roll copies the whole tensor: of a stencil write the differences of slices, with the "
           "border apart, or pad once (F.pad with mode=\"circular\") and read its slices, which "
           "are views; many shifts at once are a convolution or unfold";
  if (name == "aten::to" || name == "aten::_to_copy" || name == "aten::float")
    return "casts: keep tensors in the type that the next op takes; autocast casts weights again "
           "in each step, model.bfloat16() once";
  return "keep tensors in the layout that the next op takes; a view (expand, as_strided) needs no "
         "copy";
}

void find_copies(const Explanation& e, const CopiesAsked& asked, std::vector<Finding>& out) {
  const std::vector<OpLoss> copies = asked.found.by_time();
  // What a Python function that need not run copies is that finding's.
  int64_t ns = asked.found.total_ns();
  for (const Waste& waste : e.method.wastes)
    if (waste.kind == WasteKind::aside_function || waste.kind == WasteKind::piled_hooks)
      for (const auto& [op, op_ns] : waste.op_ns)
        if (op == "aten::copy_" || op == "aten::cat") ns -= std::min(ns, op_ns);
  if (ns == 0 || !is_share_of(*e.host, ns, kCopyShare)) return;
  Finding f;
  f.severity = Severity::warning;
  f.title =
      fmt::format("copies take {}, most of it in {}", share(*e.host, ns), copies.front().name);
  for (size_t i = 0; i < std::min(kHostFindings, copies.size()); ++i)
    f.evidence.push_back(fmt::format("{}: {}, {}", copies[i].name,
                                     counted(copies[i].count, "copy", "copies"),
                                     duration(copies[i].ns)));
  const auto item = std::ranges::find(e.method.items, "aten::copy_", &CostItem::op);
  if (item != e.method.items.end() && copies.front().name != "aten::cat" &&
      copies.front().name != "aten::roll" &&
      static_cast<double>(ns) >= kOfCopies * static_cast<double>(item->ns)) {
    CostPlace where = item->place;
    where.op.clear();
    if (const std::string place = where.text(); !place.empty())
      f.evidence.push_back("most of it" + place);
  }
  if (2 * asked.layout_ns >= ns) {
    f.evidence.push_back(
        fmt::format("{} go from channels_last to contiguous, or back", duration(asked.layout_ns)));
    advise(f,
           "stay in one memory format: leave out contiguous() between channels_last layers, and "
           "write what asks for it so that it takes any format (mean((2, 3)), adaptive_avg_pool2d, "
           "reshape in place of view, memory_format=torch.channels_last)");
  } else {
    advise(f, copy_advice(copies.front().name));
  }
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
