// SPDX-License-Identifier: Apache-2.0
// One kind of op that takes a good part of a run without a device.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "explain/findings/host_shares.h"
#include "explain/findings/rules.h"
#include "explain/index/aten_ops.h"

namespace epilogue::trace {
namespace {

constexpr double kLongOpShare = 0.3;  // of the wall time

struct OpAdvice {
  std::string_view part;  // of the op's name
  std::string_view advice;
};
constexpr std::array<OpAdvice, 8> kAdvice = {{
    {"bicubic", "bilinear interpolation reads 4 neighbours where bicubic reads 16"},
    {"grid_sampler", "bilinear interpolation reads 4 neighbours where bicubic reads 16"},
    {"cdist", "with p = 2 and compute_mode=\"use_mm_for_euclid_dist\" it is a matrix product"},
    {"embedding_dense_backward",
     "gradients of a whole table: nn.Embedding(sparse=True) and an optimizer for it touch the rows "
     "that were read"},
    {"index_add", "sums by index go row by row: torch.sparse.mm or segment_reduce sum in one pass"},
    {"scatter", "sums by index go row by row: torch.sparse.mm or segment_reduce sum in one pass"},
    {"index_put", "writes by index go element by element: masks (torch.where) and slices do not"},
    {"randperm", "a permutation made once, or on a worker, takes no time of the step"},
}};

// Products, convolutions, recurrent layers and attention take most of a good run, and simple ops
// have rules of their own.
bool is_told_elsewhere(std::string_view name) {
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
    if (op.part == HostPart::dispatch || is_told_elsewhere(op.name)) continue;
    if (std::any_of(out.begin(), out.end(), [&](const Finding& f) { return is_about(f, op); }))
      continue;
    Finding f;
    f.severity = Severity::info;
    f.title = fmt::format("{} takes {}", op.name, share(host, op.self_ns));
    f.evidence.push_back(calls_text(op.count, op.self_ns));
    f.cost_us = to_us(op.self_ns);
    const auto known = std::find_if(kAdvice.begin(), kAdvice.end(), [&](const OpAdvice& a) {
      return op.name.find(a.part) != std::string::npos;
    });
    if (known != kAdvice.end()) advise(f, std::string(known->advice));
    out.push_back(std::move(f));
  }
}

void find_nan_checks(const Explanation& e, std::vector<Finding>& out) {
  if (!e.host) return;
  const std::vector<HostLoss>& checks = e.host->losses.nan_checks;
  const int64_t ns = total_of(checks);
  if (checks.empty() || !is_notable(*e.host, ns)) return;
  Finding f;
  f.severity = Severity::warning;
  f.title = fmt::format("looking for NaN in gradients takes {}", share(*e.host, ns));
  for (const HostLoss& check : checks)
    f.evidence.push_back(fmt::format("{}: {}, {}", check.name,
                                     counted(check.count, "call", "calls"), duration(check.ns)));
  advise(f,
         "anomaly mode checks each gradient: switch it on to find a NaN, not for whole runs "
         "(torch.autograd.set_detect_anomaly)");
  f.saving_us = to_us(ns);
  out.push_back(std::move(f));
}

// One op that takes a notable part; `title` has a place for what it takes.
std::optional<Finding> finding_of_op(const Explanation& e, const std::vector<HostLoss>& losses,
                                     fmt::format_string<std::string> title,
                                     const std::string& action) {
  if (losses.empty() || !is_notable(*e.host, total_of(losses))) return std::nullopt;
  const HostLoss& op = losses.front();
  Finding f;
  f.severity = Severity::warning;
  f.title = fmt::format(title, share(*e.host, op.ns));
  f.evidence.push_back(op.name + ": " + calls_text(op.count, op.ns));
  advise(f, action);
  f.cost_us = to_us(op.ns);
  return f;
}

void find_training_norms(const Explanation& e, std::vector<Finding>& out) {
  if (!e.host) return;
  if (auto f = finding_of_op(e, e.host->losses.training_norms,
                             "batch norms in training mode take {}, and nothing runs backward",
                             "if this is inference: model.eval() takes the running statistics, and "
                             "no longer changes them"))
    out.push_back(*std::move(f));
}

void find_plain_attention(const Explanation& e, std::vector<Finding>& out) {
  if (!e.host) return;
  auto f = finding_of_op(e, e.host->losses.plain_attention,
                         "scaled_dot_product_attention runs op by op, which takes {}",
                         "on a CPU the fused kernel takes no dropout: an attention dropout of 0, "
                         "or model.eval() if this is inference");
  if (!f) return;
  f->evidence.front() += ", without its backward pass";
  out.push_back(*std::move(f));
}

}  // namespace

constinit const ExplanationRule kPlainAttentionRule = {"plain-attention", find_plain_attention,
                                                       Confidence::high};
constinit const ExplanationRule kTrainingNormsRule = {"training-norms", find_training_norms,
                                                      Confidence::high};
constinit const ExplanationRule kNanChecksRule = {"nan-checks", find_nan_checks};
constinit const ExplanationRule kLongOpRule = {"long-op", find_long_ops, Confidence::high};

}  // namespace epilogue::trace
