// SPDX-License-Identifier: Apache-2.0
// Whether the steps of some traces take longer than those of earlier ones.
#include <fmt/format.h>

#include <utility>

#include "base/units.h"
#include "epilogue/base/error.h"
#include "epilogue/trace/diff.h"
#include "explain/answer/load.h"
#include "explain/compare/mann_whitney.h"
#include "explain/render/document.h"

namespace epilogue::trace {
namespace {

// One trace at a time is in memory.
Status add_steps(StepTimes& times, const std::vector<TraceInput>& inputs,
                 const AnswerHooks& hooks) {
  for (const TraceInput& input : inputs) {
    const Result<Trace> trace = load_trace(input, PythonFrames::counted, hooks);
    if (!trace) return trace.failure();
    const Links links = link(trace.value());
    if (links.steps.empty())
      throw Error((input.name.empty() ? input.path : input.name) +
                  ": expected ProfilerStep annotations (profiler.step()), got none");
    times.add(trace.value(), links);
    poll(hooks);
  }
  return ok_status();
}

// As many steps of each version as would do.
int64_t steps_needed(const StepComparison& c) {
  size_t n = 1;
  while (smallest_p(n, n) > c.p_needed) ++n;
  return static_cast<int64_t>(n);
}

std::string verdict_of(const StepChange& c) {
  if (c.is_slower) return "SLOWER";
  if (c.is_faster) return "faster";
  return c.is_within_tolerance ? "within tolerance" : "no change shown";
}

Table changes_table(const StepComparison& c) {
  Table table{.key = "comparisons", .has_text_header = true};
  table.columns = {{.key = "quantity", .header = "of each step", .width = 42},
                   {.key = "before_us", .header = "before", .width = 9, .is_left_aligned = false},
                   {.key = "after_us", .header = "after", .width = 9, .is_left_aligned = false},
                   {.key = "change_pct", .header = "change", .width = 9, .is_left_aligned = false},
                   {.key = "p", .header = "p", .width = 8, .is_left_aligned = false},
                   {.key = "verdict", .header = "verdict", .gap = 2},
                   {.key = "change_us", .is_for_people = false},
                   {.key = "superiority", .is_for_people = false},
                   {.key = "is_exact", .is_for_people = false}};
  const auto us = [](double ns) { return ns * 1e-3; };
  for (const StepChange& q : c.quantities)
    table.rows.push_back(
        {{q.doc, q.name},
         {format_duration_ns(static_cast<double>(q.before_ns)),
          us(static_cast<double>(q.before_ns))},
         {format_duration_ns(static_cast<double>(q.after_ns)), us(static_cast<double>(q.after_ns))},
         {fmt::format("{:+.1f} %", q.shift_pct), q.shift_pct},
         {fmt::format("{:.2g}", q.p), q.p},
         {verdict_of(q), verdict_of(q)},
         {"", us(q.shift_ns)},
         {"", q.superiority},
         {"", q.is_exact}});
  return table;
}

std::string counted_steps(int64_t steps, int64_t traces) {
  return counted(steps, "step", "steps") + " of " + counted(traces, "trace", "traces");
}

Document baseline_document(const StepComparison& c, const BaselineAnswerOptions& options) {
  Document document = {
      Paragraph{fmt::format("{} before, {} after", counted_steps(c.before_steps, c.before_traces),
                            counted_steps(c.after_steps, c.after_traces))},
      changes_table(c),
      Paragraph{fmt::format(
          "Mann-Whitney test over the steps ({}), one-sided; a change counts if p is {:.2g} or "
          "less and the median difference {:g} % or more.",
          c.quantities.front().is_exact ? "exact" : "normal approximation", c.p_needed,
          options.tolerance_pct)}};
  document.facts = {{"holds", !c.has_regression},
                    {"before_steps", c.before_steps},
                    {"after_steps", c.after_steps},
                    {"before_traces", c.before_traces},
                    {"after_traces", c.after_traces},
                    {"p_needed", c.p_needed},
                    {"tolerance_pct", options.tolerance_pct}};
  return document;
}

}  // namespace

Result<BaselineAnswer> baseline_answer(const std::vector<TraceInput>& before,
                                       const std::vector<TraceInput>& after,
                                       const BaselineAnswerOptions& options,
                                       const AnswerHooks& hooks) {
  StepTimes old_times;
  StepTimes new_times;
  if (const Status read = add_steps(old_times, before, hooks); !read) return read.failure();
  if (const Status read = add_steps(new_times, after, hooks); !read) return read.failure();
  const StepComparison compared =
      compare_steps(old_times, new_times, {.tolerance_pct = options.tolerance_pct});
  if (!compared.can_decide)
    throw Error(fmt::format(
        "too few steps to decide: {} before and {} after can give p = {:.2g} at best, and {:.2g} "
        "is needed; {} steps of each would do",
        compared.before_steps, compared.after_steps, compared.smallest_p, compared.p_needed,
        steps_needed(compared)));
  return BaselineAnswer{Answer(baseline_document(compared, options), nullptr),
                        compared.has_regression};
}

}  // namespace epilogue::trace
