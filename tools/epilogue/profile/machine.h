// SPDX-License-Identifier: Apache-2.0
// The machine's figures for a command: measured with a progress bar, where they are missing.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace epilogue::tool {

// measure::known_machine() with what an earlier run of any command kept, else it is measured now
// and kept. `again`: now in any case.
nlohmann::json measured_machine(bool again = false);
// Measures and keeps where nothing was kept yet: cost models then know this machine. Where nothing
// is to be kept (EPILOGUE_CACHE_DIR=off) they read constants.
void know_machine();
// The same from a file that `epilogue info --measure --format json` wrote. Throws Error where it
// cannot be used, or is of another number of threads or instruction set than those in use.
nlohmann::json machine_of_file(const std::string& path);

}  // namespace epilogue::tool
