// SPDX-License-Identifier: Apache-2.0
// epilogue check TRACE EXPR...: assertions for CI.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>

#include "tools/epilogue/command.h"
#include "tools/epilogue/trace/expectations.h"
#include "tools/epilogue/trace/trace_input.h"

namespace epilogue::tool {
namespace {

struct CheckFlags {
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

std::string found_in_trace(const trace::Judgement& j) {
  return j.found ? shown(*j.found) : "unknown: this trace cannot give it";
}

int list_quantities(const std::vector<trace::Quantity>& all, Format format) {
  if (format == Format::json) {
    auto list = nlohmann::ordered_json::array();
    for (const trace::Quantity& q : all) {
      nlohmann::ordered_json value;
      if (q.value) value = *q.value;
      list.push_back({{"name", q.name}, {"doc", q.doc}, {"value", std::move(value)}});
    }
    print(nlohmann::ordered_json{{"schema_version", kSchemaVersion}, {"quantities", list}}.dump(2) +
          "\n");
    return kExitFine;
  }
  if (format == Format::markdown) print("| quantity | here | meaning |\n|---|---:|---|\n");
  for (const trace::Quantity& q : all)
    print(fmt::format(
        fmt::runtime(format == Format::markdown ? "| `{}` | {} | {} |\n" : "{:<26} {:>14}  {}\n"),
        q.name, q.value ? shown(*q.value) : "unknown", q.doc));
  return kExitFine;
}

// Without a trace there are names, and no values.
int list_names(Format format) {
  std::vector<trace::Quantity> all = trace::quantities(trace::Trace());
  for (trace::Quantity& q : all) q.value.reset();
  if (format == Format::json) return list_quantities(all, format);
  if (format == Format::markdown) print("| quantity | meaning |\n|---|---|\n");
  for (const trace::Quantity& q : all)
    print(fmt::format(fmt::runtime(format == Format::markdown ? "| `{}` | {} |\n" : "{:<26} {}\n"),
                      q.name, q.doc));
  return kExitFine;
}

int report(const std::vector<trace::Judgement>& judgements, Format format) {
  bool all_hold = true;
  auto list = nlohmann::ordered_json::array();
  std::string text = format == Format::markdown ? "| | expected | found |\n|---|---|---:|\n" : "";
  for (const trace::Judgement& j : judgements) {
    all_hold = all_hold && j.holds;
    nlohmann::ordered_json found;
    if (j.found) found = *j.found;
    list.push_back({{"expr", j.expectation.text},
                    {"expected", j.expectation.expected},
                    {"found", std::move(found)},
                    {"holds", j.holds}});
    text += fmt::format(
        fmt::runtime(format == Format::markdown ? "| {} | `{}` | {} |\n" : "{:<5} {}: found {}\n"),
        j.holds ? "holds" : "FAILS", j.expectation.text, found_in_trace(j));
  }
  if (format == Format::json)
    text =
        nlohmann::ordered_json{
            {"schema_version", kSchemaVersion}, {"holds", all_hold}, {"expectations", list}}
            .dump(2) +
        "\n";
  print(text);
  return all_hold ? kExitFine : kExitNo;
}

int run_check_command(const CheckFlags& o) {
  if (o.path.empty() && o.list) return list_names(o.format);
  if (o.path.empty()) throw Error("[TRACE] expected a trace, or --list, got none");
  if (o.expressions.empty() && !o.list)
    throw Error("[EXPR] expected one or more such as 'kernels_per_step <= 5', or --list, got none");
  const std::vector<trace::Expectation> expectations = parse_expectations("EXPR", o.expressions);
  const std::vector<trace::Quantity> all = trace::quantities(load_trace(o.path, o.part));
  if (o.list) return list_quantities(all, o.format);
  std::vector<trace::Judgement> judgements;
  judgements.reserve(expectations.size());
  for (const trace::Expectation& e : expectations) judgements.push_back(trace::judge(e, all));
  return report(judgements, o.format);
}

}  // namespace

void add_check_command(CLI::App& app, Body& run) {
  auto o = std::make_shared<CheckFlags>();
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
  check->callback([o, &run] { run = [o] { return run_check_command(*o); }; });
}

}  // namespace epilogue::tool
