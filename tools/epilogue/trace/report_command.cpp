// SPDX-License-Identifier: Apache-2.0
// epilogue report TRACE|DIR -o FILE.html: the explanation as one page.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tools/epilogue/arguments.h"
#include "tools/epilogue/command.h"
#include "tools/epilogue/trace/trace_input.h"

namespace epilogue::tool {
namespace {

struct ReportFlags {
  trace::TraceInput input;
  std::string against;
  std::string out;
  std::string title;
  bool no_trace = false;
  bool modules = false;
  bool rank_pages = false;
  trace::CpuChoice cpu;
  std::optional<trace::TraceInput> capture;
  Format format = Format::text;
};

trace::ReportAnswerOptions answer_options(const ReportFlags& o) {
  trace::ReportAnswerOptions options = {.title = o.title,
                                        .embeds_trace = !o.no_trace,
                                        .modules = o.modules,
                                        .cpu = o.cpu,
                                        .capture = o.capture,
                                        .rank_pages = o.rank_pages};
  if (o.against.empty()) return options;
  options.against = o.input;
  options.against->path = o.against;
  return options;
}

int run_report_command(const ReportFlags& o) {
  const Result<trace::ReportAnswer> report =
      trace::report_answer(o.input, o.out, answer_options(o), terminal_hooks());
  // The page is made to be handed on, so its maker should know what it holds.
  if (const std::vector<std::string>& keys = report.value().credentials; !keys.empty())
    warn(
        fmt::format("the trace in the page holds metadata that may be credentials: {}; "
                    "--no-trace leaves the trace out",
                    fmt::join(keys, ", ")));
  print(report.value().answer, o.format);
  return kExitFine;
}

}  // namespace

void add_report_command(CLI::App& app, Body& run) {
  auto o = std::make_shared<ReportFlags>();
  CLI::App* report =
      app.add_subcommand("report", "Writes one HTML page that explains a trace and holds it");
  report
      ->add_option("TRACE|DIR", o->input.path,
                   "a trace: .json, .json.gz or .pftrace of PyTorch's profiler,\n"
                   ".sqlite of Nsight Systems; -: stdin; or a folder\n"
                   "with one trace for each rank of a run")
      ->required()
      ->option_text(" ");
  add_out_file(*report, o->out, "the page", "FILE.html");
  report->add_option("--against", o->against, "an earlier trace to compare with")->option_text("B");
  report->add_option("--title", o->title, "heading of the page; else the file's name")
      ->option_text("T");
  report->add_flag("--no-trace", o->no_trace, "leave the trace itself out of the page");
  report->add_flag("--modules", o->modules,
                   "Python frames and time per nn.Module, if they were recorded (slower)");
  report->add_flag("--rank-pages", o->rank_pages,
                   "of a folder of ranks: also a page for each rank, in FILE_ranks/\n"
                   "beside FILE.html, which links to them");
  add_capture(*report, o->capture);
  add_cpu_choice(*report, o->cpu);
  add_trace_part(*report, o->input);
  add_format(*report, o->format);
  report->footer(
      "The page holds the trace as it is, metadata included; a warning names metadata that looks\n"
      "like credentials. The page of a folder holds no trace; pages of ranks hold theirs.\n"
      "Example: epilogue report compiled.json.gz --against eager.json.gz -o report.html\n"
      "         epilogue report traces_of_all_ranks/ --rank-pages -o run.html");
  report->callback([o, &run] { run = [o] { return run_report_command(*o); }; });
}

}  // namespace epilogue::tool
