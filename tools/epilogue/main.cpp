// SPDX-License-Identifier: Apache-2.0
// The command `epilogue`: parses, runs one subcommand, maps errors to exit codes.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <new>

#include "epilogue/base/error.h"
#include "tools/epilogue/command.h"
#include "tools/epilogue/usage.h"

namespace epilogue::tool {
namespace {

int misuse(const std::string& line) {
  fmt::print(stderr, "{}\n", line);
  return kExitMisuse;
}

// Results that did not arrive are no results: a full disk must not pass for success.
int flushed(const std::string& command, int exit_code) {
  errno = 0;
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return exit_code;
  return misuse(command + ": stdout: cannot write" +
                (errno != 0 ? std::string(": ") + std::strerror(errno) : ""));
}

int run_body(const CLI::App& app, const Body& body) {
  const std::string command = command_path(app);
  try {
    return flushed(command, body());
  } catch (const Error& e) {
    return misuse(error_line(app, e.what()));
  } catch (const std::bad_alloc&) {
    return misuse(command + ": out of memory");
  } catch (const std::exception& e) {
    return misuse(command + ": unexpected error: " + e.what());
  }
}

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
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == 0) return flushed(app.get_name(), app.exit(e));  // --help, --version
    return misuse(usage_line(app, e));
  }
  return run_body(app, body);
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
