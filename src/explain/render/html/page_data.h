// SPDX-License-Identifier: Apache-2.0
// What the page's scripts get beside the timeline's columns: one JSON object.
#pragma once

#include <nlohmann/json.hpp>

#include "epilogue/trace/report.h"

namespace epilogue::trace {

// A list of the page has at most so many rows: more than a reader looks at, few enough for a
// browser.
inline constexpr size_t kMaxPageRows = 10'000;

// {"schema_version", "title", "trace_file", "trace_note", "has_trace", "explanation", "sections",
// "averages", "kernels", "kernels_total_us", "left_out", "memory_curves", "queue_curves",
// "critical_path_pieces", "diff", "before_path", "ranks_page", "timeline"}: explanation and diff as
// the commands print them, sections as PageSink says, averages as `epilogue table` does, but for
// rows above kMaxPageRows. "left_out" says how many: {"averages.rows": 5, "kernels": 2,
// "explanation.dispatch_chains": 9}.
nlohmann::ordered_json page_data(const HtmlReportInput& input, nlohmann::ordered_json timeline);

// Of the ranks of one run: {"schema_version", "title", "has_trace", "ranks", "kernels",
// "finding_details", "left_out", "rank_pages"}. Ranks is what `epilogue explain DIR` prints, but
// for kernels above kMaxPageRows; kernels is what their names say; rank_pages is as given.
nlohmann::ordered_json ranks_page_data(const RanksExplanation& ranks, const std::string& title,
                                       const std::vector<std::string>& rank_pages);

struct SnapshotAnswer;
// Of a memory snapshot: {"schema_version", "title", "has_trace", "snapshot", "explanation",
// "sections", "kernels", "left_out"}. "explanation" is what `epilogue memory` prints, but for rows
// above kMaxPageRows. "snapshot" is what is drawn, for each device: "curve" ([us or event,
// allocated, reserved, bytes of each category]), "lives" ([begin, end, first byte, bytes, category,
// label] of the largest allocations, where bytes count from the map's beginning), "segments" (the
// same of segments), "labels", "places", "map_bytes".
nlohmann::ordered_json snapshot_page_data(const SnapshotAnswer& answer, const std::string& title);

}  // namespace epilogue::trace
