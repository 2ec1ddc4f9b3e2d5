// SPDX-License-Identifier: Apache-2.0
// Is it together? A Python loop calls small ops again and again.
#include "explain/findings/claims.h"
#include "explain/findings/index.h"

namespace epilogue::trace {
namespace {

constexpr double kLoopShare = 0.05;
constexpr size_t kLoopsShown = 3;
constexpr size_t kLoopOpsShown = 6;

std::string loop_text(const std::vector<std::string>& ops) {
  std::string text;
  for (size_t i = 0; i < std::min(kLoopOpsShown, ops.size()); ++i)
    text += (i > 0 ? ", " : "") + ops[i];
  if (ops.size() > kLoopOpsShown) text += fmt::format(" and {} more", ops.size() - kLoopOpsShown);
  return text;
}

bool has_collectives(const CallLoop& loop) {
  return std::ranges::any_of(loop.ops,
                             [](const std::string& op) { return op.starts_with("c10d::"); });
}

void find_loops_of_calls(const Explanation& e, std::vector<Finding>& out) {
  if (!e.host && !waits_for_host(e)) return;
  size_t shown = 0;
  for (const CallLoop& loop : e.method.loops) {
    if (loop.is_work) continue;
    if (shown == kLoopsShown || to_us(loop.overhead_ns()) < kLoopShare * wall_us(e)) return;
    if (is_said(out, kSmallCollectivesRule) && has_collectives(loop)) continue;
    Finding f;
    f.severity = Severity::warning;
    f.title = fmt::format("a loop calls {} {} times, which takes {}: {} of that is not in the work",
                          loop_text(loop.ops), loop.iterations, duration(loop.wall_ns),
                          duration(loop.overhead_ns()));
    f.evidence.push_back(fmt::format(
        "{}, {} iterations each, {} ops in all, {} for each iteration",
        counted(loop.runs, "time", "times"), loop.iterations / std::max<int64_t>(1, loop.runs),
        loop.op_calls, duration(loop.wall_ns / std::max<int64_t>(1, loop.iterations))));
    f.evidence.push_back(fmt::format("most time is in {}", loop.longest));
    if (const std::string place = loop.place.text(); !place.empty())
      f.evidence.push_back("it stands" + place);
    if (!loop.is_shown)
      f.evidence.emplace_back(
          "if these are the layers of a model, they cannot be one: torch.compile or CUDA graphs "
          "make their calls cheaper");
    advise(f, loop.remedy);
    f.cost_us = to_us(loop.wall_ns);
    f.saving_us = to_us(loop.overhead_ns());
    f.confidence = loop.is_shown ? Confidence::medium : Confidence::low;
    f.where = FindingPlace::host;
    if (e.host) {
      int64_t in_ops = 0;
      for (const auto& [op, ns] : loop.op_ns) {
        claim_op(f, op, ns);
        in_ops += ns;
      }
      f.claims.push_back({{std::string(kBetweenOpsPart)}, to_us(loop.between_ns)});
      f.claims.push_back({{std::string(kCallingOpsPart)},
                          to_us(std::max<int64_t>(0, loop.wall_ns - in_ops - loop.between_ns) +
                                loop.op_calls * kDispatchNsPerOp)});
    }
    out.push_back(std::move(f));
    ++shown;
  }
}

// --- Loops of work ---------------------------------------------------------------------

constexpr double kWorkLoopShare = 0.1;

// A validation, say, which another finding is about.
bool is_beside_training(const Explanation& e, const CallLoop& loop) {
  return 2 * loop.after_backward_ns > loop.wall_ns &&
         std::ranges::any_of(e.method.wastes, [](const Waste& waste) {
           return waste.kind == WasteKind::beside_training;
         });
}

// The same layers run again and again: on the same data that is once too often, on other data it is
// one batch.
void find_loops_of_work(const Explanation& e, std::vector<Finding>& out) {
  if (!e.host) return;
  for (const CallLoop& loop : e.method.loops) {
    const int64_t per_run = loop.iterations / std::max<int64_t>(1, loop.runs);
    if (!loop.is_work || per_run < 2 || to_us(loop.wall_ns) < kWorkLoopShare * wall_us(e)) continue;
    if (is_beside_training(e, loop)) continue;
    Finding f;
    f.severity = Severity::info;
    f.title = fmt::format(
        "a loop runs the same layers {} times on the same shapes ({}): {} of {}, each time with "
        "the parameters of the time before",
        per_run, loop_text(loop.ops), duration(loop.wall_ns), duration(e.host->wall_ns));
    if (const std::string place = loop.place.text(); !place.empty())
      f.evidence.push_back("it stands" + place);
    f.evidence.emplace_back("no trace tells whether they read the same values each time");
    advise(
        f,
        "if a part of an iteration reads the same each time (an encoder, a condition, features), "
        "compute it once before the loop and reuse its result; if the iterations do not need "
        "each other (samples, views, targets), stack them into one batch");
    f.cost_us = to_us(loop.wall_ns / per_run * (per_run - 1));
    f.confidence = Confidence::low;
    f.where = FindingPlace::host;
    out.push_back(std::move(f));
    return;
  }
}

}  // namespace

constinit const ExplanationRule kWorkLoopRule = {
    .id = "work-loop",
    .says =
        "that training runs the same layers again and again within a step: on the same values "
        "once would do, on others one batch",
    .said_if =
        [] {
          return fmt::format(
              "as call-loop, but less than 30 % of the loop is calls and small ops, modules or "
              "gradients show that the iterations share their parameters, and the loop takes {} or "
              "more; not if most of it is behind the backward pass of a step and beside-training "
              "is said; low confidence, and a question",
              percent_text(kWorkLoopShare));
        },
    .find = find_loops_of_work,
    .where = FindingPlace::host,
    .is_general = true};

constinit const ExplanationRule kCallLoopRule = {
    .id = "call-loop",
    .says =
        "that a Python loop calls the same small ops again and again, and what takes all of "
        "them at once",
    .said_if =
        [] {
          return fmt::format(
              "the same outermost ops follow each other 8 times or more within a step (32 without "
              "steps), 30 % of the loop or more is calls and small ops, that is {} of the span or "
              "more, and modules, gradients or the ops themselves show that the iterations are no "
              "layers (else 32 iterations or more of at most 12 ops, low confidence); a gap of 1 "
              "ms "
              "that lasts 16 iterations is a wait, and no part of the loop",
              percent_text(kLoopShare));
        },
    .find = find_loops_of_calls,
    .where = FindingPlace::host};

}  // namespace epilogue::trace
