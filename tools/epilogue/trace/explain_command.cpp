// SPDX-License-Identifier: Apache-2.0
// epilogue explain TRACE|DIR: the findings of one trace, or of the ranks of one run.
#include <CLI/CLI.hpp>
#include <memory>

#include "tools/epilogue/arguments.h"
#include "tools/epilogue/command.h"
#include "tools/epilogue/trace/trace_input.h"

namespace epilogue::tool {
namespace {

struct ExplainFlags {
  trace::TraceInput input;
  trace::ExplainAnswerOptions answer;
  Format format = Format::text;
};

int run_explain_command(const ExplainFlags& o) {
  print(trace::explain_answer(o.input, o.answer, terminal_hooks()).value(), o.format);
  return kExitFine;
}

}  // namespace

void add_explain_command(CLI::App& app, Body& run) {
  auto o = std::make_shared<ExplainFlags>();
  CLI::App* explain =
      app.add_subcommand("explain", "Says what a trace means, with evidence and savings");
  explain
      ->add_option("TRACE|DIR", o->input.path,
                   "a trace: .json or .json.gz of PyTorch's profiler, .sqlite of\n"
                   "Nsight Systems; -: stdin; or a folder\n"
                   "with one trace for each rank of a run")
      ->required()
      ->option_text(" ");
  explain->add_option("--top", o->answer.top, "rows of each list; -1: all")
      ->check(whole_number(-1))
      ->option_text("N [10]");
  explain->add_flag("--modules", o->answer.modules,
                    "time per nn.Module, if the trace was recorded with_stack (slower)");
  explain
      ->add_option_function<std::string>(
          "--capture", [o](const std::string& path) { o->answer.capture = {.path = path}; },
          "a trace of the capture, or of an eager run of the\nsame model: names kernels of "
          "replayed graphs")
      ->option_text("TRACE");
  add_cpu_choice(*explain, o->answer.cpu);
  add_trace_part(*explain, o->input);
  add_format(*explain, o->format);
  explain->footer("Example: epilogue explain trace.json.gz --top 5");
  explain->callback([o, &run] { run = [o] { return run_explain_command(*o); }; });
}

}  // namespace epilogue::tool
