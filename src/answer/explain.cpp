// SPDX-License-Identifier: Apache-2.0
// The findings of one trace, or of the ranks of one run.
#include "epilogue/trace/explain.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <filesystem>
#include <system_error>
#include <utility>

#include "answer/load.h"
#include "epilogue/base/error.h"
#include "report/documents.h"

namespace epilogue::trace {
namespace {

// The traces of a folder, by name.
std::vector<std::string> traces_of(const std::string& folder) {
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string path = entry.path().string();
    if (path.ends_with(".json") || path.ends_with(".json.gz")) paths.push_back(path);
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

// Read, and found to be something else.
bool is_no_trace(const Failure& failure) {
  return failure.code == FailureCode::not_a_trace || failure.code == FailureCode::not_json ||
         failure.code == FailureCode::empty;
}

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

Explanation explain_linked(const Trace& trace, const AnswerHooks& hooks) {
  const Links links = link(trace);
  poll(hooks);
  return explain(trace, links, hooks.poll);
}

Explanation explain_with_frames(const TraceInput& input, bool has_frames, const Trace& trace,
                                const AnswerHooks& hooks) {
  Explanation e = explain_linked(trace, hooks);
  poll(hooks);
  if (!needs_frames(input, has_frames, trace, e)) return e;
  const Result<Trace> again = read_whole(input, true, hooks);
  if (!again) return e;
  Explanation with = explain_linked(again.value(), hooks);
  e.gaps = std::move(with.gaps);
  e.host = std::move(with.host);
  e.findings = std::move(with.findings);
  return e;
}

Answer explain_trace(const TraceInput& input, const ExplainAnswerOptions& options,
                     const Trace& trace, const AnswerHooks& hooks) {
  auto explanation = std::make_shared<const Explanation>(
      explain_with_frames(input, options.modules, trace, hooks));
  return {explain_document(*explanation, options.top), explanation};
}

TraceInput rank_input(const TraceInput& folder, const std::string& path) {
  TraceInput input = folder;
  input.path = path;
  return input;
}

Answer ranks_answer(const std::string& folder, const std::deque<Trace>& traces,
                    const AnswerHooks& hooks) {
  std::deque<Links> links;
  std::vector<RankTrace> ranks;
  for (const Trace& trace : traces) {
    poll(hooks);
    ranks.push_back({trace, links.emplace_back(link(trace))});
  }
  if (const std::string reason = why_not_ranks(ranks); !reason.empty())
    throw Error(fmt::format(
        "{}: expected the ranks of one run, got {} traces of different runs: {}; name one trace, "
        "or compare two with epilogue diff A B",
        folder, traces.size(), reason));
  auto explanation = std::make_shared<const RanksExplanation>(explain_ranks(ranks));
  return {ranks_document(*explanation), explanation};
}

Result<Answer> explain_folder(const TraceInput& folder, const ExplainAnswerOptions& options,
                              const AnswerHooks& hooks) {
  const std::vector<std::string> paths = traces_of(folder.path);
  if (paths.empty())
    throw Error(folder.path + ": expected traces (*.json, *.json.gz), one per rank, got none");
  std::deque<Trace> traces;
  std::vector<Failure> failures;
  for (const std::string& path : paths) {
    Result<Trace> trace = load_trace(rank_input(folder, path), options.modules, hooks);
    // Without a rank that cannot be read the others would mislead.
    if (!trace && !is_no_trace(trace.failure())) return trace.failure();
    if (!trace) {
      failures.push_back(trace.failure());
      continue;
    }
    traces.push_back(std::move(trace).value());
  }
  if (traces.empty()) return failures.front();
  for (const Failure& failure : failures) warn(hooks, failure.message + "; left out");
  if (traces.size() > 1) return ranks_answer(folder.path, traces, hooks);
  const TraceInput only = rank_input(folder, traces.front().import.path);
  return explain_trace(only, options, traces.front(), hooks);
}

}  // namespace

Result<Answer> explain_answer(const TraceInput& input, const ExplainAnswerOptions& options,
                              const AnswerHooks& hooks) {
  std::error_code ignored;
  if (!input.bytes && std::filesystem::is_directory(input.path, ignored))
    return explain_folder(input, options, hooks);
  const Result<Trace> trace = load_trace(input, options.modules, hooks);
  if (!trace) return trace.failure();
  return explain_trace(input, options, trace.value(), hooks);
}

}  // namespace epilogue::trace
