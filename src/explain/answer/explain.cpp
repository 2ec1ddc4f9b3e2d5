// SPDX-License-Identifier: Apache-2.0
// The findings of one trace, or of the ranks of one run.
#include "epilogue/trace/explain.h"

#include <utility>

#include "explain/answer/cpu_choice.h"
#include "explain/answer/load.h"
#include "explain/answer/rank_folder.h"
#include "explain/findings/explain_ranks.h"
#include "explain/render/documents.h"

namespace epilogue::trace {
namespace {

// Python frames name what the host did between ops. They are read where that is a question: in a
// run without a device, and where one stretch of idleness is long.
bool needs_frames(const TraceInput& input, bool has_frames, const Trace& trace,
                  const Explanation& e) {
  constexpr int64_t kLongGap = 20;  // a part of the span
  const bool is_whole = !is_part(input) && !is_stdin(input);
  const bool has_long_gap =
      !e.gaps.empty() && e.gaps.front().dur_ns * kLongGap >= e.timeline.span_ns();
  return is_whole && !has_frames && trace.import.python_functions_left_out > 0 &&
         (e.host || has_long_gap);
}

Explanation explain_linked(const Trace& trace, const std::optional<CpuPeaks>& cpu,
                           const AnswerHooks& hooks) {
  const Links links = link(trace);
  poll(hooks);
  return explain(trace, links, ExplainOptions{.cpu = cpu, .between = hooks.poll});
}

Explanation explain_with_frames(const TraceInput& input, const ExplainAnswerOptions& options,
                                const Trace& trace, const std::optional<CpuPeaks>& cpu,
                                const AnswerHooks& hooks) {
  Explanation e = explain_linked(trace, cpu, hooks);
  poll(hooks);
  if (!needs_frames(input, options.modules, trace, e)) return e;
  const Result<Trace> again = read_whole(input, true, hooks);
  if (!again) return e;
  Explanation with = explain_linked(again.value(), cpu, hooks);
  e.gaps = std::move(with.gaps);
  e.host = std::move(with.host);
  e.findings = std::move(with.findings);
  return e;
}

Result<Answer> explain_file(const TraceInput& input, const ExplainAnswerOptions& options,
                            const AnswerHooks& hooks) {
  const std::optional<CpuPeaks> cpu = peaks_of_choice(options.cpu);  // said before a file is read
  const Result<Trace> trace = load_trace(input, options.modules, hooks);
  if (!trace) return trace.failure();
  auto explanation = std::make_shared<const Explanation>(
      explain_with_frames(input, options, trace.value(), cpu, hooks));
  warn_if_unused(options.cpu, trace.value(), *explanation, hooks);
  return Answer(explain_document(*explanation, options.top), explanation);
}

Result<Answer> explain_folder(const TraceInput& folder, const ExplainAnswerOptions& options,
                              const AnswerHooks& hooks) {
  const std::vector<std::string> paths = traces_of_folder(folder.path);
  if (paths.size() == 1) return explain_file(rank_input(folder, paths.front()), options, hooks);
  refuse_for_ranks(options.cpu, folder, paths.size());
  const Result<RankFolder> ranks = read_ranks(folder, paths, options.modules, hooks);
  if (!ranks) return ranks.failure();
  if (ranks.value().paths.size() == 1)
    return explain_file(rank_input(folder, ranks.value().paths.front()), options,
                        without_warnings(hooks));
  auto explanation = std::make_shared<const RanksExplanation>(
      explain_ranks(ranks.value().digests, ranks.value().left_out));
  return Answer(ranks_document(*explanation, options.top), explanation);
}

}  // namespace

Result<Answer> explain_answer(const TraceInput& input, const ExplainAnswerOptions& options,
                              const AnswerHooks& hooks) {
  return is_folder(input) ? explain_folder(input, options, hooks)
                          : explain_file(input, options, hooks);
}

}  // namespace epilogue::trace
