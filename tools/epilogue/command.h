// SPDX-License-Identifier: Apache-2.0
// What the subcommands share: where results go, exit codes, and how they register themselves.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>

namespace epilogue::tool {

inline constexpr int kExitFine = 0;
inline constexpr int kExitNo = 1;      // a check or comparison failed
inline constexpr int kExitMisuse = 2;  // misuse, or input that cannot be used

inline constexpr int kSchemaVersion = 1;

enum class Format { text, json, markdown };
// Adds --format to a subcommand.
void add_format(CLI::App& app, Format& format);

// Each adds one subcommand; `run` is set to its body when it is chosen.
using Body = std::function<int()>;
void add_profile_command(CLI::App& app, Body& run);
void add_ops_command(CLI::App& app, Body& run);
void add_info_command(CLI::App& app, Body& run);
void add_tour_command(CLI::App& app, Body& run);

// Writes text to stdout whole.
void print(const std::string& text);

// Bold, where stdout is a terminal and NO_COLOR is not set.
std::string bold(const std::string& text);

}  // namespace epilogue::tool
