// SPDX-License-Identifier: Apache-2.0
// epilogue explain TRACE|DIR: the findings of one trace, or of the ranks of one run.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <deque>
#include <filesystem>
#include <memory>
#include <optional>
#include <utility>

#include "epilogue/base/error.h"
#include "epilogue/trace/explain.h"
#include "epilogue/trace/file.h"
#include "report/documents.h"
#include "tools/epilogue/arguments.h"
#include "tools/epilogue/command.h"
#include "tools/epilogue/trace/trace_input.h"

namespace epilogue::tool {
namespace {

struct Options {
  std::string path;
  TracePart part;
  int top = 10;
  bool modules = false;
  Format format = Format::text;
};

// The traces of a folder, by name.
std::vector<std::string> traces_of(const std::string& folder) {
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string path = entry.path().string();
    if (path.ends_with(".json") || path.ends_with(".json.gz")) paths.push_back(path);
  }
  std::sort(paths.begin(), paths.end());
  if (paths.empty())
    throw Error(folder + ": expected traces (*.json, *.json.gz), one per rank, got none");
  return paths;
}

// Read, and found to be something else.
bool is_no_trace(const Failure& failure) {
  return failure.code == FailureCode::not_a_trace || failure.code == FailureCode::not_json ||
         failure.code == FailureCode::empty;
}

// Python frames name what the host did between ops. They are read where that is a question: in a
// run without a device, and where one stretch of idleness is long.
bool needs_frames(const Options& o, const trace::Trace& trace, const trace::Explanation& e) {
  constexpr int64_t kLongGap = 20;  // a part of the span
  const bool is_whole = !o.part.step && !o.part.from_ms && !o.part.to_ms && o.path != "-";
  const bool has_long_gap =
      !e.gaps.empty() && e.gaps.front().dur_ns * kLongGap >= e.timeline.span_ns();
  return is_whole && !o.modules && trace.import.python_functions_left_out > 0 &&
         (e.host || has_long_gap);
}

trace::Explanation explain_with_frames(const Options& o, const trace::Trace& trace) {
  trace::Explanation e = trace::explain(trace, trace::link(trace));
  if (!needs_frames(o, trace, e)) return e;
  const Result<trace::Trace> again =
      trace::read_trace(trace.import.path, {.python_functions = true});
  if (!again) return e;
  trace::Explanation with = trace::explain(again.value(), trace::link(again.value()));
  e.gaps = std::move(with.gaps);
  e.host = std::move(with.host);
  e.findings = std::move(with.findings);
  return e;
}

int explain_trace(const Options& o, const trace::Trace& trace) {
  const trace::Explanation explanation = explain_with_frames(o, trace);
  print(trace::explain_document(explanation, o.top), o.format);
  return kExitFine;
}

int explain_folder(const Options& o) {
  const std::vector<std::string> paths = traces_of(o.path);
  std::deque<trace::Trace> traces;
  std::vector<Failure> failures;
  for (const std::string& path : paths) {
    Result<trace::Trace> trace = try_load_trace(path, o.part, o.modules);
    // Without a rank that cannot be read the others would mislead.
    if (!trace && !is_no_trace(trace.failure())) throw Error(trace.failure().message);
    if (!trace) {
      failures.push_back(trace.failure());
      continue;
    }
    traces.push_back(std::move(trace).value());
  }
  if (traces.empty()) throw Error(failures.front().message);
  for (const Failure& failure : failures) warn(failure.message + "; left out");
  if (traces.size() == 1) return explain_trace(o, traces.front());
  std::deque<trace::Links> links;
  std::vector<trace::RankTrace> ranks;
  for (const trace::Trace& trace : traces)
    ranks.push_back({trace, links.emplace_back(trace::link(trace))});
  if (const std::string reason = trace::why_not_ranks(ranks); !reason.empty())
    throw Error(fmt::format(
        "{}: expected the ranks of one run, got {} traces of different runs: {}; name one trace, "
        "or compare two with epilogue diff A B",
        o.path, traces.size(), reason));
  const trace::RanksExplanation explanation = trace::explain_ranks(ranks);
  print(trace::ranks_document(explanation), o.format);
  return kExitFine;
}

int run_command(const Options& o) {
  if (std::filesystem::is_directory(o.path)) return explain_folder(o);
  return explain_trace(o, load_trace(o.path, o.part, o.modules));
}

}  // namespace

void add_explain_command(CLI::App& app, Body& run) {
  auto o = std::make_shared<Options>();
  CLI::App* explain =
      app.add_subcommand("explain", "Says what a trace means, with evidence and savings");
  explain
      ->add_option("TRACE|DIR", o->path,
                   "a PyTorch trace, .json or .json.gz; -: stdin; or a folder\n"
                   "with one trace for each rank of a run")
      ->required()
      ->option_text(" ");
  explain->add_option("--top", o->top, "rows of each list; -1: all")
      ->check(whole_number(-1))
      ->option_text("N [10]");
  explain->add_flag("--modules", o->modules,
                    "time per nn.Module, if the trace was recorded with_stack (slower)");
  add_trace_part(*explain, o->part);
  add_format(*explain, o->format);
  explain->footer("Example: epilogue explain trace.json.gz --top 5");
  explain->callback([o, &run] { run = [o] { return run_command(*o); }; });
}

}  // namespace epilogue::tool
