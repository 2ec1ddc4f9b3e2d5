// SPDX-License-Identifier: Apache-2.0
// Several ranks as JSON.
#include <algorithm>
#include <span>

#include "base/units.h"
#include "epilogue/trace/explain.h"
#include "epilogue/trace/report.h"
#include "explain/render/documents.h"
#include "explain/render/json_numbers.h"

namespace epilogue::trace {
namespace {

using Json = nlohmann::ordered_json;

Json algbw_json(const std::optional<CollectiveRates>& rates) {
  return rates ? Json(rates->algbw_gb_s) : Json();
}
Json busbw_json(const std::optional<CollectiveRates>& rates) {
  return rates ? or_null(rates->busbw_gb_s) : Json();
}

Json us_or_null(std::optional<int64_t> ns) { return ns ? Json(to_us(*ns)) : Json(); }

Json rank_kernels_json(const RanksExplanation& e, size_t max_kernels) {
  Json kernels = Json::array();
  for (const KernelOverRanks& k :
       std::span(e.kernels).first(std::min(max_kernels, e.kernels.size())))
    kernels.push_back({{"name", k.name},
                       {"kind", rank_work_name(k.work)},
                       {"count", k.count},
                       {"ranks", k.ranks},
                       {"total_us", to_us(k.total_ns)},
                       {"mean_us", to_us(k.mean_ns)},
                       {"min_us", to_us(k.min_ns)},
                       {"min_rank", or_null(k.min_rank)},
                       {"max_us", to_us(k.max_ns)},
                       {"max_rank", k.max_rank}});
  return kernels;
}

Json time_json(const std::optional<DeviceTime>& time) {
  if (!time) return {};
  return {{"compute_us", to_us(time->compute_ns)},
          {"memory_us", to_us(time->memory_ns)},
          {"communication_us", to_us(time->communication_ns)},
          {"idle_us", to_us(time->idle_ns)}};
}

Json rank_list_json(const RanksExplanation& e) {
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
    json["device_time"] = time_json(r.time);
    ranks.push_back(std::move(json));
  }
  return ranks;
}

Json waits_json(const RanksExplanation& e) {
  Json waits = Json::array();
  for (const CollectiveWaits& w : e.collectives.waits) {
    Json each = Json::array();
    for (const std::optional<int64_t>& ns : w.wait_ns) each.push_back(us_or_null(ns));
    waits.push_back({{"name", w.name},
                     {"count", w.count},
                     {"group", w.group.empty() ? Json() : Json(w.group)},
                     {"group_name", w.group_name.empty() ? Json() : Json(w.group_name)},
                     {"transfer_us", to_us(w.transfer_ns)},
                     {"sized_count", w.rates ? w.rates->count : 0},
                     {"algbw_gb_per_s", algbw_json(w.rates)},
                     {"busbw_gb_per_s", busbw_json(w.rates)},
                     {"wait_us", std::move(each)}});
  }
  return waits;
}

Json steps_json(const RanksExplanation& e) {
  Json steps = Json::array();
  for (const StepWaits& s : e.collectives.steps) {
    Json each = Json::array();
    for (const std::optional<int64_t>& ns : s.wait_ns) each.push_back(us_or_null(ns));
    steps.push_back({{"step", s.step},
                     {"span_us", to_us(s.span_ns)},
                     {"count", s.count},
                     {"last_rank", or_null(s.last_rank)},
                     {"lost_us", to_us(s.lost_ns)},
                     {"wait_us", std::move(each)}});
  }
  return steps;
}

Json groups_json(const RanksExplanation& e) {
  Json list = Json::array();
  for (const GroupTime& g : e.collectives.groups)
    list.push_back({{"name", g.name},
                    {"parallelism", g.parallelism.empty() ? Json() : Json(g.parallelism)},
                    {"members", g.members},
                    {"ranks_per_group", g.size},
                    {"collectives", g.collectives},
                    {"count", g.count},
                    {"total_us", to_us(g.total_ns)},
                    {"exposed_us", to_us(g.exposed_ns)},
                    {"wait_us", us_or_null(g.wait_ns)}});
  return list;
}

Json pipeline_json(const RanksExplanation& e) {
  if (!e.collectives.pipeline) return {};
  Json stages = Json::array();
  for (const PipelineStage& s : e.collectives.pipeline->stages)
    stages.push_back({{"stage", s.stage},
                      {"ranks", s.ranks},
                      {"span_us", to_us(s.span_ns)},
                      {"work_us", to_us(s.work_ns)},
                      {"send_recv_us", to_us(s.send_recv_ns)},
                      {"idle_us", to_us(s.idle_ns)}});
  return {{"bubble_pct", e.collectives.pipeline->bubble_pct}, {"stages", std::move(stages)}};
}

Json stragglers_json(const RanksExplanation& e) {
  Json list = Json::array();
  for (const Straggler& s : e.collectives.stragglers)
    list.push_back({{"rank", s.rank}, {"steps", s.steps}, {"lost_us", to_us(s.lost_ns)}});
  return list;
}

}  // namespace

Json ranks_explanation_json(const RanksExplanation& e, size_t max_kernels) {
  Json missing = Json::array();
  for (const RankRange& range : e.missing)
    missing.push_back({{"first", range.first}, {"last", range.last}});
  Json findings = Json::array();
  for (const Finding& f : e.findings) findings.push_back(finding_json(f));
  return {{"schema_version", kJsonSchemaVersion},
          {"world_size", or_null(e.world_size)},
          {"missing_ranks", std::move(missing)},
          {"has_all_ranks", e.has_all_ranks()},
          {"left_out", e.left_out},
          {"ranks", rank_list_json(e)},
          {"waits", waits_json(e)},
          {"unmatched", e.collectives.unmatched},
          {"groups", groups_json(e)},
          {"pipeline", pipeline_json(e)},
          {"steps", steps_json(e)},
          {"stragglers", stragglers_json(e)},
          {"kernels", rank_kernels_json(e, max_kernels)},
          {"findings", std::move(findings)}};
}

std::string ranks_json(const RanksExplanation& e) {
  return dump_json(ranks_explanation_json(e, e.kernels.size()));
}

}  // namespace epilogue::trace
