// SPDX-License-Identifier: Apache-2.0
// The subcommands of the trace half.
#include "tools/epilogue/command.h"

namespace epilogue::tool {

// Each is defined in NAME_command.cpp.
void add_table_command(CLI::App& app, Body& run);
void add_explain_command(CLI::App& app, Body& run);
void add_diff_command(CLI::App& app, Body& run);
void add_check_command(CLI::App& app, Body& run);
void add_name_command(CLI::App& app, Body& run);
void add_report_command(CLI::App& app, Body& run);
void add_serve_command(CLI::App& app, Body& run);
void add_memory_command(CLI::App& app, Body& run);
void add_merge_command(CLI::App& app, Body& run);

std::string add_trace_commands(CLI::App& app, Body& run) {
  add_table_command(app, run);
  add_explain_command(app, run);
  add_diff_command(app, run);
  add_check_command(app, run);
  add_name_command(app, run);
  add_report_command(app, run);
  add_serve_command(app, run);
  add_memory_command(app, run);
  add_merge_command(app, run);
  return "  epilogue explain trace.json.gz                 what any PyTorch trace means\n"
         "  epilogue table trace.json.gz --row-limit 15    the table of any PyTorch trace\n"
         "  epilogue report trace.json.gz -o report.html   the answer of explain as an HTML page\n";
}

}  // namespace epilogue::tool
