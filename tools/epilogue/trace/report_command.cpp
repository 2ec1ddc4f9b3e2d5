// SPDX-License-Identifier: Apache-2.0
// epilogue report TRACE -o FILE.html: the explanation as one page.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/file.h"
#include "base/units.h"
#include "epilogue/trace/diff.h"
#include "epilogue/trace/explain.h"
#include "epilogue/trace/report.h"
#include "tools/epilogue/arguments.h"
#include "tools/epilogue/command.h"
#include "tools/epilogue/trace/trace_input.h"

namespace epilogue::tool {
namespace {

struct ReportFlags {
  std::string path;
  std::string against;
  std::string out;
  std::string title;
  bool no_trace = false;
  bool modules = false;
  TracePart part;
  Format format = Format::text;
};

trace::EmbeddedTrace embedded_trace(const ReportFlags& o) {
  if (o.no_trace) return {};
  if (o.path == "-") return {.note = "The trace is not in this page: it was read from a pipe."};
  const MappedFile file = MappedFile::open(o.path).value();
  const std::span<const std::byte> bytes = file.bytes();
  trace::EmbeddedTrace embedded =
      trace::embed_trace({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, o.path);
  const bool is_part = o.part.step || o.part.from_ms || o.part.to_ms;
  if (is_part && !embedded.gzip.empty())
    embedded.note = "The page shows a part of the trace; the trace in it is the whole file.";
  return embedded;
}

// An earlier trace and what changed since.
struct Comparison {
  Comparison(const ReportFlags& o, const trace::Trace& trace, const trace::Links& links)
      : before(load_trace(o.against, o.part)),
        diff(trace::diff_traces(before, trace::link(before), trace, links)) {}
  trace::Trace before;
  trace::TraceDiff diff;
};

void print_outcome(const ReportFlags& o, size_t bytes, const trace::EmbeddedTrace& embedded) {
  const bool has_trace = !embedded.gzip.empty();
  if (o.format == Format::json) {
    print(nlohmann::ordered_json({{"schema_version", kSchemaVersion},
                                  {"file", o.out},
                                  {"bytes", bytes},
                                  {"has_trace", has_trace},
                                  {"note", embedded.note}})
              .dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) +
          "\n");
    return;
  }
  print(fmt::format("{}: {}, {}\n", o.out, format_bytes(static_cast<double>(bytes)),
                    has_trace ? "the trace included" : "without the trace"));
  if (!embedded.note.empty()) print(embedded.note + "\n");
}

// The page is made to be handed on, so its maker should know what it holds.
void warn_of_credentials(const trace::Trace& trace) {
  const std::vector<std::string> keys = trace::credential_keys(trace);
  if (keys.empty()) return;
  fmt::print(stderr,
             "epilogue: warning: the trace in the page holds metadata that may be credentials: {}; "
             "--no-trace leaves the trace out\n",
             fmt::join(keys, ", "));
}

int run_report_command(const ReportFlags& o) {
  const trace::Trace trace = load_trace(o.path, o.part, o.modules);
  const trace::Links links = trace::link(trace);
  const trace::Explanation explanation = trace::explain(trace, links);
  std::optional<Comparison> comparison;
  if (!o.against.empty()) comparison.emplace(o, trace, links);
  trace::HtmlReportInput input = {.trace = trace,
                                  .links = links,
                                  .explanation = explanation,
                                  .title = o.title,
                                  .embedded = embedded_trace(o)};
  if (comparison) {
    input.diff = &comparison->diff;
    input.before_path = o.against;
  }
  const std::string page = trace::html_report(input);
  write_file(o.out, page).value();
  if (!input.embedded.gzip.empty()) warn_of_credentials(trace);
  print_outcome(o, page.size(), input.embedded);
  return kExitFine;
}

}  // namespace

void add_report_command(CLI::App& app, Body& run) {
  auto o = std::make_shared<ReportFlags>();
  CLI::App* report =
      app.add_subcommand("report", "Writes one HTML page that explains a trace and holds it");
  report->add_option("TRACE", o->path, "a PyTorch trace, .json or .json.gz; -: stdin")
      ->required()
      ->option_text(" ");
  report->add_option("-o,--out", o->out, "the page; its folder is made if missing")
      ->check(path_name())
      ->required()
      ->option_text("FILE.html");
  report->add_option("--against", o->against, "an earlier trace to compare with")->option_text("B");
  report->add_option("--title", o->title, "heading of the page; else the file's name")
      ->option_text("T");
  report->add_flag("--no-trace", o->no_trace, "leave the trace itself out of the page");
  report->add_flag("--modules", o->modules,
                   "Python frames and time per nn.Module, if they were recorded (slower)");
  add_trace_part(*report, o->part);
  add_format(*report, o->format);
  report->footer(
      "The page holds the trace as it is, metadata included; a warning names metadata that looks\n"
      "like credentials.\n"
      "Example: epilogue report compiled.json.gz --against eager.json.gz -o report.html");
  report->callback([o, &run] { run = [o] { return run_report_command(*o); }; });
}

}  // namespace epilogue::tool
