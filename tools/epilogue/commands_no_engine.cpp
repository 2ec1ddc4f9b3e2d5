// SPDX-License-Identifier: Apache-2.0
// In place of commands_engine.cpp where the engine is not built.
#include "tools/epilogue/command.h"

namespace epilogue::tool {

std::string add_engine_commands(CLI::App&, Body&) { return ""; }

}  // namespace epilogue::tool
