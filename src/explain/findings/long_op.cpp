// SPDX-License-Identifier: Apache-2.0
// One kind of op that takes a good part of a run without a device.
#include "explain/findings/index.h"
#include "explain/index/aten_ops.h"
#include "explain/knowledge/op_knowledge.h"

namespace epilogue::trace {
namespace {

constexpr double kLongOpShare = 0.3;  // of the wall time

// Products, convolutions, recurrent layers and attention take most of a good run, and simple ops
// have rules of their own.
bool has_other_finding(std::string_view name) {
  constexpr std::array<std::string_view, 4> kMainWork = {"conv", "Conv", "attention", "_rnn"};
  const OpClass kind = op_class(name);
  return kind == OpClass::gemm || kind == OpClass::pointwise || kind == OpClass::copy ||
         std::any_of(kMainWork.begin(), kMainWork.end(), [&](std::string_view part) {
           return name.find(part) != std::string_view::npos;
         });
}

// It names the op and is about half of its time or more.
bool is_about(const Finding& finding, const HostOp& op) {
  if (finding.id == "verdict" || 2 * finding.cost_us.value_or(0) < to_us(op.self_ns)) return false;
  const auto names = [&](const std::string& text) {
    return text.find(op.name) != std::string::npos;
  };
  return names(finding.title) ||
         std::any_of(finding.evidence.begin(), finding.evidence.end(), names);
}

void find_long_ops(const Explanation& e, std::vector<Finding>& out) {
  if (!e.host) return;
  const HostTime& host = *e.host;
  for (const HostOp& op : host.ops) {
    if (static_cast<double>(op.self_ns) < kLongOpShare * static_cast<double>(host.wall_ns)) return;
    if (op.part == HostPart::dispatch || has_other_finding(op.name)) continue;
    if (std::any_of(out.begin(), out.end(), [&](const Finding& f) { return is_about(f, op); }))
      continue;
    Finding f;
    f.severity = Severity::info;
    f.title = fmt::format("{} takes {}", op.name, share(host, op.self_ns));
    f.evidence.push_back(calls_text(op.count, op.self_ns));
    f.cost_us = to_us(op.self_ns);
    const OpKnowledge* known = op_knowledge(op.name);
    if (known == nullptr || known->remedy.empty()) {
      f.evidence.emplace_back("no remedy known");
    } else {
      f.evidence.push_back(fmt::format("a loss if {}", known->misuse));
      advise(f, known->remedy);
    }
    out.push_back(std::move(f));
  }
}

}  // namespace

constinit const ExplanationRule kLongOpRule = {
    .id = "long-op",
    .says =
        "that one op of a run without a device takes a good part of it, and no other finding is "
        "about it",
    .said_if =
        [] {
          return "it takes " + share_of_wall(kLongOpShare) +
                 "; no product, convolution, recurrent layer, attention, elementwise op or copy";
        },
    .find = find_long_ops,
    .confidence = Confidence::high};

}  // namespace epilogue::trace
