// SPDX-License-Identifier: Apache-2.0
// What is known of the machine, as JSON: in `epilogue info`, in its files, in traces' metadata.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

namespace epilogue::tool {

// Instruction set, threads, processor: what costs nothing to tell.
nlohmann::json machine_facts();
// Those and what an earlier run kept, if any did.
nlohmann::json known_machine();
// Those and what is measured: what an earlier run of any command kept, else it is measured now,
// with a progress bar, and kept. `again`: now in any case.
nlohmann::json measured_machine(bool again = false);
// Measures and keeps where nothing was kept yet: cost models then know this machine. Where nothing
// is to be kept (EPILOGUE_CACHE_DIR=off) they read constants.
void know_machine();
// The same from a file that `epilogue info --measure --format json` wrote. Throws Error where it
// cannot be used, or is of another number of threads or instruction set than those in use.
nlohmann::json machine_of_file(const std::string& path);

// The members that a trace carries, as profiler::Profile::add_metadata_json takes them.
std::vector<std::pair<std::string, std::string>> machine_metadata(const nlohmann::json& machine);

}  // namespace epilogue::tool
