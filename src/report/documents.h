// SPDX-License-Identifier: Apache-2.0
// What analyses of traces found, as documents. epilogue/trace/report.h has their renderings. What
// a document is made of must outlive it.
#pragma once

#include <span>

#include "epilogue/trace/kernel_name.h"
#include "report/document.h"

namespace epilogue::trace {

struct Explanation;
struct RanksExplanation;
struct TraceDiff;

// `top`: rows of each list; -1: all. JSON has all.
Document explain_document(const Explanation& explanation, int top);
Document diff_document(const TraceDiff& diff, int top);
Document ranks_document(const RanksExplanation& ranks);
// A block per name; inferred fields are marked with '~'. JSON is a list of {"schema_version",
// "name", "family", "kind", "fields", "inferred", "notes", "ops", "summary"}.
Document kernel_names_document(std::span<const KernelName> names);

}  // namespace epilogue::trace
