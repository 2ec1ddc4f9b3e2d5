// SPDX-License-Identifier: Apache-2.0
// A trace's explanation as one HTML page that needs nothing else: no network, no other files.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "epilogue/trace/diff.h"
#include "epilogue/trace/explain.h"

namespace epilogue::trace {

// Above this a page would be too large to mail or to open on a phone.
inline constexpr size_t kMaxEmbeddedTraceBytes = size_t{64} << 20;

// The original trace, for the page's "Open in Perfetto" and "Download trace".
struct EmbeddedTrace {
  std::string gzip;       // empty: left out
  std::string file_name;  // "trace.json.gz"
  std::string note;       // why it was left out, or what to know of it; may be empty
};

// `file` is what the file holds, gzip or plain; `path` gives the name. Left out, with a note, where
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
};

// Names of the trace's metadata ("env.HF_TOKEN") that hold text and look like credentials; sorted.
// The page shows no metadata, but the trace embedded in it is the file as it is.
std::vector<std::string> credential_keys(const Trace& trace);

// Whatever bytes the trace's names hold, they cannot add markup or script to the page.
std::string html_report(const HtmlReportInput& input);

}  // namespace epilogue::trace
