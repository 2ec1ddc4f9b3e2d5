// SPDX-License-Identifier: Apache-2.0
// epilogue table TRACE: the key-averages table of any trace.
#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "epilogue/trace/report.h"
#include "epilogue/trace/table.h"
#include "tools/epilogue/arguments.h"
#include "tools/epilogue/command.h"
#include "tools/epilogue/trace/trace_input.h"

namespace epilogue::tool {
namespace {

struct TableFlags {
  std::string path;
  TracePart part;
  std::string sort_by;
  std::optional<int> row_limit;
  bool group_by_input_shape = false;
  Format format = Format::text;
};

// Without --sort-by: the device's time where there is any, else the host's.
std::string default_sort(const trace::KeyAverages& averages) {
  return averages.self_device_time_total_ns() > 0 ? "self_device_time_total"
                                                  : "self_cpu_time_total";
}

std::string table_output(const trace::KeyAverages& averages, const trace::TableOptions& table,
                         const trace::ImportReport& import) {
  auto json = nlohmann::ordered_json::parse(trace::table_json(averages, table));
  json["events"] = import.events;
  json["skipped_events"] = import.skipped_events;
  return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

int run_table_command(const TableFlags& o) {
  trace::TableOptions table;
  table.sort_by = o.sort_by;
  if (!o.sort_by.empty()) {  // an unknown key is said before a large file is read
    std::vector<trace::Row> none;
    trace::sort_rows(none, o.sort_by);
  }
  const trace::Trace trace = load_trace(o.path, o.part);
  const trace::KeyAverages averages =
      trace::key_averages(trace, {.group_by_input_shape = o.group_by_input_shape});
  if (o.sort_by.empty()) table.sort_by = default_sort(averages);
  if (o.format == Format::json) {
    table.row_limit = o.row_limit.value_or(-1);
    print(table_output(averages, table, trace.import));
  } else {
    table.row_limit = o.row_limit.value_or(table.row_limit);
    print(o.format == Format::markdown ? trace::table_markdown(averages, table)
                                       : trace::format_table(averages, table));
  }
  return kExitFine;
}

}  // namespace

void add_table_command(CLI::App& app, Body& run) {
  auto o = std::make_shared<TableFlags>();
  CLI::App* table = app.add_subcommand("table", "Prints the key-averages table of any trace");
  table->add_option("TRACE", o->path, "a PyTorch trace, .json or .json.gz; -: stdin")
      ->required()
      ->option_text(" ");
  table
      ->add_option("--sort-by", o->sort_by,
                   "cpu_time_total, self_device_time_total, count or another")
      ->option_text("KEY [self device time, else self CPU time]");
  table->add_option("--row-limit", o->row_limit, "rows; -1: all")
      ->check(whole_number(-1))
      ->option_text("N [100; json: all]");
  table->add_flag("--group-by-input-shape", o->group_by_input_shape, "one row per op and shapes");
  add_trace_part(*table, o->part);
  add_format(*table, o->format);
  table->footer("Example: epilogue table trace.json.gz --sort-by cpu_time_total --row-limit 15");
  table->callback([o, &run] { run = [o] { return run_table_command(*o); }; });
}

}  // namespace epilogue::tool
