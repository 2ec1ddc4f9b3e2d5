// SPDX-License-Identifier: Apache-2.0
// What the subcommands share: where results go, exit codes, and how they register themselves.
#pragma once

#include <functional>
#include <string>

namespace CLI {
class App;
}

namespace epilogue::tool {

inline constexpr int kExitFine = 0;
inline constexpr int kExitNo = 1;      // a check or comparison failed
inline constexpr int kExitMisuse = 2;  // misuse, or input that cannot be used

inline constexpr int kSchemaVersion = 1;

enum class Format { text, json, markdown };
// Adds --format to a subcommand.
void add_format(CLI::App& app, Format& format);

// Set to the chosen subcommand's body.
using Body = std::function<int()>;

// Add the subcommands of one half. Return that half's lines for the examples of --help.
std::string add_trace_commands(CLI::App& app, Body& run);
std::string add_engine_commands(CLI::App& app, Body& run);

// Each adds one subcommand.
void add_table_command(CLI::App& app, Body& run);
void add_explain_command(CLI::App& app, Body& run);
void add_diff_command(CLI::App& app, Body& run);
void add_check_command(CLI::App& app, Body& run);
void add_name_command(CLI::App& app, Body& run);
void add_report_command(CLI::App& app, Body& run);
void add_serve_command(CLI::App& app, Body& run);
void add_profile_command(CLI::App& app, Body& run);
void add_bench_command(CLI::App& app, Body& run);
void add_compile_command(CLI::App& app, Body& run);
void add_ops_command(CLI::App& app, Body& run);
void add_info_command(CLI::App& app, Body& run);
void add_tour_command(CLI::App& app, Body& run);
void add_train_command(CLI::App& app, Body& run);

// Writes text to stdout whole.
void print(const std::string& text);

// Stdout is a terminal and NO_COLOR is not set.
bool wants_bold();
// Bold, where that is so.
std::string bold(const std::string& text);

}  // namespace epilogue::tool
