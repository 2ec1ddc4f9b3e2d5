// SPDX-License-Identifier: Apache-2.0
// The command `epilogue`: parses, runs one subcommand, exits as command.h says.
#include <cstdio>
#include <exception>

#include "tools/epilogue/command.h"

int main(int argc, char** argv) {
  try {
    return epilogue::tool::run_command(argc, argv, "epilogue " EPILOGUE_VERSION);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "epilogue: unexpected error: %s\n", e.what());
    return epilogue::tool::kExitMisuse;
  }
}
