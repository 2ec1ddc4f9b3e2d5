// SPDX-License-Identifier: Apache-2.0
// epilogue diff A B: what changed, in parts that add up.
#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "tools/epilogue/arguments.h"
#include "tools/epilogue/command.h"
#include "tools/epilogue/trace/trace_input.h"

namespace epilogue::tool {
namespace {

struct DiffFlags {
  std::string before;
  std::string after;
  trace::TraceInput part;
  int top = 15;
  Format format = Format::text;
};

trace::TraceInput input_of(const DiffFlags& o, const std::string& path) {
  trace::TraceInput input = o.part;
  input.path = path;
  return input;
}

int run_diff_command(const DiffFlags& o) {
  const Result<trace::Answer> answer =
      trace::diff_answer(input_of(o, o.before), input_of(o, o.after), o.top, terminal_hooks());
  print(answer.value(), o.format);
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
