// SPDX-License-Identifier: Apache-2.0
// The machine's figures as one JSON object: in `epilogue info`, in its files, in traces.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/machine.h"

namespace epilogue::measure {

// Instruction sets, threads, processor, caches (bytes), and where figures are kept: what costs
// nothing to tell.
nlohmann::json machine_facts();

// Those and measured figures, as figures_json() names them.
nlohmann::json machine_json(const MachineFigures& figures);

// Those with the figures that this process has or an earlier one kept, if any did.
nlohmann::json known_machine();

// A machine_json() from text that `epilogue info --measure --format json` wrote to `path`. A
// failure, whose message says what was expected, where it is another text, or of another number of
// threads or instruction set than those in use: no_machine.
Result<nlohmann::json> parse_machine(std::string_view text, const std::string& path);

// The part of machine_json() that analyses of a trace read: keys and raw JSON, as
// profiler::Profile::add_metadata_json() takes them.
std::vector<std::pair<std::string, std::string>> trace_metadata(const nlohmann::json& machine);

}  // namespace epilogue::measure
