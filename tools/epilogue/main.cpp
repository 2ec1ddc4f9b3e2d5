// SPDX-License-Identifier: Apache-2.0
// The command `epilogue`: parses, runs one subcommand, exits as usage.h says.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <cstdio>
#include <exception>

#include "tools/epilogue/command.h"
#include "tools/epilogue/usage.h"

namespace epilogue::tool {
namespace {

int run(int argc, char** argv) {
  CLI::App app{"From nn.Linear to a fused MLP: profile it, explain it, fuse it."};
  app.name("epilogue");
  const std::string version = "epilogue " EPILOGUE_VERSION;
  app.set_version_flag("--version", version);
  app.require_subcommand(1);
  Body body;
  const std::string examples = add_engine_commands(app, body) + add_trace_commands(app, body);
  add_help_files_command(app, version, body);
  app.footer(
      "Examples:\n" + examples +
      "Every subcommand has --help. Exit: 0 fine, 1 the answer is no, 2 misuse or bad input.");
  return parse_and_run(app, body, argc, argv);
}

}  // namespace
}  // namespace epilogue::tool

int main(int argc, char** argv) {
  try {
    return epilogue::tool::run(argc, argv);
  } catch (const std::exception& e) {
    fmt::print(stderr, "epilogue: unexpected error: {}\n", e.what());
    return epilogue::tool::kExitMisuse;
  }
}
