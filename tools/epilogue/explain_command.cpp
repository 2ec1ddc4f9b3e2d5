// SPDX-License-Identifier: Apache-2.0
// epilogue explain TRACE: the findings.
#include <memory>

#include "command.h"
#include "epilogue/trace/explain.h"
#include "epilogue/trace/explain_report.h"
#include "trace_input.h"

namespace epilogue::tool {
namespace {

struct Options {
  std::string path;
  TracePart part;
  int top = 10;
  bool modules = false;
  Format format = Format::text;
};

int run_command(const Options& o) {
  const trace::Trace trace = load_trace(o.path, o.part, o.modules);
  const trace::Explanation explanation = trace::explain(trace, trace::link(trace));
  const trace::ReportOptions report = {.top = o.top, .use_bold = wants_bold()};
  switch (o.format) {
    case Format::json: print(trace::explain_json(explanation)); break;
    case Format::markdown: print(trace::explain_markdown(explanation, report)); break;
    case Format::text: print(trace::explain_text(explanation, report)); break;
  }
  return kExitFine;
}

}  // namespace

void add_explain_command(CLI::App& app, Body& run) {
  auto o = std::make_shared<Options>();
  CLI::App* explain =
      app.add_subcommand("explain", "What a trace means, with evidence and savings");
  explain->add_option("trace", o->path, "a PyTorch trace, .json or .json.gz; -: stdin")
      ->required()
      ->option_text("TRACE");
  explain->add_option("--top", o->top, "rows of each list; -1: all")->option_text("N [10]");
  explain->add_flag("--modules", o->modules,
                    "time per nn.Module, where the trace was recorded with_stack (slower)");
  add_trace_part(*explain, o->part);
  add_format(*explain, o->format);
  explain->footer("Example: epilogue explain trace.json.gz --top 5");
  explain->callback([o, &run] { run = [o] { return run_command(*o); }; });
}

}  // namespace epilogue::tool
