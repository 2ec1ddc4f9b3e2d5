// SPDX-License-Identifier: Apache-2.0
// The findings of one trace, or of the ranks of one run.
#include "epilogue/trace/explain.h"

#include <fmt/format.h>

#include <utility>

#include "explain/answer/cpu_choice.h"
#include "explain/answer/load.h"
#include "explain/answer/rank_folder.h"
#include "explain/findings/explain_ranks.h"
#include "explain/render/documents.h"

namespace epilogue::trace {
namespace {

Result<Answer> explain_file(const TraceInput& input, const ExplainAnswerOptions& options,
                            const AnswerHooks& hooks) {
  const std::optional<CpuPeaks> cpu = peaks_of_choice(options.cpu);  // said before a file is read
  // Frames name what the host did between ops; as events they also tell the times of modules.
  Result<Trace> trace = load_trace(input, frames_for(options.modules, PythonFrames::beside), hooks);
  if (!trace) return trace.failure();
  const Result<std::optional<GraphReference>> capture = read_capture(options.capture, hooks);
  if (!capture) return capture.failure();
  const Links links = link(trace.value());
  poll(hooks);
  auto explanation = std::make_shared<const Explanation>(explain_without_pauses(
      trace.value(), links,
      {.cpu = cpu, .capture = capture.value() ? &*capture.value() : nullptr, .between = hooks.poll},
      false));
  if (options.capture && explanation->graphs.is_empty()) warn_of_capture(explanation->path, hooks);
  warn_if_unused(options.cpu, trace.value(), *explanation, hooks);
  return Answer(explain_document(*explanation, options.top), explanation);
}

Result<Answer> explain_folder(const TraceInput& folder, const ExplainAnswerOptions& options,
                              const AnswerHooks& hooks) {
  const std::vector<std::string> paths = traces_of_folder(folder.path);
  if (paths.size() == 1) return explain_file(rank_input(folder, paths.front()), options, hooks);
  refuse_for_ranks(options.cpu, folder, paths.size());
  if (options.capture) refuse_capture_for_ranks(folder.path, paths.size());
  const Result<RankFolder> ranks = read_ranks(folder, paths, frames_for(options.modules), hooks);
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
