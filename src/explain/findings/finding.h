// SPDX-License-Identifier: Apache-2.0
// A finding as its file describes it, and what the findings share: shares of the run, lines of
// evidence. index.h lists all findings; docs/findings.md is made of these descriptions.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/units.h"
#include "epilogue/trace/explain.h"
#include "explain/host/op_visitor.h"

namespace epilogue::trace {

// A finding that looks at single ops: `make` gives what visits the ops of a run without a device,
// `find` reads what it collected. Findings of the same `make` share one visitor.
struct OpVisits {
  std::unique_ptr<OpVisitor> (*make)() = nullptr;
  void (*find)(const Explanation&, const OpVisitor&, std::vector<Finding>&) = nullptr;
};

template <class Visitor>
std::unique_ptr<OpVisitor> make_visitor() {
  return std::make_unique<Visitor>();
}

// For FindingRule::visits. `find` is called for runs without a device only.
template <class Visitor, void (*find)(const Explanation&, const Visitor&, std::vector<Finding>&)>
constexpr OpVisits visits_of() {
  return {make_visitor<Visitor>,
          [](const Explanation& e, const OpVisitor& visitor, std::vector<Finding>& out) {
            if (e.host) find(e, static_cast<const Visitor&>(visitor), out);
          }};
}

// `find` (or `visits.find`) adds what it has to say, mostly nothing. A finding that it gives no id
// gets the rule's.
template <class Input>
struct FindingRule {
  std::string_view id;       // "": its findings bring ids along
  std::string_view says;     // a cell of docs/findings.md
  std::string (*said_if)();  // the same: numbers come from the thresholds
  void (*find)(const Input&, std::vector<Finding>&) = nullptr;
  OpVisits visits = {};
  Confidence confidence = Confidence::medium;  // of findings that do not say theirs
  FindingPlace where = FindingPlace::device;   // the same
  bool is_general = false;   // names a symptom: what names causes claims its time first
  bool is_needless = false;  // the work need not run: it claims before what would make it faster
};
using ExplanationRule = FindingRule<Explanation>;
using RanksRule = FindingRule<RanksExplanation>;

// Gives findings what they leave to their rule.
template <class Input>
void complete_findings(const FindingRule<Input>& rule, std::vector<Finding>& findings,
                       size_t first) {
  for (; first < findings.size(); ++first) {
    Finding& f = findings[first];
    if (f.id.empty()) f.id = rule.id;
    if (!f.where) f.where = rule.where;
    if (!f.confidence && (f.saving_us || f.cost_us)) f.confidence = rule.confidence;
    // The verdict is no loss: it frames the others.
    constexpr std::string_view kNoRemedy = "no remedy known";
    if (f.action.empty() && rule.id != "verdict" &&
        (f.evidence.empty() || f.evidence.back() != kNoRemedy))
      f.evidence.emplace_back(kNoRemedy);
  }
}

// A finding of the rule is among those so far.
inline bool is_said(const std::vector<Finding>& findings, const ExplanationRule& rule) {
  return std::ranges::find(findings, rule.id, &Finding::id) != findings.end();
}

// --- Thresholds of several findings, and how docs/findings.md words them -------------------------

inline constexpr double kMinShare = 0.005;    // of the span: less is not worth a line
inline constexpr double kNotableShare = 0.1;  // of the wall time of a run without a device
// A simple op on kManyBytes or more that is slower than this waits for threads: one core of any
// machine moves more.
inline constexpr double kContendedGbPerS = 0.5;
inline constexpr int64_t kManyBytes = 256 << 10;
inline constexpr size_t kHostFindings = 3;  // lines of evidence

inline std::string percent_text(double share) { return fmt::format("{:g} %", 100 * share); }
inline std::string over_min_share() { return "over " + percent_text(kMinShare) + " of the span"; }
inline std::string share_of_span(double share) {
  return percent_text(share) + " of the span or more";
}
inline std::string share_of_wall(double share = kNotableShare) {
  return percent_text(share) + " of the wall time or more";
}
// "256 KiB": a round number, unlike format_bytes.
inline std::string round_bytes(int64_t bytes) {
  return bytes >= 1 << 20 ? fmt::format("{} MiB", bytes >> 20) : fmt::format("{} KiB", bytes >> 10);
}

// --- Times and shares ----------------------------------------------------------------------------

inline double wall_us(const Explanation& e) { return to_us(e.timeline.span_ns()); }

inline bool is_worth_it(const Explanation& e, double saving_us) {
  return saving_us > kMinShare * wall_us(e);
}

inline bool is_share_of(const HostTime& host, int64_t ns, double share) {
  return static_cast<double>(ns) >= share * static_cast<double>(host.wall_ns);
}
inline bool is_notable(const HostTime& host, int64_t ns) {
  return is_share_of(host, ns, kNotableShare);
}

// Device time that some idle cause takes, on the busiest device.
inline int64_t idle_ns(const Explanation& e, IdleCause cause) {
  return e.idle.empty() ? 0 : e.idle.front().of(cause);
}

// The long stretches that idle-gap is about: nobody else claims their time.
std::vector<const IdleGap*> named_gaps(const Explanation& e);

// The device waits for the host.
inline bool waits_for_host(const Explanation& e) {
  const Bound bound = e.verdicts.whole.bound;
  return bound == Bound::overhead || bound == Bound::launch;
}

// --- Sentences -----------------------------------------------------------------------------------

// Adds advice: as evidence and as the finding's action.
inline void advise(Finding& f, std::string_view action) {
  f.action = action;
  f.evidence.emplace_back(action);
}

inline std::string duration(int64_t ns) { return format_duration_ns(static_cast<double>(ns)); }
inline std::string duration_us(double us) { return format_duration_ns(us * kNsPerUs); }
inline std::string in_place(const std::string& where) {
  return where.empty() ? "" : " in " + where;
}

// "cudaLaunchKernel: 96 calls, median 4.00 us, in all 1.01 ms"
std::string times_line(const std::string& name, const std::string& count, const Distribution& time);
// "12.0 ms of 48.0 ms (25 %)"
std::string share(const HostTime& host, int64_t ns);
// "24 calls, mean 10.4 ms"
std::string calls_text(int64_t count, int64_t ns);

// --- Ops that visitors collect -------------------------------------------------------------------

// Calls of one name that share a cause of lost time.
struct OpLoss {
  std::string_view name;  // of the trace
  int64_t count = 0;
  int64_t ns = 0;
  int64_t bytes = 0;  // that they read and write; 0: not known

