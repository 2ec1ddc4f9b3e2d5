// SPDX-License-Identifier: Apache-2.0
// What the page's scripts get beside the timeline's columns: one JSON object.
#pragma once

#include <nlohmann/json.hpp>

#include "epilogue/trace/report.h"

namespace epilogue::trace {

// {"schema_version", "title", "trace_file", "trace_note", "has_trace", "explanation", "averages",
// "kernels", "memory_curves", "diff", "before_path", "timeline"}: explanation and diff as the
// commands print them, averages as `epilogue table` does.
nlohmann::ordered_json page_data(const HtmlReportInput& input, nlohmann::ordered_json timeline);

}  // namespace epilogue::trace
