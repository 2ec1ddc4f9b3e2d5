// SPDX-License-Identifier: Apache-2.0
// Several ranks as a document, and as JSON.
#include <fmt/format.h>

#include "base/units.h"
#include "epilogue/trace/explain_report.h"
#include "report/document.h"
#include "report/json_numbers.h"

namespace epilogue::trace {
namespace {

using Json = nlohmann::ordered_json;

void add_ranks(const RanksExplanation& e, Document& document) {
  document.push_back(Heading{"Ranks"});
  Grid grid{{{"rank"},
             {"span"},
             {"busy"},
             {"communication"},
             {"hidden"},
             {"waiting"},
             {"verdict", true},
             {"file", true, 60}},
            {},
            ""};
  for (const RankSummary& r : e.ranks)
    grid.rows.push_back({std::to_string(r.rank), format_duration_ns(r.span_ns),
                         r.busy_pct ? fmt::format("{:.1f} %", *r.busy_pct) : "-",
                         format_duration_ns(r.communication_ns), format_duration_ns(r.overlap_ns),
                         format_duration_ns(r.wait_ns), std::string(bound_name(r.bound)),
                         r.path.substr(r.path.find_last_of('/') + 1)});
  document.push_back(std::move(grid));
}

void add_waits(const RanksExplanation& e, Document& document) {
  if (e.collectives.waits.empty()) return;
  document.push_back(Heading{"Collectives on all ranks"});
  Grid grid{
      {{"collective", true}, {"count"}, {"transfer"}, {"waiting per rank", true, 120}}, {}, ""};
  for (const CollectiveWaits& w : e.collectives.waits) {
    std::string waits;
    for (const int64_t ns : w.wait_ns)
      waits += (waits.empty() ? "" : ", ") + format_duration_ns(ns);
    grid.rows.push_back(
        {w.name, format_count(w.count), format_duration_ns(w.transfer_ns), std::move(waits)});
  }
  document.push_back(std::move(grid));
}

Document build(const RanksExplanation& e) {
  Document document;
  document.push_back(Heading{fmt::format("{} ranks", e.ranks.size())});
  Bullets list;
  for (const Finding& f : e.findings) list.items.push_back({f.title, f.evidence});
  if (list.items.empty())
    document.push_back(Paragraph{"No collective that all ranks have: nothing to compare."});
  else
    document.push_back(std::move(list));
  add_ranks(e, document);
  add_waits(e, document);
  return document;
}

}  // namespace

Json collectives_json(const RankCollectives& rank) {
  Json kinds = Json::array();
  for (const CollectiveStats& c : rank.kinds)
    kinds.push_back({{"name", c.name},
                     {"count", c.time.count},
                     {"bytes", or_null(c.bytes)},
                     {"total_us", to_us(c.time.total_ns)},
                     {"overlap_us", to_us(c.overlap_ns)},
                     {"exposed_us", to_us(c.exposed_ns)}});
  return {{"rank", rank.rank},
          {"communication_us", to_us(rank.communication_ns)},
          {"overlap_us", to_us(rank.overlap_ns)},
          {"kinds", std::move(kinds)}};
}

std::string ranks_text(const RanksExplanation& e, const ReportOptions& options) {
  return document_text(build(e), options.use_bold);
}
std::string ranks_markdown(const RanksExplanation& e) { return document_markdown(build(e)); }

std::string ranks_json(const RanksExplanation& e) {
  Json ranks = Json::array();
  for (size_t i = 0; i < e.ranks.size(); ++i) {
    const RankSummary& r = e.ranks[i];
    Json json = collectives_json(e.collectives.ranks[i]);
    json["path"] = r.path;
    json["verdict"] = bound_name(r.bound);
    json["span_us"] = to_us(r.span_ns);
    json["gpu_busy_pct"] = or_null(r.busy_pct);
    json["wait_us"] = to_us(r.wait_ns);
    ranks.push_back(std::move(json));
  }
  Json waits = Json::array();
  for (const CollectiveWaits& w : e.collectives.waits) {
    Json each = Json::array();
    for (const int64_t ns : w.wait_ns) each.push_back(to_us(ns));
    waits.push_back({{"name", w.name},
                     {"count", w.count},
                     {"transfer_us", to_us(w.transfer_ns)},
                     {"wait_us", std::move(each)}});
  }
  Json findings = Json::array();
  for (const Finding& f : e.findings) findings.push_back(finding_json(f));
  return dump_json({{"schema_version", kJsonSchemaVersion},
                    {"ranks", std::move(ranks)},
                    {"waits", std::move(waits)},
                    {"findings", std::move(findings)}});
}

}  // namespace epilogue::trace