  double gb_per_s() const {
    return ns > 0 ? static_cast<double>(bytes) / static_cast<double>(ns) : 0;
  }
};

// Losses by name.
class OpLosses {
 public:
  void add(std::string_view name, int64_t ns, int64_t bytes = 0, int64_t count = 1);
  bool empty() const { return by_name_.empty(); }
  bool contains(std::string_view name) const { return by_name_.contains(name); }
  int64_t total_ns() const;
  std::vector<OpLoss> by_time() const;

 private:
  std::map<std::string_view, OpLoss> by_name_;
};

template <size_t n>
bool is_one_of(const std::array<std::string_view, n>& list, std::string_view name) {
  return std::ranges::find(list, name) != list.end();
}
// Reads or writes by index or mask.
bool is_indexing_op(std::string_view name);

// "8.00 MiB each"
std::string bytes_each(const OpLoss& loss);

// The one op of `losses` if it takes a notable part; `title` has a place for what it takes.
std::optional<Finding> finding_of_op(const Explanation& e, const OpLosses& losses,
                                     fmt::format_string<std::string> title,
                                     std::string_view action);

// --- Matrix products -----------------------------------------------------------------------------

inline constexpr size_t kGemmsShown = 3;

// "aten::mm 64 x 64 x 64"
std::string product_text(const Gemm& g);
std::string gemm_line(const Gemm& g);

// Products of one kind in a run without a device, by time.
template <class Predicate>
std::vector<const HostProduct*> products_that(const HostTime& host, Predicate&& is_one) {
  std::vector<const HostProduct*> list;
  for (const HostProduct& p : host.products)
    if (is_one(p)) list.push_back(&p);
  return list;
}
int64_t total_of(const std::vector<const HostProduct*>& products);
// The longest of them, a line each.
void add_product_lines(const HostTime& host, const std::vector<const HostProduct*>& products,
                       Finding& f);

// --- Starts of device work -----------------------------------------------------------------------

inline constexpr std::string_view kFirstCallAdvice =
    "leave first calls out of the trace: schedule(wait, warmup), or record with_stack";

// Half of the kernels or more are started by compiled code.
bool is_mostly_compiled(const Explanation& e);
// Every launch is of a graph: what leaves launches to graphs is no advice.
inline bool launches_graphs_alone(const Explanation& e) {
  return e.launches.launches > 0 && e.launches.graph_launches == e.launches.launches;
}
// What to do about a runtime call that starts no work and takes long (slow-call), and about an op
// that makes the host wait (sync); "" if nothing is known.
std::string_view slow_call_advice(std::string_view call);
std::string_view sync_advice(std::string_view op);
// Null if no op starts no work.
const NoLaunchOp* longest_no_launch(const Explanation& e);

}  // namespace epilogue::trace
