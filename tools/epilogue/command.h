// SPDX-License-Identifier: Apache-2.0
// Shared by the subcommands: where results go, exit codes, and how they register themselves.
#pragma once

#include <functional>
#include <string>

namespace CLI {
class App;
}
namespace epilogue::trace {
struct Document;
class Answer;
}  // namespace epilogue::trace

namespace epilogue::tool {

inline constexpr int kExitFine = 0;
inline constexpr int kExitNo = 1;      // a check or comparison failed
inline constexpr int kExitMisuse = 2;  // misuse, or input that cannot be used

inline constexpr int kSchemaVersion = 1;

enum class Format { text, json, markdown, csv };
// Adds --format to a subcommand.
void add_format(CLI::App& app, Format& format);
// The same with csv: for subcommands whose result is one table.
void add_table_format(CLI::App& app, Format& format);

// Set to the chosen subcommand's body.
using Body = std::function<int()>;

// Add the subcommands of one half; the files that define these list them. Return that half's lines
// for the examples of --help.
std::string add_trace_commands(CLI::App& app, Body& run);
std::string add_engine_commands(CLI::App& app, Body& run);

// Adds help-files, which --help does not list: it prints the man page and the completions, made
// from all that `app` holds when it runs.
void add_help_files_command(CLI::App& app, const std::string& version, Body& run);

// Parses the arguments of the whole command and runs the subcommand that they choose: its exit
// code. `version` is what
// --version prints.
int run_command(int argc, char** argv, const std::string& version);

// Writes a result to stdout, in the form that --format asked for; headings are bold where stdout
// takes that. A document without JSON (progress on the way) is not printed as JSON.
void print(const trace::Document& result, Format format);
void print(const trace::Answer& answer, Format format);

// Writes text to stdout whole.
void print(const std::string& text);

// Stdout is a terminal and NO_COLOR is not set.
bool wants_bold();
// Bold, where that is so: for lines that no document lays out.
std::string bold(const std::string& text);

}  // namespace epilogue::tool
