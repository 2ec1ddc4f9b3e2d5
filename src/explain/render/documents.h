// SPDX-License-Identifier: Apache-2.0
// What analyses of traces found, as documents. epilogue/trace/report.h has their renderings. What
// a document is made of must outlive it.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "epilogue/trace/kernel_name.h"
#include "epilogue/trace/ranks.h"
#include "explain/render/document.h"

namespace epilogue::trace {

struct Explanation;
struct RanksExplanation;
struct TraceDiff;
struct SnapshotAnswer;

// `top`: rows of each list; -1: all. JSON has all.
Document explain_document(const Explanation& explanation, int top);
Document diff_document(const TraceDiff& diff, int top);
Document ranks_document(const RanksExplanation& ranks, int top);
Document snapshot_document(const SnapshotAnswer& answer, int top);
// One page that holds all of it: tables, the curve, the map of addresses over time.
std::string snapshot_html_report(const SnapshotAnswer& answer, const std::string& title);
// Bandwidths of collectives: "18.3 GB/s", "-" if they are not known.
std::string algbw_text(const std::optional<CollectiveRates>& rates);
std::string busbw_text(const std::optional<CollectiveRates>& rates);
// A block per name; inferred fields are marked with '~'. JSON is a list of {"schema_version",
// "name", "family", "kind", "fields", "inferred", "notes", "ops", "summary"}.
Document kernel_names_document(std::span<const KernelName> names);

}  // namespace epilogue::trace
