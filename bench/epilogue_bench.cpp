// SPDX-License-Identifier: Apache-2.0
// The benchmarks of developers as one executable. `epilogue bench ladder|portability` runs it.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <cstdio>
#include <exception>

#include "tools/epilogue/usage.h"

namespace epilogue::tool {

// Each is defined in the file of its name.
void add_ladder(CLI::App& app, Body& run);
void add_portability(CLI::App& app, Body& run);

}  // namespace epilogue::tool

int main(int argc, char** argv) {
  try {
    CLI::App app{"Benchmarks for developers of epilogue."};
    app.name("epilogue bench");
    app.require_subcommand(1);
    epilogue::tool::Body body;
    epilogue::tool::add_ladder(app, body);
    epilogue::tool::add_portability(app, body);
    return epilogue::tool::parse_and_run(app, body, argc, argv);
  } catch (const std::exception& e) {
    fmt::print(stderr, "epilogue bench: unexpected error: {}\n", e.what());
    return epilogue::tool::kExitMisuse;
  }
}
