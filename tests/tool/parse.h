// SPDX-License-Identifier: Apache-2.0
// Arguments given to an app of CLI11, as main() gives them.
#pragma once

#include <CLI/CLI.hpp>
#include <algorithm>
#include <string>
#include <vector>

namespace epilogue::tool {

// "" where the arguments parse, else CLI11's text.
inline std::string parse(CLI::App& app, std::vector<std::string> arguments) {
  std::reverse(arguments.begin(), arguments.end());  // as App::parse() takes them
  try {
    app.parse(std::move(arguments));
  } catch (const CLI::ParseError& error) {
    return error.what();
  }
  return "";
}

}  // namespace epilogue::tool
