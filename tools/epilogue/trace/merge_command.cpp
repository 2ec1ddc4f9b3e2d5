// SPDX-License-Identifier: Apache-2.0
// epilogue merge PART...: the ranks of a run whose parts epilogue explain --shard read.
#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <vector>

#include "tools/epilogue/arguments.h"
#include "tools/epilogue/command.h"
#include "tools/epilogue/trace/trace_input.h"

namespace epilogue::tool {
namespace {

struct MergeFlags {
  std::vector<std::string> parts;
  trace::MergeAnswerOptions answer;
  Format format = Format::text;
};

int run_merge_command(const MergeFlags& o) {
  print(trace::merge_answer(o.parts, o.answer, terminal_hooks()).value(), o.format);
  return kExitFine;
}

}  // namespace

void add_merge_command(CLI::App& app, Body& run) {
  auto o = std::make_shared<MergeFlags>();
  CLI::App* merge =
      app.add_subcommand("merge", "Joins the parts of a run's ranks that explain --shard wrote");
  merge
      ->add_option("PART|DIR", o->parts, "all parts of one run, in any order; or folders with them")
      ->required()
      ->option_text("...");
  merge
      ->add_option("--page", o->answer.page,
                   "also write one HTML page, as report of all ranks does")
      ->check(path_name())
      ->option_text("FILE.html");
  merge->add_option("--title", o->answer.title, "heading of the page")->option_text("T [ranks]");
  merge->add_option("--top", o->answer.top, "rows of each list; -1: all")
      ->check(whole_number(-1))
      ->option_text("N [10]");
  add_format(*merge, o->format);
  merge->footer(
      "Says what epilogue explain says of the whole folder, bit for bit.\n"
      "Example: epilogue merge parts/");
  merge->callback([o, &run] { run = [o] { return run_merge_command(*o); }; });
}

}  // namespace epilogue::tool
