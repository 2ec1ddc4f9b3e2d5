// SPDX-License-Identifier: Apache-2.0
#include "explain/render/html/page_data.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <span>
#include <string_view>
#include <unordered_map>

#include "base/json.h"
#include "epilogue/trace/report.h"
#include "epilogue/trace/table.h"
#include "explain/render/html/page_sink.h"
#include "explain/render/json_numbers.h"
#include "explain/render/table_rows.h"
#include "explain/sections/curve_json.h"
#include "explain/sections/section.h"

namespace epilogue::trace {
namespace {

// More points than a plot has pixels show nothing more.
constexpr size_t kPlotBuckets = 1000;

// All executions of one kernel, copy or fill.
struct WorkSum {
  int64_t count = 0;
  int64_t total_ns = 0;
  int64_t min_ns = 0;
  int64_t max_ns = 0;
  std::map<std::string_view, int64_t> ns_by_op;
};

Json fields_json(const KernelName& name) {
  Json fields = Json::array();
  for (const KernelField& field : name.fields)
    fields.push_back({{"key", field.key},
                      {"value", field.value},
                      {"is_inferred", field.is_inferred},
                      {"note", field.note}});
  return fields;
}

// What a kernel's name says.
void add_name(std::string_view text, Json& json) {
  const KernelName name = decode_kernel_name(text);
  json["family"] = name.family;
  json["kind"] = kernel_kind_name(name.kind);
  json["summary"] = name.summary;
  json["fields"] = fields_json(name);
}

Json work_json(const Trace& trace, Category category, StringId id, const WorkSum& sum) {
  const std::string_view text = trace.strings[id];
  const auto op =
      std::max_element(sum.ns_by_op.begin(), sum.ns_by_op.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  Json json = {{"name", text},
               {"category", category_name(category)},
               {"count", sum.count},
               {"total_us", to_us(sum.total_ns)},
               {"mean_us", to_us(sum.total_ns) / static_cast<double>(sum.count)},
               {"min_us", to_us(sum.min_ns)},
               {"max_us", to_us(sum.max_ns)},
               {"op", op == sum.ns_by_op.end() ? "" : op->first},
               {"ops", sum.ns_by_op.size()}};
  if (category != Category::kernel) return json;
  add_name(text, json);
  return json;
}

// One entry per distinct name of device work, the longest total first.
Json kernels_json(const Trace& trace, const Links& links, const CapturedOps* captured,
                  Json& left_out) {
  std::map<std::pair<Category, StringId>, WorkSum> sums;
  for (const uint32_t i : links.device_work) {
    const Event& event = trace.events[i];
    WorkSum& sum = sums[{event.category, event.name}];
    sum.min_ns = sum.count == 0 ? event.dur_ns : std::min(sum.min_ns, event.dur_ns);
    sum.max_ns = std::max(sum.max_ns, event.dur_ns);
    ++sum.count;
    sum.total_ns += event.dur_ns;
    if (const uint32_t op = captured == nullptr ? kNone : captured->op_of(i); op != kNone)
      sum.ns_by_op[captured->ops[op].name] += event.dur_ns;
    else if (links.op[i] != kNone)
      sum.ns_by_op[trace.name(trace.events[links.op[i]])] += event.dur_ns;
  }
  std::vector<std::pair<std::pair<Category, StringId>, const WorkSum*>> list;
  list.reserve(sums.size());
  for (const auto& [key, sum] : sums) list.emplace_back(key, &sum);
  std::stable_sort(list.begin(), list.end(), [](const auto& a, const auto& b) {
    return a.second->total_ns > b.second->total_ns;
  });
  if (list.size() > kMaxPageRows) {
    left_out["kernels"] = list.size() - kMaxPageRows;
    list.resize(kMaxPageRows);
  }
  Json array = Json::array();
  for (const auto& [key, sum] : list)
    array.push_back(work_json(trace, key.first, key.second, *sum));
  return array;
}

int64_t device_work_ns(const Trace& trace, const Links& links) {
  int64_t sum = 0;
  for (const uint32_t i : links.device_work) sum += trace.events[i].dur_ns;
  return sum;
}

// The rows with the most time of their own, in their order.
Json page_averages_json(const KeyAverages& averages, Json& left_out) {
  const std::vector<Row>& rows = averages.rows;
  if (rows.size() <= kMaxPageRows) return averages_json(averages, rows);
  const auto self_ns = [&](size_t i) {
    return rows[i].self_cpu_time_total_ns + rows[i].self_device_time_total_ns;
  };
  std::vector<size_t> order(rows.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return self_ns(a) > self_ns(b); });
  order.resize(kMaxPageRows);
  std::sort(order.begin(), order.end());
  left_out["averages.rows"] = rows.size() - kMaxPageRows;
  std::vector<Row> shown;
  shown.reserve(order.size());
  for (const size_t i : order) shown.push_back(rows[i]);
  return averages_json(averages, shown);
}

// [start_us, end_us, position in the groups of explain --format json], of groups that the page has.
Json path_pieces_json(const std::optional<CriticalPath>& path) {
  Json pieces = Json::array();
  if (!path) return pieces;
  // What is narrower than half a pixel cannot be seen.
  constexpr int64_t kPixels = 2000;
  for (const PathPiece& piece : path->pieces)
    if (piece.group < kMaxPageRows &&
        piece.end_ns - piece.start_ns >= path->span_ns() / (2 * kPixels))
      pieces.push_back({to_us(piece.start_ns), to_us(piece.end_ns), piece.group});
  return pieces;
}

Json sections_json(const Explanation& e) {
  PageSink sink;
  for (const Section* section : shown_sections()) {
    if (section->show == nullptr) continue;
    sink.begin(section->id, section->title);
    section->show(e, sink);
  }
  return sink.take();
}

std::string_view file_name(std::string_view path) { return path.substr(path.rfind('/') + 1); }

}  // namespace

Json page_data(const HtmlReportInput& input, Json timeline) {
  Json curves = Json::array();
  for (const DeviceMemory& memory : input.explanation.memory)
    curves.push_back(curve_json(memory.totals, kPlotBuckets, &MemoryPoint::allocated_bytes));
  Json queues = Json::array();
  const std::vector<StreamQueue>& streams = input.explanation.queues;
  for (const StreamQueue& queue : std::span(streams).first(std::min(streams.size(), kMaxPageRows)))
    queues.push_back(curve_json(queue.points, kPlotBuckets, &QueuePoint::length));
  Json left_out = Json::object();
  ExplanationJson explanation = explanation_json(input.explanation, kMaxPageRows);
  for (const auto& [path, rows] : explanation.left_out.items())
    left_out["explanation." + path] = rows;
  Json averages =
      page_averages_json(key_averages(input.trace, {.captured = input.captured}), left_out);
  Json kernels = kernels_json(input.trace, input.links, input.captured, left_out);
  Json data = {{"schema_version", kJsonSchemaVersion},
               {"title", input.title.empty() ? file_name(input.explanation.path) : input.title},
               {"trace_file", input.embedded.file_name},
               {"trace_note", input.embedded.note},
               {"has_trace", !input.embedded.gzip.empty()},
               {"explanation", std::move(explanation.json)},
               {"sections", sections_json(input.explanation)},
               {"averages", std::move(averages)},
               {"kernels", std::move(kernels)},
               {"kernels_total_us", to_us(device_work_ns(input.trace, input.links))},
               {"left_out", std::move(left_out)},
               {"memory_curves", std::move(curves)},
               {"queue_curves", std::move(queues)},
               {"critical_path_pieces", path_pieces_json(input.explanation.critical_path)},
               {"timeline", std::move(timeline)}};
  if (input.diff != nullptr) {
    data["diff"] = parse_ordered_json(diff_json(*input.diff));
    data["before_path"] = file_name(input.before_path);
  }
  if (!input.ranks_page.empty()) data["ranks_page"] = input.ranks_page;
  return data;
}

Json ranks_page_data(const RanksExplanation& ranks, const std::string& title,
                     const std::vector<std::string>& rank_pages) {
  const size_t shown = std::min(ranks.kernels.size(), kMaxPageRows);
  Json kernels = Json::array();
  for (const KernelOverRanks& kernel : std::span(ranks.kernels).first(shown))
    add_name(kernel.name, kernels.emplace_back(Json{{"name", kernel.name}}));
  int64_t span_ns = 0;
  for (const RankSummary& rank : ranks.ranks) span_ns = std::max(span_ns, rank.span_ns);
  Json details = Json::array();
  for (const Finding& finding : ranks.findings)
    details.push_back(finding_details(finding, to_us(span_ns)));
  Json left_out = Json::object();
  if (shown < ranks.kernels.size()) left_out["ranks.kernels"] = ranks.kernels.size() - shown;
  return {{"schema_version", kJsonSchemaVersion},
          {"title", title},
          {"has_trace", false},
          {"ranks", ranks_explanation_json(ranks, kMaxPageRows)},
          {"kernels", std::move(kernels)},
          {"finding_details", std::move(details)},
          {"left_out", std::move(left_out)},
          {"rank_pages", rank_pages}};
}

}  // namespace epilogue::trace
