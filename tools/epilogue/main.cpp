// SPDX-License-Identifier: Apache-2.0
// The command `epilogue`: parses, runs one subcommand, maps errors to exit codes.
#include <fmt/format.h>

#include <cstdio>
#include <exception>

#include "command.h"
#include "epilogue/base/error.h"
#include "epilogue/runtime.h"

namespace epilogue::tool {
namespace {

int run(int argc, char** argv) {
  CLI::App app{"From nn.Linear to a fused MLP: profile it, explain it, fuse it."};
  app.name("epilogue");
  app.set_version_flag("--version", fmt::format("epilogue {}", version()));
  app.require_subcommand(1);
  app.footer(
      "Examples:\n"
      "  epilogue tour                                  see it all on real input\n"
      "  epilogue profile mlp --dtype f32 --out traces  table and trace of a GeGLU MLP\n"
      "  epilogue profile linear --record-shapes --with-flops\n"
      "  epilogue ops --format markdown                 the table of ops\n"
      "Every subcommand has --help. Exit: 0 fine, 1 the answer is no, 2 misuse or bad input.");
  Body body;
  add_profile_command(app, body);
  add_tour_command(app, body);
  add_ops_command(app, body);
  add_info_command(app, body);
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
