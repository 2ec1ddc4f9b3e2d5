// SPDX-License-Identifier: Apache-2.0
// Which rows a table shows, in which order.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "epilogue/trace/report.h"
#include "epilogue/trace/table.h"

namespace epilogue::trace {

// Sorted, then limited. Throws Error for an unknown sort key.
std::vector<Row> shown_rows(const KeyAverages& averages, const TableOptions& options);

// The table for scripts, with these of its rows.
nlohmann::ordered_json averages_json(const KeyAverages& averages, std::span<const Row> shown);

// One line for each row and the keys of table_json() as columns; frames of a stack are joined by
// line ends.
std::string key_averages_csv(const KeyAverages& averages, const TableOptions& options);

}  // namespace epilogue::trace
