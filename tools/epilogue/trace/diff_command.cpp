// SPDX-License-Identifier: Apache-2.0
// epilogue diff A B: what changed, in parts that add up.
#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <vector>

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
  std::vector<std::string> captures;
  Format format = Format::text;
};

trace::TraceInput input_of(const DiffFlags& o, const std::string& path) {
  trace::TraceInput input = o.part;
  input.path = path;
  return input;
}

int run_diff_command(const DiffFlags& o) {
  trace::DiffAnswerOptions options = {.top = o.top};
  for (const std::string& path : o.captures) options.captures.push_back({.path = path});
  const Result<trace::Answer> answer =
      trace::diff_answer(input_of(o, o.before), input_of(o, o.after), options, terminal_hooks());
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
  diff->add_option("--capture", o->captures,
                   "a trace of the capture, or of an eager run of the same model:\n"
                   "compares kernels of replayed graphs by the ops that captured them;\n"
                   "given once: of both traces, twice: of A and of B")
      ->allow_extra_args(false)  // what follows is a trace
      ->option_text("TRACE");
  add_trace_part(*diff, o->part);
  add_format(*diff, o->format);
  diff->footer(
      "Example: epilogue diff eager.json.gz compiled.json.gz\n"
      "         epilogue diff old_graphs.json.gz new_graphs.json.gz --capture eager.json.gz");
  diff->callback([o, &run] { run = [o] { return run_diff_command(*o); }; });
}

}  // namespace epilogue::tool
