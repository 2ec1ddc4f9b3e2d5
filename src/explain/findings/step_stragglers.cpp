// SPDX-License-Identifier: Apache-2.0
// Who is waited for, step after step.
#include "explain/findings/index.h"

namespace epilogue::trace {
namespace {

// Fewer steps do not show a habit.
constexpr int64_t kMinWaitSteps = 3;

// Time that the ranks lose to each other, as a share of the steps: less is not worth a line.
constexpr double kMinLostShare = 0.02;

// A rank that is the last in this share of the steps is always the same one.
constexpr double kSameRankShare = 0.75;

struct StepLosses {
  int64_t steps = 0;
  int64_t span_ns = 0;
  int64_t lost_ns = 0;
  const StepWaits* worst = nullptr;  // the step in which most is lost

  double share_of(int64_t ns) const {
    return span_ns > 0 ? static_cast<double>(ns) / static_cast<double>(span_ns) : 0;
  }
};

StepLosses losses_of(const RanksExplanation& e) {
  StepLosses losses;
  for (const StepWaits& step : e.collectives.steps) {
    ++losses.steps;
    losses.span_ns += step.span_ns;
    losses.lost_ns += step.lost_ns;
    if (losses.worst == nullptr || step.lost_ns > losses.worst->lost_ns) losses.worst = &step;
  }
  return losses;
}

// Null if no rank is the last in most steps.
const Straggler* same_rank(const RanksExplanation& e, const StepLosses& losses) {
  const std::vector<Straggler>& list = e.collectives.stragglers;
  const auto most =
      std::max_element(list.begin(), list.end(),
                       [](const Straggler& a, const Straggler& b) { return a.steps < b.steps; });
  if (most == list.end() ||
      static_cast<double>(most->steps) < kSameRankShare * static_cast<double>(losses.steps))
    return nullptr;
  return &*most;
}

std::string lost_text(const StepLosses& losses, int64_t ns) {
  return fmt::format("{} of {} ({:.1f} %)", duration(ns), duration(losses.span_ns),
                     100 * losses.share_of(ns));
}

void add_step_evidence(const RanksExplanation& e, const StepLosses& losses, Finding& f) {
  constexpr ptrdiff_t kShown = 3;
  std::string list;
  const std::vector<Straggler>& ranks = e.collectives.stragglers;
  for (const Straggler& s : ranks) {
    if (&s - ranks.data() == kShown) break;
    list += fmt::format("{}rank {} in {}, {} lost to it", list.empty() ? "the last: " : "; ",
                        s.rank, counted(s.steps, "step", "steps"), duration(s.lost_ns));
  }
  if (std::ssize(ranks) > kShown)
    list += fmt::format("; {} in others",
                        counted(std::ssize(ranks) - kShown, "more rank", "more ranks"));
  f.evidence.push_back(std::move(list));
  f.evidence.push_back(fmt::format("most is lost in step {}: {} of {}, to rank {}",
                                   losses.worst->step, duration(losses.worst->lost_ns),
                                   duration(losses.worst->span_ns), *losses.worst->last_rank));
  if (!e.has_all_ranks())
    f.evidence.emplace_back("ranks that are not compared may arrive later still");
}

void set_cost(const RanksExplanation& e, int64_t lost_ns, Finding& f) {
  f.cost_us = to_us(lost_ns);
  // A rank that was not compared may hold up all of them.
  if (e.has_all_ranks()) f.saving_us = f.cost_us;
}

void find_persistent(const RanksExplanation& e, std::vector<Finding>& out) {
  const StepLosses losses = losses_of(e);
  if (losses.steps < kMinWaitSteps) return;
  const Straggler* same = same_rank(e, losses);
  if (same == nullptr || losses.share_of(same->lost_ns) < kMinLostShare) return;
  Finding f;
  f.severity = Severity::warning;
  f.title = fmt::format("rank {} is the last in {} of {} steps: the others lose {}", same->rank,
                        same->steps, losses.steps, lost_text(losses, same->lost_ns));
  add_step_evidence(e, losses, f);
  advise(f, fmt::format("compare rank {} with the others: its clocks and temperature, what else "
                        "runs there, its data loader, its share of the work",
                        same->rank));
  set_cost(e, same->lost_ns, f);
  out.push_back(std::move(f));
}

void find_changing(const RanksExplanation& e, std::vector<Finding>& out) {
  const StepLosses losses = losses_of(e);
  if (losses.steps < kMinWaitSteps || losses.share_of(losses.lost_ns) < kMinLostShare) return;
  if (same_rank(e, losses) != nullptr) return;
  Finding f;
  f.severity = Severity::warning;
  f.title = fmt::format("no rank is always the last: in {} steps the others lose {}", losses.steps,
                        lost_text(losses, losses.lost_ns));
  add_step_evidence(e, losses, f);
  advise(f,
         "give all ranks batches that take equally long (lengths of sequences, experts), and look "
         "for pauses: garbage collection, a data loader that runs dry");
  set_cost(e, losses.lost_ns, f);
  out.push_back(std::move(f));
}

}  // namespace

constinit const RanksRule kPersistentStragglerRule = {
    .id = "persistent-straggler",
    .says = "that one rank is the last in most steps, and what the others lose to it",
    .said_if =
        [] {
          return fmt::format(
              "it is the last in {} of {} steps or more, and the others lose {} of these steps or "
              "more",
              percent_text(kSameRankShare), kMinWaitSteps, percent_text(kMinLostShare));
        },
    .find = find_persistent};
constinit const RanksRule kChangingStragglersRule = {
    .id = "changing-stragglers",
    .says = "that the ranks wait for each other, but not for the same one",
    .said_if =
        [] {
          return fmt::format(
              "no rank is the last in {} of {} steps or more, and {} of these steps or more are "
              "lost",
              percent_text(kSameRankShare), kMinWaitSteps, percent_text(kMinLostShare));
        },
    .find = find_changing};

}  // namespace epilogue::trace
