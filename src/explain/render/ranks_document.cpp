// SPDX-License-Identifier: Apache-2.0
// Several ranks as a document, and as JSON.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <numeric>
#include <vector>

#include "base/units.h"
#include "epilogue/trace/explain.h"
#include "epilogue/trace/report.h"
#include "explain/kernel_name/kernel_labels.h"
#include "explain/render/documents.h"
#include "explain/sections/section.h"

namespace epilogue::trace {
namespace {

std::string duration_or_dash(std::optional<int64_t> ns) {
  return ns ? format_duration_ns(static_cast<double>(*ns)) : "-";
}

// Three digits.
std::string bandwidth(double gb_s) {
  return gb_s < 999.5 ? fmt::format("{:#.3g} GB/s", gb_s) : fmt::format("{:.0f} GB/s", gb_s);
}

std::string share_text(int64_t part_ns, int64_t of_ns) {
  return fmt::format(
      "{:.1f} %",
      of_ns > 0 ? 100.0 * static_cast<double>(part_ns) / static_cast<double>(of_ns) : 0);
}

// Positions of the ranks that the text shows: all of them up to 64, else those that wait least and
// most, by number.
std::vector<size_t> shown_ranks(const RanksExplanation& e, int top) {
  constexpr size_t kAllShown = 64;
  std::vector<size_t> shown(e.ranks.size());
  std::iota(shown.begin(), shown.end(), size_t{0});
  const size_t each = static_cast<size_t>(std::max(top, 0));
  if (shown.size() <= kAllShown || top < 0 || shown.size() <= 2 * each) return shown;
  std::stable_sort(shown.begin(), shown.end(), [&](size_t a, size_t b) {
    return e.ranks[a].wait_ns.value_or(0) < e.ranks[b].wait_ns.value_or(0);
  });
  shown.erase(shown.begin() + static_cast<std::ptrdiff_t>(each),
              shown.end() - static_cast<std::ptrdiff_t>(each));
  std::sort(shown.begin(), shown.end());
  return shown;
}

std::string more_ranks(const RanksExplanation& e, const std::vector<size_t>& shown) {
  if (shown.size() == e.ranks.size()) return "";
  return fmt::format("and {} more; these wait least and most", e.ranks.size() - shown.size());
}

void add_ranks(const RanksExplanation& e, int top, Document& document) {
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
  const std::vector<size_t> shown = shown_ranks(e, top);
  grid.more = more_ranks(e, shown);
  for (const size_t i : shown) {
    const RankSummary& r = e.ranks[i];
    grid.rows.push_back({std::to_string(r.rank), format_duration_ns(r.span_ns),
                         r.busy_pct ? fmt::format("{:.1f} %", *r.busy_pct) : "-",
                         duration_or_dash(r.communication_ns), duration_or_dash(r.overlap_ns),
                         duration_or_dash(r.wait_ns),
                         r.bound ? std::string(bound_name(*r.bound)) : "-",
                         r.path.substr(r.path.find_last_of('/') + 1)});
  }
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

void add_groups(const RanksExplanation& e, int top, Document& document) {
  if (e.collectives.groups.empty()) return;
  document.push_back(Heading{"Process groups"});
  Grid grid{{{"group", true, 40},
             {"parallel", true},
             {"groups"},
             {"ranks"},
             {"collectives", true, 60},
             {"count"},
             {"per rank"},
             {"exposed"},
             {e.waits_are_whole() ? "waiting" : "waiting at least"}},
            {},
            ""};
  for (const GroupTime& g : e.collectives.groups)
    grid.rows.push_back({g.name, g.parallelism.empty() ? "-" : g.parallelism,
                         format_count(std::ssize(g.members)), format_count(g.size),
                         fmt::format("{}", fmt::join(g.collectives, ", ")), format_count(g.count),
                         format_duration_ns(g.total_ns), format_duration_ns(g.exposed_ns),
                         duration_or_dash(g.wait_ns)});
  limit_rows(grid, top);
  document.push_back(std::move(grid));
  document.push_back(Paragraph{
      "Groups of one name, with collectives. Times are means over the ranks that ran them."});
}

void add_pipeline(const RanksExplanation& e, Document& document) {
  if (!e.collectives.pipeline) return;
  document.push_back(Heading{"Pipeline"});
  Grid grid{
      {{"stage"}, {"ranks", true, 40}, {"span"}, {"work"}, {"send and receive"}, {"idle"}}, {}, ""};
  for (const PipelineStage& s : e.collectives.pipeline->stages) {
    const auto cell = [&](int64_t ns) {
      return fmt::format("{} {:>6}", format_duration_ns(ns), share_text(ns, s.span_ns));
    };
    grid.rows.push_back({std::to_string(s.stage), fmt::format("{}", fmt::join(s.ranks, ", ")),
                         format_duration_ns(s.span_ns), cell(s.work_ns), cell(s.send_recv_ns),
                         cell(s.idle_ns)});
  }
  document.push_back(std::move(grid));
  document.push_back(
      Paragraph{fmt::format("Bubbles take {:.1f} % at most: idle time, and sends and receives that "
                            "nothing hides. Times are "
                            "means over the ranks of a stage; work is compute and memory.",
                            e.collectives.pipeline->bubble_pct)});
}

void add_step_waits(const RanksExplanation& e, int top, Document& document) {
  if (e.collectives.steps.empty()) return;
  const bool has_all = e.has_all_ranks();
  document.push_back(Heading{"Stragglers over steps"});
  Grid grid{{{"step"},
             {"time"},
             {has_all ? "last rank" : "last of these"},
             {has_all ? "lost" : "lost at least"},
             {"share"},
             {"collectives"}},
            {},
            ""};
  std::vector<StepWaits> steps = e.collectives.steps;
  std::stable_sort(steps.begin(), steps.end(),
                   [](const StepWaits& a, const StepWaits& b) { return a.lost_ns > b.lost_ns; });
  for (const StepWaits& s : steps)
    grid.rows.push_back({std::to_string(s.step), format_duration_ns(s.span_ns),
                         s.last_rank ? std::to_string(*s.last_rank) : "-",
                         format_duration_ns(s.lost_ns), share_text(s.lost_ns, s.span_ns),
                         format_count(s.count)});
  limit_rows(grid, top);
  document.push_back(std::move(grid));
  document.push_back(Paragraph{
      "The steps that lose most come first. Lost is what the other ranks wait for the last one in "
      "collectives while nothing else runs, the mean over these ranks."});
}

void add_times(const RanksExplanation& e, int top, Document& document) {
  if (std::none_of(e.ranks.begin(), e.ranks.end(),
                   [](const RankSummary& r) { return r.time.has_value(); }))
    return;
  document.push_back(Heading{"Time of the device"});
  Grid grid{{{"rank"}, {"compute"}, {"memory"}, {"communication"}, {"idle"}}, {}, ""};
  const std::vector<size_t> shown = shown_ranks(e, top);
  grid.more = more_ranks(e, shown);
  for (const size_t i : shown) {
    const RankSummary& r = e.ranks[i];
    const auto cell = [&](int64_t DeviceTime::*part) {
      if (!r.time) return std::string("-");
      return fmt::format("{} {:>6}", format_duration_ns((*r.time).*part),
                         share_text((*r.time).*part, r.span_ns));
    };
    grid.rows.push_back({std::to_string(r.rank), cell(&DeviceTime::compute_ns),
                         cell(&DeviceTime::memory_ns), cell(&DeviceTime::communication_ns),
                         cell(&DeviceTime::idle_ns)});
  }
  document.push_back(std::move(grid));
  document.push_back(Paragraph{
      "Of each rank's span. Compute is products, convolutions and attention; memory is the "
      "other kernels, copies and fills beside which no compute runs; communication is "
      "collectives that nothing hides."});
}

void add_kernel_table(const RanksExplanation& e, int top, Document& document) {
  if (e.kernels.empty()) return;
  document.push_back(Heading{"Kernels over ranks"});
  std::vector<std::string_view> names;
  names.reserve(e.kernels.size());
  for (const KernelOverRanks& k : e.kernels) names.push_back(k.name);
  const KernelLabels labels(names);
  Grid grid{{{"kernel", true, 70},
             {"kind", true},
             {"count"},
             {"ranks"},
             {"mean per rank"},
             {"least"},
             {"on rank"},
             {"most"},
             {"on rank"}},
            {},
            ""};
  for (const KernelOverRanks& k : e.kernels) {
    if (top >= 0 && std::ssize(grid.rows) > top) break;
    grid.rows.push_back({labels.of(k.name), std::string(rank_work_name(k.work)),
                         format_count(k.count), format_count(k.ranks),
                         format_duration_ns(k.mean_ns), format_duration_ns(k.min_ns),
                         k.min_rank ? std::to_string(*k.min_rank) : "-",
                         format_duration_ns(k.max_ns), std::to_string(k.max_rank)});
  }
  limit_rows(grid, top);
  if (top >= 0 && std::ssize(e.kernels) > top)
    grid.more = fmt::format("and {} more", std::ssize(e.kernels) - top);
  document.push_back(std::move(grid));
}

Document build_ranks(const RanksExplanation& e, int top) {
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
  add_ranks(e, top, document);
  add_waits(e, document);
  add_groups(e, top, document);
  add_pipeline(e, document);
  add_step_waits(e, top, document);
  add_times(e, top, document);
  add_kernel_table(e, top, document);
  return document;
}

}  // namespace

std::string algbw_text(const std::optional<CollectiveRates>& rates) {
  return rates ? bandwidth(rates->algbw_gb_s) : "-";
}
std::string busbw_text(const std::optional<CollectiveRates>& rates) {
  return rates && rates->busbw_gb_s ? bandwidth(*rates->busbw_gb_s) : "-";
}
Document ranks_document(const RanksExplanation& ranks, int top) {
  Document document = build_ranks(ranks, top);
  document.json = [&ranks] { return ranks_json(ranks); };
  return document;
}

std::string ranks_text(const RanksExplanation& e, const ReportOptions& options) {
  return document_text(ranks_document(e, options.top), options.use_bold);
}
std::string ranks_markdown(const RanksExplanation& e) {
  return document_markdown(ranks_document(e, ReportOptions().top));
}

}  // namespace epilogue::trace
