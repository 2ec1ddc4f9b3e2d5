// SPDX-License-Identifier: Apache-2.0
// The command `epilogue`: parses, runs one subcommand, maps errors to exit codes.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <cstdio>
#include <exception>

#include "command.h"
#include "epilogue/base/error.h"

namespace epilogue::tool {
namespace {

int run(int argc, char** argv) {
  CLI::App app{"From nn.Linear to a fused MLP: profile it, explain it, fuse it."};
  app.name("epilogue");
  app.set_version_flag("--version", "epilogue " EPILOGUE_VERSION);
  app.require_subcommand(1);
  Body body;
  const std::string examples = add_engine_commands(app, body) + add_trace_commands(app, body);
  app.footer(
      "Examples:\n" + examples +
      "Every subcommand has --help. Exit: 0 fine, 1 the answer is no, 2 misuse or bad input.");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == 0) return app.exit(e);  // --help, --version
    fmt::print(stderr, "epilogue: {} (see epilogue --help)\n", e.what());
    return kExitMisuse;
  }
  return body();
}

}  // namespace
}  // namespace epilogue::tool

int main(int argc, char** argv) {
  try {
    return epilogue::tool::run(argc, argv);
  } catch (const epilogue::Error& e) {
    fmt::print(stderr, "epilogue: {}\n", e.what());
  } catch (const std::exception& e) {
    fmt::print(stderr, "epilogue: unexpected error: {}\n", e.what());
  }
  return epilogue::tool::kExitMisuse;
}
