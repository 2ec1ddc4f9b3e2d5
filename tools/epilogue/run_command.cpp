// SPDX-License-Identifier: Apache-2.0
// The tree of subcommands; `sql` and `mcp`, which are Python's.
#include <fmt/format.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <cstdio>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "tools/epilogue/command.h"
#include "tools/epilogue/usage.h"

namespace epilogue::tool {
namespace {

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
  fmt::print(
      stderr,
      "epilogue {0}: this is part of the Python package; in a clone of epilogue: pip install "
      "'.[{0}]'\n",
      name);
  return kExitMisuse;
}

}  // namespace

int run_command(int argc, char** argv, const std::string& version) {
  if (const std::optional<int> done = run_python_command(argc, argv)) return *done;
  CLI::App app{"From nn.Linear to a fused MLP: profile it, explain it, fuse it."};
  app.name("epilogue");
  app.set_version_flag("--version", version);
  app.require_subcommand(1);
  Body body;
  const std::string examples = add_engine_commands(app, body) + add_trace_commands(app, body);
  add_help_files_command(app, version, body);
  app.footer(
      "Examples:\n" + examples +
      "  epilogue sql trace.json.gz \"SELECT name, dur_ns FROM kernels\"    (pip install "
      "'.[sql]')\n"
      "  epilogue mcp --root traces/                                     (pip install '.[mcp]')\n"
      "Every subcommand has --help. Exit: 0 fine, 1 the answer is no, 2 misuse or bad input.");
  return parse_and_run(app, body, argc, argv);
}

}  // namespace epilogue::tool
