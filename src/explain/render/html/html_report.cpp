// SPDX-License-Identifier: Apache-2.0
// Fills the page's template. All data goes in as base64 of gzip, which holds no character that HTML
// gives a meaning; what stands in the markup itself is escaped.
#include "epilogue/trace/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>

#include "base/json.h"
#include "base/printable.h"
#include "base/units.h"
#include "epilogue/trace/explain.h"
#include "explain/render/documents.h"
#include "explain/render/html/assets.h"
#include "explain/render/html/base64.h"
#include "explain/render/html/page_data.h"
#include "explain/render/html/page_timeline.h"
#include "explain/sections/snapshot_sections.h"
#include "trace/gzip_bytes.h"

namespace epilogue::trace {
namespace {

constexpr std::string_view kGzipMagic = "\x1f\x8b";

std::string html_escaped(std::string_view text) {
  std::string out;
  for (const char c : printable(text)) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      case '\'': out += "&#39;"; break;
      default: out += c;
    }
  }
  return out;
}

std::string packed(std::string_view bytes) { return base64(gzip_bytes(bytes).value()); }

std::string bytes_of_hex(std::string_view hex) {
  std::string bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2)
    bytes += static_cast<char>(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16));
  return bytes;
}

// Only the page's own script and style may run; nothing is fetched from anywhere.
std::string content_security_policy() {
  const auto hash = [](const PageAsset& asset) {
    return "'sha256-" + base64(bytes_of_hex(asset.sha256_hex)) + "'";
  };
  return fmt::format(
      "default-src 'none'; script-src {}; style-src {}; base-uri 'none'; form-action 'none'",
      hash(page_script()), hash(page_style()));
}

// Replaces each {{name}}. Values are not looked at again, so they may hold anything.
std::string filled(std::string_view text, const std::map<std::string_view, std::string>& values) {
  std::string out;
  while (true) {
    const size_t open = text.find("{{");
    const size_t close = text.find("}}", open);
    if (close == std::string_view::npos) return out.append(text);
    out.append(text.substr(0, open));
    out += values.at(text.substr(open + 2, close - open - 2));
    text.remove_prefix(close + 2);
  }
}

double cost_us(const Finding& finding) {
  return finding.saving_us.value_or(finding.cost_us.value_or(0));
}

std::string verdict_text(const Explanation& explanation) {
  return explanation.findings.empty() ? std::string(bound_name(explanation.verdicts.whole.bound))
                                      : explanation.findings.front().title;
}

// The costliest finding, else the first.
std::string verdict_text(const RanksExplanation& ranks) {
  if (ranks.findings.empty())
    return counted(static_cast<int64_t>(ranks.ranks.size()), "rank", "ranks");
  return std::max_element(
             ranks.findings.begin(), ranks.findings.end(),
             [](const Finding& a, const Finding& b) { return cost_us(a) < cost_us(b); })
      ->title;
}

// `columns`: the timeline's; `trace`: gzip of the trace.
std::string page_of(const nlohmann::ordered_json& data, std::string_view verdict,
                    std::string_view columns, std::string_view trace) {
  const std::string json = json_text_of_names(data);
  const auto title = data["title"].get<std::string>();
  return filled(page_template().text, {{"csp", content_security_policy()},
                                       {"title", html_escaped(title)},
                                       {"verdict", html_escaped(verdict)},
                                       {"style", page_style().text},
                                       {"script", page_script().text},
                                       {"report", packed(json)},
                                       {"columns", packed(columns)},
                                       {"trace", base64(trace)}});
}

}  // namespace

std::string snapshot_html_report(const SnapshotAnswer& answer, const std::string& title) {
  std::string verdict = "no device in the snapshot";
  for (const DeviceMemoryReport& d : answer.report.devices) {
    verdict = d.findings.empty()
                  ? fmt::format("{} at the peak", format_bytes(static_cast<double>(d.peak_bytes)))
                  : d.findings.front().title;
    if (!d.findings.empty()) break;
  }
  return page_of(snapshot_page_data(answer, title), verdict, "", "");
}

EmbeddedTrace embed_trace(std::string_view file, std::string_view path, size_t limit_bytes) {
  EmbeddedTrace embedded;
  embedded.file_name = std::string(path.substr(path.rfind('/') + 1));
  const bool is_gzip = file.starts_with(kGzipMagic);
  std::optional<std::string> gzip;
  if (!is_gzip) {
    gzip = gzip_bytes(file, limit_bytes);
    embedded.file_name += ".gz";
  } else if (file.size() <= limit_bytes) {
    gzip = std::string(file);
  }
  if (gzip) {
    embedded.gzip = std::move(*gzip);
  } else {
    embedded.note = fmt::format("The trace is not in this page: compressed it is over {}.",
                                format_bytes(static_cast<double>(limit_bytes)));
  }
  return embedded;
}

std::string html_report(const HtmlReportInput& input) {
  PageTimeline timeline =
      page_timeline(input.trace, input.links, input.explanation.timeline.start_ns.value_or(0));
  return page_of(page_data(input, std::move(timeline.header)), verdict_text(input.explanation),
                 timeline.columns, input.embedded.gzip);
}

std::string ranks_html_report(const RanksExplanation& ranks, const std::string& title,
                              const std::vector<std::string>& rank_pages) {
  return page_of(ranks_page_data(ranks, title, rank_pages), verdict_text(ranks), "", "");
}

}  // namespace epilogue::trace
