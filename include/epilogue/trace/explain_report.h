// SPDX-License-Identifier: Apache-2.0
// Explanations and differences as text to paste into an issue, as JSON, as Markdown.
#pragma once

#include <string>

#include "epilogue/trace/diff.h"
#include "epilogue/trace/explain.h"
#include "epilogue/trace/explain_ranks.h"

namespace epilogue::trace {

struct ReportOptions {
  int top = 10;           // rows of each list; -1: all. JSON always has all
  bool use_bold = false;  // terminal escapes for headings
};

std::string explain_text(const Explanation& explanation, const ReportOptions& options = {});
std::string explain_markdown(const Explanation& explanation, const ReportOptions& options = {});
// One object, ending in a newline; see the command's contract for its keys.
std::string explain_json(const Explanation& explanation);

std::string diff_text(const TraceDiff& diff, const ReportOptions& options = {});
std::string diff_markdown(const TraceDiff& diff, const ReportOptions& options = {});
std::string diff_json(const TraceDiff& diff);

std::string ranks_text(const RanksExplanation& ranks, const ReportOptions& options = {});
std::string ranks_markdown(const RanksExplanation& ranks);
std::string ranks_json(const RanksExplanation& ranks);

}  // namespace epilogue::trace
