// SPDX-License-Identifier: Apache-2.0
// What changed between two traces.
#include "epilogue/trace/diff.h"

#include <fmt/format.h>

#include "epilogue/base/error.h"
#include "explain/answer/load.h"
#include "explain/render/documents.h"

namespace epilogue::trace {
namespace {

struct Side {
  std::optional<Trace> trace;
  Links links;
  std::optional<CapturedOps> captured;
};

std::optional<Failure> read_side(const TraceInput& input, const AnswerHooks& hooks, Side& side) {
  Result<Trace> trace = load_trace(input, PythonFrames::counted, hooks);
  if (!trace) return trace.failure();
  side.trace = std::move(trace).value();
  side.links = link(*side.trace);
  poll(hooks);
  return std::nullopt;
}

// Of both sides, by the captures that there are.
std::optional<Failure> name_graphs(const std::vector<TraceInput>& captures,
                                   const AnswerHooks& hooks, std::array<Side, 2>& sides) {
  bool has_graphs = false;
  for (size_t i = 0; i < captures.size(); ++i) {
    const Result<std::optional<GraphReference>> capture = read_capture(captures[i], hooks);
    if (!capture) return capture.failure();
    for (size_t side = 0; side < sides.size(); ++side) {
      if (captures.size() > 1 && side != i) continue;
      sides[side].captured = captured_ops(*sides[side].trace, sides[side].links, &*capture.value());
      has_graphs |= sides[side].captured->graph_ns > 0;
      poll(hooks);
    }
  }
  if (!has_graphs && !captures.empty())
    warn_of_capture(
        fmt::format("{} and {}", sides[0].trace->import.path, sides[1].trace->import.path), hooks);
  return std::nullopt;
}

const CapturedOps* captured_of(const Side& side) {
  return side.captured ? &*side.captured : nullptr;
}

}  // namespace

Result<Answer> diff_answer(const TraceInput& before, const TraceInput& after,
                           const DiffAnswerOptions& options, const AnswerHooks& hooks) {
  if (options.captures.size() > 2)
    throw Error(fmt::format("[diff] expected one capture of both traces or one of each, got {}",
                            options.captures.size()));
  std::array<Side, 2> sides;
  if (const auto failure = read_side(before, hooks, sides[0])) return *failure;
  if (const auto failure = read_side(after, hooks, sides[1])) return *failure;
  if (const auto failure = name_graphs(options.captures, hooks, sides)) return *failure;
  auto diff = std::make_shared<const TraceDiff>(
      diff_traces(*sides[0].trace, sides[0].links, *sides[1].trace, sides[1].links,
                  {.captured = {captured_of(sides[0]), captured_of(sides[1])}}));
  return Answer(diff_document(*diff, options.top), diff);
}

Result<Answer> diff_answer(const TraceInput& before, const TraceInput& after, int top,
                           const AnswerHooks& hooks) {
  return diff_answer(before, after, DiffAnswerOptions{.top = top}, hooks);
}

}  // namespace epilogue::trace
