// SPDX-License-Identifier: Apache-2.0
// epilogue diff A B: what changed, in parts that add up.
#include <CLI/CLI.hpp>
#include <memory>

#include "epilogue/trace/diff.h"
#include "epilogue/trace/report.h"
#include "tools/epilogue/arguments.h"
#include "tools/epilogue/command.h"
#include "tools/epilogue/trace/trace_input.h"

namespace epilogue::tool {
namespace {

struct DiffFlags {
  std::string before;
  std::string after;
  TracePart part;
  int top = 15;
  Format format = Format::text;
};

int run_diff_command(const DiffFlags& o) {
  const trace::Trace before = load_trace(o.before, o.part);
  const trace::Trace after = load_trace(o.after, o.part);
  const trace::TraceDiff diff =
      trace::diff_traces(before, trace::link(before), after, trace::link(after));
  const trace::ReportOptions report = {.top = o.top, .use_bold = wants_bold()};
  switch (o.format) {
    case Format::json: print(trace::diff_json(diff)); break;
    case Format::markdown: print(trace::diff_markdown(diff, report)); break;
    case Format::text: print(trace::diff_text(diff, report)); break;
  }
  return kExitFine;
}

}  // namespace

void add_diff_command(CLI::App& app, Body& run) {
  auto o = std::make_shared<DiffFlags>();
  CLI::App* diff = app.add_subcommand("diff", "Says what changed between two traces, and why");
  diff->add_option("A", o->before, "the trace before")->required()->option_text(" ");
  diff->add_option("B", o->after, "the trace after")->required()->option_text(" ");
  diff->add_option("--top", o->top, "rows of each list; -1: all")
      ->check(whole_number(-1))
      ->option_text("N [15]");
  add_trace_part(*diff, o->part);
  add_format(*diff, o->format);
  diff->footer("Example: epilogue diff eager.json.gz compiled.json.gz");
  diff->callback([o, &run] { run = [o] { return run_diff_command(*o); }; });
}

}  // namespace epilogue::tool
