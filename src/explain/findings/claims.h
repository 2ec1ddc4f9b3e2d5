// SPDX-License-Identifier: Apache-2.0
// The findings divide the run's time: what one claims, a later one cannot.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "epilogue/trace/explain.h"
#include "explain/findings/finding.h"

namespace epilogue::trace {

// Parts of the run that are no op, for Claim::ops.
inline constexpr std::string_view kBetweenOpsPart = "between ops";
inline constexpr std::string_view kCallingOpsPart = "calling ops";
inline constexpr std::string_view kDataPart = "data";
// Idle time of the busiest device by its cause: "idle: sync".
std::string idle_part(IdleCause cause);

// What is left of the time of each op and part.
class TimeLedger {
 public:
  explicit TimeLedger(const Explanation& e);
  // Takes what is there of a claim, from its ops in their order; in us. Of what the ledger does not
  // know all is taken.
  double take(const Claim& claim);
  double left_us(std::string_view name) const;

 private:
  std::map<std::string, double, std::less<>> left_us_;
};

// Each finding takes its claims, those that name a cause before those that name a symptom
// (FindingRule::is_general), the largest first. What is gone already no longer counts as its cost
// or its saving; a finding that keeps next to nothing goes. The findings keep their order.
void divide_time(const Explanation& e, std::vector<Finding>& findings);
// The ledger after all claims of `findings`.
TimeLedger ledger_after(const Explanation& e, const std::vector<Finding>& findings);

// Takes `us` of the device's idle time, of these causes in turn: at most what they are.
void claim_idle(const Explanation& e, Finding& f, const std::vector<IdleCause>& causes, double us);
// A saving on ops that take so long each, by name.
void claim_saving(Finding& f, const std::map<std::string, double, std::less<>>& op_us,
                  double saving_us);
void claim_op(Finding& f, std::string_view name, int64_t ns);
void claim_losses(Finding& f, const OpLosses& losses);
void claim_products(Finding& f, const std::vector<const HostProduct*>& products);

}  // namespace epilogue::trace
