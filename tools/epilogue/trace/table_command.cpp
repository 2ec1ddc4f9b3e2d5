// SPDX-License-Identifier: Apache-2.0
// epilogue table TRACE: the key-averages table of any trace.
#include <CLI/CLI.hpp>
#include <memory>

#include "tools/epilogue/arguments.h"
#include "tools/epilogue/command.h"
#include "tools/epilogue/trace/trace_input.h"

namespace epilogue::tool {
namespace {

struct TableFlags {
  trace::TraceInput input;
  trace::TableAnswerOptions answer;
  Format format = Format::text;
};

int run_table_command(const TableFlags& o) {
  print(trace::table_answer(o.input, o.answer, terminal_hooks()).value(), o.format);
  return kExitFine;
}

}  // namespace

void add_table_command(CLI::App& app, Body& run) {
  auto o = std::make_shared<TableFlags>();
  CLI::App* table = app.add_subcommand("table", "Prints the key-averages table of any trace");
  table
      ->add_option("TRACE", o->input.path,
                   "a trace, .json, .json.gz, .pftrace or .sqlite; -: stdin")
      ->required()
      ->option_text(" ");
  table
      ->add_option("--sort-by", o->answer.sort_by,
                   "cpu_time_total, self_device_time_total, count or another")
      ->option_text("KEY [self device time, else self CPU time]");
  table->add_option("--row-limit", o->answer.row_limit, "rows; -1: all")
      ->check(whole_number(-1))
      ->option_text("N [100; json: all]");
  table->add_flag("--group-by-input-shape", o->answer.group_by_input_shape,
                  "one row per op and shapes");
  add_capture(*table, o->answer.capture);
  add_trace_part(*table, o->input);
  add_table_format(*table, o->format);
  table->footer(
      "With --capture the time of replayed graphs is booked to the ops that captured it.\n"
      "Example: epilogue table trace.json.gz --sort-by cpu_time_total --row-limit 15\n"
      "         epilogue table graphs.json.gz --capture eager.json.gz");
  table->callback([o, &run] { run = [o] { return run_table_command(*o); }; });
}

}  // namespace epilogue::tool
