// SPDX-License-Identifier: Apache-2.0
#include "explain/findings/claims.h"

#include <algorithm>
#include <numeric>

#include "explain/findings/index.h"

namespace epilogue::trace {
namespace {

constexpr double kKept = 0.1;       // of its cost: less is what the findings before have said
constexpr double kSameTime = 0.02;  // claims are sums of rounded times

bool is_part(std::string_view name) {
  return name == kBetweenOpsPart || name == kCallingOpsPart || name == kDataPart;
}

const ExplanationRule* rule_of(const Finding& f) {
  const auto* const rule = std::ranges::find(kExplanationRules, f.id, &ExplanationRule::id);
  return rule == std::end(kExplanationRules) ? nullptr : *rule;
}

bool is_general(const Finding& f) {
  const ExplanationRule* rule = rule_of(f);
  return rule != nullptr && rule->is_general;
}

// Work that need not run; causes; symptoms; and last the rest of the host's time, which a long gap
// is a part of.
int turn(const Finding& f) {
  if (f.id == kHostOverheadRule.id) return 3;
  const ExplanationRule* rule = rule_of(f);
  if (rule == nullptr) return 1;
  if (rule->is_general) return 2;
  return rule->is_needless && f.confidence != Confidence::low ? 0 : 1;
}

double weight(const Finding& f) { return f.saving_us.value_or(f.cost_us.value_or(0)); }

// Positions of the findings in the order in which they claim.
std::vector<size_t> claim_order(const std::vector<Finding>& findings) {
  std::vector<size_t> order(findings.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, [&](size_t a, size_t b) {
    const int turn_a = turn(findings[a]);
    const int turn_b = turn(findings[b]);
    return turn_a != turn_b ? turn_a < turn_b : weight(findings[a]) > weight(findings[b]);
  });
  return order;
}

}  // namespace

std::string idle_part(IdleCause cause) { return "idle: " + std::string(idle_cause_name(cause)); }

TimeLedger::TimeLedger(const Explanation& e) {
  for (const auto& [op, ns] : e.method.op_ns) left_us_[op] += to_us(ns);
  if (!e.idle.empty())
    for (int c = 0; c < kIdleCauses; ++c) {
      const auto cause = static_cast<IdleCause>(c);
      left_us_.emplace(idle_part(cause), to_us(e.idle.front().of(cause)));
    }
  if (!e.host) return;
  left_us_.emplace(kBetweenOpsPart, to_us(e.host->of(HostPart::between_ops)));
  left_us_.emplace(kCallingOpsPart, to_us(e.host->of(HostPart::dispatch)));
  left_us_.emplace(kDataPart, to_us(e.host->of(HostPart::data)));
}

double TimeLedger::take(const Claim& claim) {
  double missing = claim.us;
  for (const std::string& op : claim.ops) {
    const auto left = left_us_.find(op);
    if (left == left_us_.end()) return claim.us;
    const double taken = std::min(missing, left->second);
    left->second -= taken;
    missing -= taken;
  }
  return claim.us - missing;
}

double TimeLedger::left_us(std::string_view name) const {
  const auto left = left_us_.find(name);
  return left == left_us_.end() ? 0 : left->second;
}

void divide_time(const Explanation& e, std::vector<Finding>& findings) {
  TimeLedger ledger(e);
  std::vector<char> goes(findings.size());
  for (const size_t i : claim_order(findings)) {
    Finding& f = findings[i];
    double claimed = 0;
    double taken = 0;
    for (const Claim& claim : f.claims) {
      const double got = ledger.take(claim);
      // What calling ops takes is within their times too: it cuts what is about calling alone.
      if (!claim.ops.empty() && is_part(claim.ops.front()) && !is_general(f)) continue;
      claimed += claim.us;
      taken += got;
    }
    if (claimed <= 0 || taken >= (1 - kSameTime) * claimed) continue;
    const double gone = claimed - taken;
    if (taken < kKept * claimed && f.severity != Severity::error) {
      goes[i] = true;
      continue;
    }
    if (f.cost_us) f.cost_us = std::max(0.0, *f.cost_us - gone);
    if (f.saving_us) *f.saving_us *= taken / claimed;
    f.evidence.push_back(
        fmt::format("{} more of it is counted with other findings", duration_us(gone)));
  }
  size_t at = 0;
  std::erase_if(findings, [&](const Finding&) { return goes[at++] != 0; });
}

TimeLedger ledger_after(const Explanation& e, const std::vector<Finding>& findings) {
  TimeLedger ledger(e);
  for (const size_t i : claim_order(findings))
    for (const Claim& claim : findings[i].claims) ledger.take(claim);
  return ledger;
}

void claim_idle(const Explanation& e, Finding& f, const std::vector<IdleCause>& causes, double us) {
  Claim claim;
  double most = 0;
  for (const IdleCause cause : causes) {
    claim.ops.push_back(idle_part(cause));
    most += to_us(idle_ns(e, cause));
  }
  claim.us = std::min(us, most);
  if (claim.us > 0) f.claims.push_back(std::move(claim));
}

void claim_saving(Finding& f, const std::map<std::string, double, std::less<>>& op_us,
                  double saving_us) {
  double all_us = 0;
  for (const auto& [op, us] : op_us) all_us += us;
  if (all_us <= 0) return;
  const double share = std::min(1.0, saving_us / all_us);
  for (const auto& [op, us] : op_us)
    if (share * us > 0) f.claims.push_back({{op}, share * us});
}

void claim_op(Finding& f, std::string_view name, int64_t ns) {
  f.claims.push_back({{std::string(name)}, to_us(ns)});
}

void claim_losses(Finding& f, const OpLosses& losses) {
  for (const OpLoss& loss : losses.by_time()) claim_op(f, loss.name, loss.ns);
}

void claim_products(Finding& f, const std::vector<const HostProduct*>& products) {
  for (const HostProduct* p : products) claim_op(f, p->op, p->time.total_ns);
}

}  // namespace epilogue::trace
