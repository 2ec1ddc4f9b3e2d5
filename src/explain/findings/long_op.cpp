// SPDX-License-Identifier: Apache-2.0
// An op that holds a good part of the time, and what the four questions of the method say of it.
#include "explain/findings/claims.h"
#include "explain/findings/index.h"
#include "explain/knowledge/op_knowledge.h"

namespace epilogue::trace {
namespace {

// Of the run, less what other findings are about.
constexpr double kShownLossShare = 0.05;  // of an op whose loss the trace shows
constexpr double kAsideShare = 0.1;       // of one that programs are rarely about
constexpr double kEitherShare = 0.3;      // of one that may be the program's work, or is unknown
constexpr double kMainShare = 0.2;        // of one that is the program's work mostly

constexpr std::string_view kKeepResult =
    "; if what it reads is the same in several of these calls, or changes little, compute it once "
    "(or every few steps) outside the loop and reuse the result";

double share_asked(const OpKnowledge* known, const CostAnswer* loss) {
  if (loss != nullptr) return kShownLossShare;
  if (known == nullptr || known->role == OpRole::either) return kEitherShare;
  return known->role == OpRole::aside ? kAsideShare : 2;  // main work alone is no loss
}

// It names the op and is about half of its time or more; where the op has a loss of its own, it
// saves half of it.
bool is_about(const Finding& finding, const CostItem& item, bool has_loss) {
  const double us =
      has_loss && finding.saving_us ? *finding.saving_us : finding.cost_us.value_or(0);
  // Others claim all the time that they are about: the ledger knows it.
  const bool claims_a_part = finding.id == kFusionRule.id || finding.id.starts_with("unfused-") ||
                             finding.id == kPageFaultsRule.id;
  if (finding.id == kVerdictRule.id || finding.id == kSlowStepsRule.id ||
      (!finding.claims.empty() && !claims_a_part) || 2 * us < to_us(item.ns))
    return false;
  const auto names = [&](const std::string& text) {
    return text.find(item.op) != std::string::npos;
  };
  return names(finding.title) ||
         std::any_of(finding.evidence.begin(), finding.evidence.end(), names);
}

// Another finding is about a tenth of the time: the program's own work needs no word.
bool is_explained(const std::vector<Finding>& findings, double wall_ns) {
  return std::any_of(findings.begin(), findings.end(), [&](const Finding& f) {
    return f.id != kVerdictRule.id &&
           f.saving_us.value_or(f.cost_us.value_or(0)) * kNsPerUs >= kAsideShare * wall_ns;
  });
}

// An op whose own time is what it does for the ops that it calls.
bool is_frame(std::string_view op) {
  return op.starts_with("autograd::engine::") || op.find("Backward") != std::string_view::npos ||
         op.starts_with("Optimizer.") || op.starts_with("Torch-Compiled") ||
         op.starts_with("## Call");
}

void add_item_lines(const CostItem& item, const CostAnswer* told, Finding& f) {
  f.evidence.push_back(calls_text(item.count, item.ns));
  if (!item.asked.empty()) f.evidence.push_back("most of it for " + item.asked);
  for (size_t i = 0; i < std::min<size_t>(2, item.shapes.size()); ++i) {
    const CostShape& shape = item.shapes[i];
    if (shape.text.empty()) continue;
    f.evidence.push_back(fmt::format("on {}: {}, {} in all", shape.text,
                                     counted(shape.time.count, "call", "calls"),
                                     duration(shape.time.total_ns)));
  }
  CostPlace where = item.place;
  if (where.op == item.op || where.op == item.asked) where.op.clear();
  if (const std::string place = where.text(); !place.empty())
    f.evidence.push_back("most of it" + place);
  for (const CostAnswer& answer : item.answers)
    if (!answer.is_loss && answer.question == CostQuestion::limit && answer.action.empty())
      f.evidence.push_back(answer.text);
  for (const CostAnswer& answer : item.answers)
    if (&answer != told && answer.is_loss) {
      f.evidence.push_back(answer.text);
      if (!answer.action.empty()) f.evidence.push_back(answer.action);
    }
}

bool is_needless(const Finding& f) {
  const auto* const rule = std::ranges::find(kExplanationRules, f.id, &ExplanationRule::id);
  return rule != std::end(kExplanationRules) && (*rule)->is_needless;
}

// Another finding is about the op's time: it says what the trace shows of the op, too.
void tell(const CostAnswer& loss, const CostItem& item, std::vector<Finding>& findings) {
  for (Finding& f : findings) {
    const bool claims = std::ranges::any_of(f.claims, [&](const Claim& claim) {
      return std::ranges::find(claim.ops, item.op) != claim.ops.end() &&
             2 * claim.us >= to_us(item.ns);
    });
    if (!claims && !is_about(f, item, true)) continue;
    f.evidence.push_back(item.op + ": " + loss.text);
    // Who says that the work need not run says what to do in its place.
    if (!loss.action.empty() && !is_needless(f)) advise(f, loss.action);
    return;
  }
}

// Several ops of which one op consists have one answer ("aten::dropout: ..."): one finding.
bool joins(const CostAnswer& loss, const CostItem& item, double us,
           std::vector<Finding>& findings) {
  const auto is_end = [](std::string_view text, std::string_view of) {
    return of.ends_with(": " + std::string(text)) || of == text;
  };
  for (Finding& f : findings) {
    if (f.id != kLongOpRule.id) continue;
    const size_t said = f.title.find("): ");
    if (said == std::string::npos) continue;
    const std::string text = f.title.substr(said + 3);
    if (!is_end(text, loss.text) && !is_end(loss.text, text)) continue;
    // The action stays last.
    f.evidence.insert(f.evidence.end() - (f.action.empty() ? 0 : 1),
                      fmt::format("{} of {} too", duration_us(us), item.op));
    f.cost_us = f.cost_us.value_or(0) + us;
    f.claims.push_back({{item.op}, us});
    return true;
  }
  return false;
}

void find_long_ops(const Explanation& e, std::vector<Finding>& out) {
  const TimeLedger ledger = ledger_after(e, out);
  const auto wall = static_cast<double>(e.method.wall_ns);
  for (const CostItem& item : e.method.items) {
    // What the program asked for says more than the fill or the copy that it consists of.
    const OpKnowledge* known = op_knowledge(item.op);
    const OpKnowledge* asked = item.asked.empty() ? nullptr : op_knowledge(item.asked);
    if (asked != nullptr && asked->role != OpRole::main) known = asked;
    const CostAnswer* loss =
        !item.answers.empty() && item.answers.front().is_loss ? &item.answers.front() : nullptr;
    const double left_ns = ledger.left_us(item.op) * kNsPerUs;
    if (wall <= 0 || is_frame(item.op)) continue;
    if (left_ns < share_asked(known, loss) * wall) {
      if (loss != nullptr) tell(*loss, item, out);
      continue;
    }
    if (known != nullptr && known->cost == OpCost::metadata) continue;
    if (std::any_of(out.begin(), out.end(),
                    [&](const Finding& f) { return is_about(f, item, loss != nullptr); })) {
      if (loss != nullptr) tell(*loss, item, out);
      continue;
    }
    if (loss != nullptr && joins(*loss, item, left_ns / kNsPerUs, out)) continue;
    Finding f;
    f.severity = loss != nullptr ? Severity::warning : Severity::info;
    f.title = fmt::format("{} takes {} of {} ({:.0f} %)", item.op, duration(item.ns),
                          duration(e.method.wall_ns), 100 * static_cast<double>(item.ns) / wall);
    if (loss != nullptr) f.title += ": " + loss->text;
    add_item_lines(item, loss, f);
    f.id = kLongOpRule.id;
    f.cost_us = left_ns / kNsPerUs;
    f.claims.push_back({{item.op}, left_ns / kNsPerUs});
    f.confidence = loss != nullptr ? Confidence::high : Confidence::medium;
    // Programs are rarely about it: its result may be there already.
    const auto steps = static_cast<int64_t>(e.steps.size());
    const int64_t per_step = steps > 1 ? item.count / steps : 0;
    const bool is_repeated = known != nullptr && known->role != OpRole::main && per_step >= 2;
    if (is_repeated) f.evidence.push_back(fmt::format("{} times in each step", per_step));
    if (loss != nullptr && !loss->action.empty()) {
      advise(f, loss->action);
    } else if (known != nullptr && !known->remedy.empty()) {
      if (loss == nullptr && !known->misuse.empty())
        f.evidence.push_back(fmt::format("a loss if {}", known->misuse));
      advise(f, is_repeated ? std::string(known->remedy) + std::string(kKeepResult)
                            : std::string(known->remedy));
    } else {
      f.evidence.emplace_back("no remedy known");
    }
    out.push_back(std::move(f));
  }
}

// The remedy without a memory format that the run has already.
std::string remedy_beyond(const CostItem& item, std::string_view remedy) {
  constexpr std::string_view kFormat = "channels_last for the model and its inputs; ";
  if (item.is_channels_last && remedy.starts_with(kFormat)) remedy.remove_prefix(kFormat.size());
  return std::string(remedy);
}

// The op that most of the time goes to, where nothing else is found: no loss, but its place.
void find_main_work(const Explanation& e, std::vector<Finding>& out) {
  const auto wall = static_cast<double>(e.method.wall_ns);
  if (wall <= 0 || is_explained(out, wall)) return;
  for (const CostItem& item : e.method.items) {
    const OpKnowledge* known = op_knowledge(item.op);
    if (known == nullptr || known->role != OpRole::main || known->cost == OpCost::metadata ||
        is_frame(item.op) || static_cast<double>(item.ns) < kMainShare * wall)
      continue;
    Finding f;
    f.severity = Severity::info;
    f.title = fmt::format("{} of the time is in {}, and no loss is found: {} of {} ({:.0f} %)",
                          2 * static_cast<double>(item.ns) >= wall ? "most" : "the largest part",
                          item.op, duration(item.ns), duration(e.method.wall_ns),
                          100 * static_cast<double>(item.ns) / wall);
    add_item_lines(item, nullptr, f);
    f.cost_us = to_us(item.ns);
    f.confidence = Confidence::medium;
    if (!known->misuse.empty()) f.evidence.push_back(fmt::format("a loss if {}", known->misuse));
    if (known->remedy.empty())
      f.evidence.emplace_back("no remedy known");
    else
      advise(f, "if this is the program's own work, " + remedy_beyond(item, known->remedy));
    out.push_back(std::move(f));
    return;
  }
}

}  // namespace

constinit const ExplanationRule kMainWorkRule = {
    .id = "main-work",
    .says = "which op most of the time goes to, and where it is called, if nothing else is found",
    .said_if =
        [] {
          return fmt::format(
              "one op that programs are about (a product, a convolution, a norm, ...) takes {} of "
              "the time or more, and no other finding is about {} or more",
              percent_text(kMainShare), percent_text(kAsideShare));
        },
    .find = find_main_work,
    .is_general = true};

constinit const ExplanationRule kLongOpRule = {
    .id = "long-op",
    .says =
        "that one op takes a good part of the run, where it is called, what the trace shows of "
        "its loss, and what to do; no other finding is about that time",
    .said_if =
        [] {
          return fmt::format(
              "it takes {} of the wall time (with a device: of the span) or more and its shapes, "
              "arguments or neighbours show a loss, {} if programs are rarely about such an op "
              "(sorting, unique, gradients of indexing, ...), {} if some are (transforms, "
              "factorisations, custom ops, ...); products, convolutions, norms, elementwise ops "
              "and copies alone are no loss",
              percent_text(kShownLossShare), percent_text(kAsideShare), percent_text(kEitherShare));
        },
    .find = find_long_ops};

}  // namespace epilogue::trace
