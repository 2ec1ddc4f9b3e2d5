// SPDX-License-Identifier: Apache-2.0
// Twice the bytes, half the lanes of each instruction.
#include "explain/findings/claims.h"
#include "explain/findings/index.h"

namespace epilogue::trace {
namespace {

constexpr int64_t kWideBytes = 32 << 10;

// Ops that are no products, on many numbers of twice the size.
struct WideOps : OpVisitor {
  void visit(const VisitedOp& op) override {
    if (!is_elementwise(op.kind) && op.kind != OpClass::rowwise && op.kind != OpClass::reduction)
      return;
    for (const OpInput& input : op.inputs) {
      if (input.type != "double") continue;
      const TensorShape tensor{input.dims, input.type};
      if (tensor.bytes().value_or(0) >= kWideBytes) return found.add(op.name, op.self_ns);
    }
  }

  OpLosses found;
};

void find_double_precision(const Explanation& e, const WideOps& wide_ops,
                           std::vector<Finding>& out) {
  const auto wide = products_that(
      *e.host, [](const HostProduct& p) { return p.type == "f64" && !p.is_dispatch; });
  const std::vector<OpLoss> ops = wide_ops.found.by_time();
  const int64_t ns = total_of(wide) + wide_ops.found.total_ns();
  if (ns == 0 || !is_notable(*e.host, ns)) return;
  Finding f;
  f.severity = Severity::warning;
  const std::string_view what = wide.empty()  ? "ops"
                                : ops.empty() ? "products"
                                              : "products and other ops";
  f.title = fmt::format("{} in float64 take {}: float32 takes half", what, share(*e.host, ns));
  add_product_lines(*e.host, wide, f);
  for (size_t i = 0; i < std::min(kHostFindings, ops.size()); ++i)
    f.evidence.push_back(fmt::format("{}: {} in {}", ops[i].name, duration(ops[i].ns),
                                     counted(ops[i].count, "call", "calls")));
  advise(
      f,
      "where float32 is precise enough, call .float() on model and data (what comes from numpy is "
      "float64)");
  f.cost_us = to_us(ns);
  f.saving_us = to_us(ns) / 2;
  claim_products(f, wide);
  claim_losses(f, wide_ops.found);
  out.push_back(std::move(f));
}

}  // namespace

constinit const ExplanationRule kDoublePrecisionRule = {
    .id = "double-precision",
    .says = "that products or other ops of a run without a device are in float64",
    .said_if =
        [] {
          return fmt::format(
              "they take {} (of ops that are no products those on {} and more); saves half of that",
              share_of_wall(), round_bytes(kWideBytes));
        },
    .visits = visits_of<WideOps, find_double_precision>()};

}  // namespace epilogue::trace
