// SPDX-License-Identifier: Apache-2.0
// How the command says what is wrong, in one form everywhere:
//   epilogue profile mlp: --batch: expected a whole number of 1 or more, got '0'
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "tools/epilogue/command.h"

namespace epilogue::tool {

// "epilogue profile mlp": the command that the arguments chose, as far as they did.
std::string command_path(const CLI::App& app);

// The line for arguments that do not parse. It ends with the help that says what does.
std::string usage_line(const CLI::App& app, const CLI::ParseError& error);

// The line for an Error: "[--batch] expected ..." becomes "COMMAND: --batch: expected ...". From
// the text in brackets a word of the command is left out, and a flag's name gets its dashes.
std::string error_line(const CLI::App& app, const std::string& message);

// Parses the arguments, runs the body that they chose, and maps errors to a line and an exit code.
int parse_and_run(CLI::App& app, const Body& body, int argc, char** argv);

}  // namespace epilogue::tool
