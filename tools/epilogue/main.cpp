// SPDX-License-Identifier: Apache-2.0
// The command `epilogue`: parses, runs one subcommand, maps errors to exit codes.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <filesystem>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

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

// Whether an environment, bin/ and lib/, has the package installed.
bool has_python_package(const std::filesystem::path& environment) {
  std::error_code error;
  std::filesystem::directory_iterator at(environment / "lib", error);
  for (; !error && at != std::filesystem::directory_iterator(); at.increment(error)) {
    std::error_code none;
    if (at->path().filename().string().starts_with("python") &&
        std::filesystem::exists(at->path() / "site-packages/epilogue/__main__.py", none))
      return true;
  }
  return false;
}

// `sql` and `mcp` are Python's: of the interpreter beside which pip installed this command.
std::optional<int> run_python_command(int argc, char** argv) {
  const std::string_view name = argc > 1 ? argv[1] : "";
  if (name != "sql" && name != "mcp") return std::nullopt;
  std::error_code error;
  const auto here = std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
  const std::string interpreter = (here / "python3").string();
  if (!error && has_python_package(here.parent_path())) {
    std::vector<const char*> arguments = {interpreter.c_str(), "-m", "epilogue"};
    arguments.insert(arguments.end(), argv + 1, argv + argc);
    arguments.push_back(nullptr);
    ::execv(interpreter.c_str(), const_cast<char* const*>(arguments.data()));
  }
  return misuse(fmt::format(
      "epilogue {0}: this is part of the Python package: pip install 'epilogue[{0}]'", name));
}

int run(int argc, char** argv) {
  if (const std::optional<int> done = run_python_command(argc, argv)) return *done;
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
      "  epilogue sql trace.json.gz \"SELECT name, dur_ns FROM kernels\"    (pip install "
      "'epilogue[sql]')\n"
      "  epilogue mcp --root traces/                                     (pip install "
      "'epilogue[mcp]')\n"
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
