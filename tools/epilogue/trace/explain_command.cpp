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
#include "epilogue/trace/report.h"
#include "tools/epilogue/arguments.h"
#include "tools/epilogue/command.h"
#include "tools/epilogue/trace/trace_input.h"

namespace epilogue::tool {
namespace {

struct ExplainFlags {
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

int explain_trace(const ExplainFlags& o, const trace::Trace& trace) {
  const trace::Explanation explanation = trace::explain(trace, trace::link(trace));
  const trace::ReportOptions report = {.top = o.top, .use_bold = wants_bold()};
  switch (o.format) {
    case Format::json: print(trace::explain_json(explanation)); break;
    case Format::markdown: print(trace::explain_markdown(explanation, report)); break;
    case Format::text: print(trace::explain_text(explanation, report)); break;
  }
  return kExitFine;
}

int explain_folder(const ExplainFlags& o) {
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
  switch (o.format) {
    case Format::json: print(trace::ranks_json(explanation)); break;
    case Format::markdown: print(trace::ranks_markdown(explanation)); break;
    case Format::text: print(trace::ranks_text(explanation, {.use_bold = wants_bold()})); break;
  }
  return kExitFine;
}

int run_explain_command(const ExplainFlags& o) {
  if (std::filesystem::is_directory(o.path)) return explain_folder(o);
  return explain_trace(o, load_trace(o.path, o.part, o.modules));
}

}  // namespace

void add_explain_command(CLI::App& app, Body& run) {
  auto o = std::make_shared<ExplainFlags>();
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
  explain->callback([o, &run] { run = [o] { return run_explain_command(*o); }; });
}

}  // namespace epilogue::tool
