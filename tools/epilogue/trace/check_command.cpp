// SPDX-License-Identifier: Apache-2.0
// epilogue check TRACE EXPR...: assertions for CI.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <cmath>
#include <memory>
#include <optional>

#include "report/document.h"
#include "tools/epilogue/command.h"
#include "tools/epilogue/trace/expectations.h"
#include "tools/epilogue/trace/trace_input.h"

namespace epilogue::tool {
namespace {

struct Options {
  std::string path;
  std::vector<std::string> expressions;
  TracePart part;
  bool list = false;
  Format format = Format::text;
};

// Six digits, but none before the point is cut; of times in us, no nanosecond.
std::string shown(double value) {
  constexpr double kThreeDigits = 1e3;
  if (std::abs(value) < kThreeDigits) return fmt::format("{:.6g}", value);
  return fmt::format("{:.{}f}", value, value == std::floor(value) ? 0 : 3);
}

std::string found_text(const trace::Judgement& j) {
  return j.found ? shown(*j.found) : "unknown: this trace cannot give it";
}

trace::Value value_or_null(const std::optional<double>& value) {
  return value ? trace::Value(*value) : trace::Value();
}

// `with_values`: of a trace; without one there are names, and no values.
trace::Document quantities_document(const std::vector<trace::Quantity>& all, bool with_values) {
  trace::Table table{.key = "quantities"};
  table.columns = {
      {.key = "name", .header = "quantity", .width = 26},
      {.header = "here", .width = 14, .is_left_aligned = false, .is_for_people = with_values},
      {.key = "doc", .header = "meaning", .gap = with_values ? 2U : 1U},
      {.key = "value", .is_for_people = false}};
  for (const trace::Quantity& q : all)
    table.rows.push_back({{q.name, q.name, "`" + q.name + "`"},
                          {q.value ? shown(*q.value) : "unknown"},
                          {q.doc, q.doc},
                          {"", value_or_null(with_values ? q.value : std::nullopt)}});
  return {std::move(table)};
}

trace::Document judgements_document(const std::vector<trace::Judgement>& judgements,
                                    bool all_hold) {
  trace::Table table{.key = "expectations"};
  table.columns = {{.width = 5},
                   {.key = "expr", .header = "expected"},
                   {.key = "expected", .is_for_people = false},
                   {.key = "found", .header = "found", .is_left_aligned = false},
                   {.key = "holds", .is_for_people = false}};
  for (const trace::Judgement& j : judgements) {
    const std::string& text = j.expectation.text;
    table.rows.push_back({{j.holds ? "holds" : "FAILS"},
                          {text + ": found", text, "`" + text + "`"},
                          {"", j.expectation.expected},
                          {found_text(j), value_or_null(j.found)},
                          {"", j.holds}});
  }
  trace::Document document = {std::move(table)};
  document.facts = {{"holds", all_hold}};
  return document;
}

int run_command(const Options& o) {
  if (o.path.empty() && o.list) {
    print(quantities_document(trace::quantities(trace::Trace()), false), o.format);
    return kExitFine;
  }
  if (o.path.empty()) throw Error("[TRACE] expected a trace, or --list, got none");
  if (o.expressions.empty() && !o.list)
    throw Error("[EXPR] expected one or more such as 'kernels_per_step <= 5', or --list, got none");
  const std::vector<trace::Expectation> expectations = parse_expectations("EXPR", o.expressions);
  const std::vector<trace::Quantity> all = trace::quantities(load_trace(o.path, o.part));
  if (o.list) {
    print(quantities_document(all, true), o.format);
    return kExitFine;
  }
  std::vector<trace::Judgement> judgements;
  bool all_hold = true;
  for (const trace::Expectation& e : expectations) {
    judgements.push_back(trace::judge(e, all));
    all_hold = all_hold && judgements.back().holds;
  }
  print(judgements_document(judgements, all_hold), o.format);
  return all_hold ? kExitFine : kExitNo;
}

}  // namespace

void add_check_command(CLI::App& app, Body& run) {
  auto o = std::make_shared<Options>();
  CLI::App* check =
      app.add_subcommand("check", "Asserts what a trace should show; exit 1 if it does not");
  check->add_option("TRACE", o->path, "a PyTorch trace, .json or .json.gz; -: stdin")
      ->option_text(" ");
  check->add_option("EXPR", o->expressions, "NAME OP NUMBER, OP one of == != < <= > >=")
      ->option_text("...");
  check->add_flag("--list", o->list, "list the quantities; with a TRACE, their values too");
  add_trace_part(*check, o->part);
  add_format(*check, o->format);
  check->footer(
      "A quantity that the trace cannot give fails.\n"
      "Example: epilogue check trace.json.gz 'kernels_per_step <= 5' 'gpu_idle_pct < 20'");
  check->callback([o, &run] { run = [o] { return run_command(*o); }; });
}

}  // namespace epilogue::tool
