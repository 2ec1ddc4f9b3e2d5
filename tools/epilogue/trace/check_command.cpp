// SPDX-License-Identifier: Apache-2.0
// epilogue check TRACE EXPR...: assertions for CI.
#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <vector>

#include "explain/answer/expectations.h"
#include "tools/epilogue/command.h"
#include "tools/epilogue/trace/trace_input.h"

namespace epilogue::tool {
namespace {

struct CheckFlags {
  trace::TraceInput input;
  std::vector<std::string> expressions;
  std::vector<std::string> baseline;
  trace::BaselineAnswerOptions answer;
  bool list = false;
  Format format = Format::text;
};

trace::TraceInput trace_at(const CheckFlags& o, const std::string& path) {
  trace::TraceInput input = o.input;
  input.path = path;
  return input;
}

// An argument that is an expression elsewhere is one more trace here.
int run_baseline(const CheckFlags& o) {
  std::vector<trace::TraceInput> before;
  for (const std::string& path : o.baseline) before.push_back(trace_at(o, path));
  std::vector<trace::TraceInput> after = {o.input};
  for (const std::string& path : o.expressions) after.push_back(trace_at(o, path));
  const Result<trace::BaselineAnswer> compared =
      trace::baseline_answer(before, after, o.answer, terminal_hooks());
  print(compared.value().answer, o.format);
  return compared.value().has_regression ? kExitNo : kExitFine;
}

int run_check_command(const CheckFlags& o) {
  if (o.input.path.empty() && o.list) {
    print(trace::quantities_answer().value(), o.format);
    return kExitFine;
  }
  if (o.input.path.empty()) throw Error("[TRACE] expected a trace, or --list, got none");
  if (!o.baseline.empty()) return run_baseline(o);
  if (o.expressions.empty() && !o.list)
    throw Error("[EXPR] expected one or more such as 'kernels_per_step <= 5', or --list, got none");
  if (o.list) {
    trace::parse_expectations("EXPR", o.expressions);
    print(trace::quantities_answer(o.input, terminal_hooks()).value(), o.format);
    return kExitFine;
  }
  const Result<trace::CheckAnswer> check =
      trace::check_answer(o.input, o.expressions, terminal_hooks());
  print(check.value().answer, o.format);
  return check.value().all_hold ? kExitFine : kExitNo;
}

}  // namespace

void add_check_command(CLI::App& app, Body& run) {
  auto o = std::make_shared<CheckFlags>();
  CLI::App* check =
      app.add_subcommand("check", "Asserts what a trace should show; exit 1 if it does not");
  check
      ->add_option("TRACE", o->input.path,
                   "a trace, .json, .json.gz, .pftrace or .sqlite; -: stdin")
      ->option_text(" ");
  check->add_option("EXPR", o->expressions, "NAME OP NUMBER, OP one of == != < <= > >=")
      ->option_text("...");
  check->add_flag("--list", o->list, "list the quantities; with a TRACE, their values too");
  CLI::Option* baseline =
      check->add_option("--baseline", o->baseline,
                        "traces of an earlier version; all other arguments are traces\n"
                        "of the new one. Exit 1 if its steps take longer, beyond noise");
  baseline->option_text("OLD...");
  check
      ->add_option("--tolerance", o->answer.tolerance_pct,
                   "smaller changes do not count, in percent")
      ->check(CLI::Range(0.0, 1000.0))
      ->needs(baseline)
      ->option_text("PCT [2]");
  add_trace_part(*check, o->input);
  add_table_format(*check, o->format);
  check->footer(
      "A quantity that the trace cannot give fails.\n"
      "Example: epilogue check trace.json.gz 'kernels_per_step <= 5' 'gpu_idle_pct < 20'\n"
      "         epilogue check new1.json new2.json --baseline old1.json old2.json");
  check->callback([o, &run] { run = [o] { return run_check_command(*o); }; });
}

}  // namespace epilogue::tool
