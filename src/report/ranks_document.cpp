// SPDX-License-Identifier: Apache-2.0
// Several ranks as a document, and as JSON.
#include <fmt/format.h>

#include <algorithm>

#include "base/units.h"
#include "epilogue/trace/explain.h"
#include "epilogue/trace/report.h"
#include "report/documents.h"
#include "report/json_numbers.h"

namespace epilogue::trace {
namespace {

using Json = nlohmann::ordered_json;

std::string duration_or_dash(std::optional<int64_t> ns) {
  return ns ? format_duration_ns(static_cast<double>(*ns)) : "-";
}

// Three digits.
std::string bandwidth(double gb_s) {
  return gb_s < 999.5 ? fmt::format("{:#.3g} GB/s", gb_s) : fmt::format("{:.0f} GB/s", gb_s);
}

Json algbw_json(const std::optional<CollectiveRates>& rates) {
  return rates ? Json(rates->algbw_gb_s) : Json();
}
Json busbw_json(const std::optional<CollectiveRates>& rates) {
  return rates ? or_null(rates->busbw_gb_s) : Json();
}

Json us_or_null(std::optional<int64_t> ns) { return ns ? Json(to_us(*ns)) : Json(); }

void add_ranks(const RanksExplanation& e, Document& document) {
  document.push_back(Heading{"Ranks"});
  Grid grid{{{"rank"},
             {"span"},
             {"busy"},
             {"communication"},
             {"hidden"},
             {e.waits_are_whole() ? "waiting" : "waiting at least"},
             {"verdict", true},
             {"file", true, 60}},
            {},
            ""};
  for (const RankSummary& r : e.ranks)
    grid.rows.push_back({std::to_string(r.rank), format_duration_ns(r.span_ns),
                         r.busy_pct ? fmt::format("{:.1f} %", *r.busy_pct) : "-",
                         duration_or_dash(r.communication_ns), duration_or_dash(r.overlap_ns),
                         duration_or_dash(r.wait_ns),
                         r.bound ? std::string(bound_name(*r.bound)) : "-",
                         r.path.substr(r.path.find_last_of('/') + 1)});
  document.push_back(std::move(grid));
}

void add_waits(const RanksExplanation& e, Document& document) {
  if (e.collectives.waits.empty()) return;
  const bool has_all = e.has_all_ranks();
  document.push_back(Heading{has_all ? "Collectives on all ranks" : "Collectives of these ranks"});
  Grid grid{{{"collective", true},
             {"count"},
             {has_all ? "transfer" : "transfer at most"},
             {"algbw"},
             {"busbw"},
             {has_all ? "waiting per rank" : "waiting per rank, at least", true, 120}},
            {},
            ""};
  for (const CollectiveWaits& w : e.collectives.waits) {
    std::string waits;
    for (const std::optional<int64_t>& ns : w.wait_ns)
      waits += (waits.empty() ? "" : ", ") + duration_or_dash(ns);
    grid.rows.push_back({w.group.empty() ? w.name : w.name + " " + w.group, format_count(w.count),
                         format_duration_ns(w.transfer_ns), algbw_text(w.rates),
                         busbw_text(w.rates), std::move(waits)});
  }
  document.push_back(std::move(grid));
  document.push_back(Paragraph{
      bandwidth_note(std::any_of(e.collectives.waits.begin(), e.collectives.waits.end(),
                                 [](const CollectiveWaits& w) { return w.rates.has_value(); }),
                     "by the time of the transfer alone")});
}

Document build_ranks(const RanksExplanation& e) {
  Document document;
  const bool is_part = e.world_size && !e.missing.empty();
  document.push_back(Heading{is_part
                                 ? fmt::format("{} of {} ranks", e.ranks.size(), *e.world_size)
                                 : counted(static_cast<int64_t>(e.ranks.size()), "rank", "ranks")});
  Bullets list;
  for (const Finding& f : e.findings) list.items.push_back({f.title, f.evidence});
  if (!list.items.empty()) document.push_back(std::move(list));
  if (e.collectives.waits.empty())
    document.push_back(Paragraph{"No collective is matched between ranks: nothing to compare."});
  add_ranks(e, document);
  add_waits(e, document);
  return document;
}

}  // namespace

std::string algbw_text(const std::optional<CollectiveRates>& rates) {
  return rates ? bandwidth(rates->algbw_gb_s) : "-";
}
std::string busbw_text(const std::optional<CollectiveRates>& rates) {
  return rates && rates->busbw_gb_s ? bandwidth(*rates->busbw_gb_s) : "-";
}
std::string bandwidth_note(bool has_sizes, std::string_view time) {
  if (!has_sizes)
    return "The sizes of these collectives are not recorded: no bandwidth can be told.";
  return fmt::format(
      "algbw is the size by the time and busbw what each link carried, as nccl-tests defines them, "
      "{}. \"-\": the size, or for busbw the number of ranks, is not recorded.",
      time);
}

Json collectives_json(const RankCollectives& rank) {
  Json kinds = Json::array();
  for (const CollectiveStats& c : rank.kinds)
    kinds.push_back({{"name", c.name},
                     {"count", c.time.count},
                     {"bytes", or_null(c.bytes)},
                     {"total_us", to_us(c.time.total_ns)},
                     {"overlap_us", to_us(c.overlap_ns)},
                     {"exposed_us", to_us(c.exposed_ns)},
                     {"sized_count", c.rates ? c.rates->count : 0},
                     {"algbw_gb_per_s", algbw_json(c.rates)},
                     {"busbw_gb_per_s", busbw_json(c.rates)}});
  return {{"rank", rank.rank},
          {"communication_us", to_us(rank.communication_ns)},
          {"overlap_us", to_us(rank.overlap_ns)},
          {"kinds", std::move(kinds)}};
}

Document ranks_document(const RanksExplanation& ranks) {
  Document document = build_ranks(ranks);
  document.json = [&ranks] { return ranks_json(ranks); };
  return document;
}

std::string ranks_text(const RanksExplanation& e, const ReportOptions& options) {
  return document_text(ranks_document(e), options.use_bold);
}
std::string ranks_markdown(const RanksExplanation& e) {
  return document_markdown(ranks_document(e));
}

std::string ranks_json(const RanksExplanation& e) {
  Json ranks = Json::array();
  for (size_t i = 0; i < e.ranks.size(); ++i) {
    const RankSummary& r = e.ranks[i];
    Json json = collectives_json(e.collectives.ranks[i]);
    json["communication_us"] = us_or_null(r.communication_ns);
    json["overlap_us"] = us_or_null(r.overlap_ns);
    json["path"] = r.path;
    json["is_truncated"] = r.is_truncated;
    json["verdict"] = r.bound ? Json(bound_name(*r.bound)) : Json();
    json["span_us"] = to_us(r.span_ns);
    json["gpu_busy_pct"] = or_null(r.busy_pct);
    json["wait_us"] = us_or_null(r.wait_ns);
    ranks.push_back(std::move(json));
  }
  Json waits = Json::array();
  for (const CollectiveWaits& w : e.collectives.waits) {
    Json each = Json::array();
    for (const std::optional<int64_t>& ns : w.wait_ns) each.push_back(us_or_null(ns));
    waits.push_back({{"name", w.name},
                     {"count", w.count},
                     {"group", w.group.empty() ? Json() : Json(w.group)},
                     {"transfer_us", to_us(w.transfer_ns)},
                     {"sized_count", w.rates ? w.rates->count : 0},
                     {"algbw_gb_per_s", algbw_json(w.rates)},
                     {"busbw_gb_per_s", busbw_json(w.rates)},
                     {"wait_us", std::move(each)}});
  }
  Json missing = Json::array();
  for (const RankRange& range : e.missing)
    missing.push_back({{"first", range.first}, {"last", range.last}});
  Json findings = Json::array();
  for (const Finding& f : e.findings) findings.push_back(finding_json(f));
  return dump_json({{"schema_version", kJsonSchemaVersion},
                    {"world_size", or_null(e.world_size)},
                    {"missing_ranks", std::move(missing)},
                    {"has_all_ranks", e.has_all_ranks()},
                    {"ranks", std::move(ranks)},
                    {"waits", std::move(waits)},
                    {"unmatched", e.collectives.unmatched},
                    {"findings", std::move(findings)}});
}

}  // namespace epilogue::trace
