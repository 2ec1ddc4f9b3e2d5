// SPDX-License-Identifier: Apache-2.0
// Renders key averages, explanations and differences: text, JSON, Markdown, HTML.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#pragma GCC visibility push(default)

namespace epilogue::trace {

// Inputs; callers of these functions include the headers that define them.
struct Trace;             // event.h
struct Links;             // links.h
struct CapturedOps;       // links.h
struct KeyAverages;       // table.h
struct Row;               // table.h
struct Explanation;       // explain.h
struct RanksExplanation;  // explain.h
struct TraceDiff;         // diff.h

// --- Key averages -------------------------------------------------------------------------------
// Renders key averages: torch.profiler's text table (as PyTorch 2.7.1 prints it), JSON, Markdown.

enum class TimeUnit { automatic, seconds, milliseconds, microseconds };

// EventList.table()'s parameters and defaults.
struct TableOptions {
  std::string sort_by = {};  // "": order of appearance; else one of sort_keys(), descending
  int row_limit = 100;       // -1: all
  int max_src_column_width = 75;
  int max_name_column_width = 55;
  int max_shapes_column_width = 80;
  std::optional<std::string> header = {};
  bool top_level_events_only = false;
  TimeUnit time_unit = TimeUnit::automatic;
};

// Keys that sort_by accepts. cuda_*, xpu_*, privateuse1_* and kernel_* keys mean device_*.
std::span<const std::string_view> sort_keys();

// Sorts rows by `key`, descending, ties in place. Throws Error that names the keys when it is
// unknown.
void sort_rows(std::vector<Row>& rows, std::string_view key);

// The text table; "" when there are no rows. Every line ends with a newline.
std::string format_table(const KeyAverages& averages, const TableOptions& options = {});

// One JSON object: {"schema_version", "device_label", "rows": [...], "self_cpu_total_us",
// "self_device_total_us"}. Honours sort_by, row_limit (here all rows by default) and
// top_level_events_only.
std::string table_json(const KeyAverages& averages,
                       const TableOptions& options = {.row_limit = -1});

// The text table's columns as a GitHub table.
std::string table_markdown(const KeyAverages& averages, const TableOptions& options = {});

// --- Explanations and differences ---------------------------------------------------------------
// Explanations and differences as text to paste into an issue, as JSON, as Markdown.

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

// --- HTML page ----------------------------------------------------------------------------------
// A trace's explanation as one HTML page that needs nothing else: no network, no other files.

// Above this a page would be too large to mail or to open on a phone.
inline constexpr size_t kMaxEmbeddedTraceBytes = size_t{64} << 20;

// The original trace, for the page's "Open in Perfetto" and "Download trace".
struct EmbeddedTrace {
  std::string gzip;       // empty: left out
  std::string file_name;  // "trace.json.gz"
  std::string note;       // why it was left out, or what to know of it; may be empty
};

// `file` is what the file holds, gzip or plain; `path` gives the name. Left out, with a note, if
// its gzip stream is longer than `limit_bytes`.
EmbeddedTrace embed_trace(std::string_view file, std::string_view path,
                          size_t limit_bytes = kMaxEmbeddedTraceBytes);

struct HtmlReportInput {
  const Trace& trace;
  const Links& links;
  const Explanation& explanation;  // of that trace
  std::string title = {};          // "": the trace's file name
  EmbeddedTrace embedded = {};
  // A comparison with an earlier trace; null: none. `trace` is its second one.
  const TraceDiff* diff = nullptr;
  std::string before_path = {};  // of the earlier trace
  // Ops of replayed graphs: of the key averages and of who launched a kernel; null: none.
  const CapturedOps* captured = nullptr;
  // Of one rank of several: the page of all ranks, relative to this page; "": none.
  std::string ranks_page = {};
};

// Names of the trace's metadata ("env.HF_TOKEN") that hold text and look like credentials; sorted.
// The page shows no metadata, but the trace embedded in it is the file as it is.
std::vector<std::string> credential_keys(const Trace& trace);

// Whatever bytes the trace's names hold, they cannot add markup or script to the page.
std::string html_report(const HtmlReportInput& input);
// The same for the ranks of one run. `title` is the heading. The page holds no trace. `rank_pages`
// has a page for each rank, in their order, relative to this page; empty: none.
std::string ranks_html_report(const RanksExplanation& ranks, const std::string& title,
                              const std::vector<std::string>& rank_pages = {});

}  // namespace epilogue::trace

#pragma GCC visibility pop
