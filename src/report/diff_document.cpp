// SPDX-License-Identifier: Apache-2.0
// A difference as a document, and as JSON.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/units.h"
#include "epilogue/trace/explain_report.h"
#include "report/document.h"
#include "report/json_numbers.h"

namespace epilogue::trace {
namespace {

std::string change(int64_t ns) {
  return (ns < 0 ? "-" : "+") + format_duration_ns(ns < 0 ? -ns : ns);
}
std::string pair(const std::array<int64_t, 2>& n) {
  return fmt::format("{} -> {}", format_count(n[0]), format_count(n[1]));
}

void add_kernels(const char* title, const std::vector<KernelChange>& list, int top,
                 Document& document) {
  if (list.empty()) return;
  document.push_back(Heading{title});
  Grid grid{{{"kernel", true, 80}, {"executions"}, {"time"}}, {}, ""};
  for (const KernelChange& k : list)
    grid.rows.push_back({k.name, pair(k.count),
                         fmt::format("{} -> {}", format_duration_ns(k.total_ns[0]),
                                     format_duration_ns(k.total_ns[1]))});
  limit_rows(grid, top);
  document.push_back(std::move(grid));
}

Document build(const TraceDiff& d, int top) {
  Document document;
  const double ratio =
      d.wall_ns[1] > 0 ? static_cast<double>(d.wall_ns[0]) / static_cast<double>(d.wall_ns[1]) : 0;
  document.push_back(
      Heading{fmt::format("wall time {} -> {} ({}){}", format_duration_ns(d.wall_ns[0]),
                          format_duration_ns(d.wall_ns[1]), change(d.wall_ns[1] - d.wall_ns[0]),
                          ratio > 0 ? fmt::format(", {:.2f}x", ratio) : "")});
  document.push_back(Paragraph{
      fmt::format("{}; device busy {} -> {}; kernels {}, launches {}, ops {}",
                  d.by_steps ? fmt::format("sum of {} steps", pair(d.steps)) : "whole traces",
                  format_duration_ns(d.busy_ns[0]), format_duration_ns(d.busy_ns[1]),
                  pair(d.kernels), pair(d.launches), pair(d.ops))});
  document.push_back(Heading{"Where the difference comes from"});
  Bullets parts;
  for (const DiffPart& part : d.parts) {
    if (top >= 0 && parts.items.size() >= static_cast<size_t>(top)) break;
    parts.items.push_back(
        {fmt::format("{}  {} ({} -> {})", change(part.delta_ns()), part.what,
                     format_duration_ns(part.before_ns), format_duration_ns(part.after_ns)),
         {part.why}});
  }
  if (parts.items.size() < d.parts.size()) {
    int64_t rest = 0;
    for (size_t i = parts.items.size(); i < d.parts.size(); ++i) rest += d.parts[i].delta_ns();
    parts.items.push_back(
        {fmt::format("{}  in {} more", change(rest), d.parts.size() - parts.items.size()), {}});
  }
  document.push_back(std::move(parts));
  add_kernels("Kernels only before", d.kernels_removed, top, document);
  add_kernels("Kernels only after", d.kernels_added, top, document);
  add_kernels("Kernels that changed", d.kernels_changed, top, document);
  return document;
}

nlohmann::ordered_json kernels_json(const std::vector<KernelChange>& list) {
  auto array = nlohmann::ordered_json::array();
  for (const KernelChange& k : list)
    array.push_back({{"name", k.name},
                     {"count", k.count},
                     {"total_us", {to_us(k.total_ns[0]), to_us(k.total_ns[1])}}});
  return array;
}

}  // namespace

std::string diff_text(const TraceDiff& diff, const ReportOptions& options) {
  return document_text(build(diff, options.top), options.use_bold);
}
std::string diff_markdown(const TraceDiff& diff, const ReportOptions& options) {
  return document_markdown(build(diff, options.top));
}

std::string diff_json(const TraceDiff& d) {
  auto parts = nlohmann::ordered_json::array();
  const auto bytes = [](int64_t n) {
    return n < 0 ? nlohmann::ordered_json() : nlohmann::ordered_json(n);
  };
  for (const DiffPart& part : d.parts)
    parts.push_back({{"what", part.what},
                     {"why", part.why},
                     {"delta_us", to_us(part.delta_ns())},
                     {"before_us", to_us(part.before_ns)},
                     {"after_us", to_us(part.after_ns)},
                     {"kernels", part.kernels},
                     {"bytes", {bytes(part.bytes[0]), bytes(part.bytes[1])}}});
  return dump_json({{"schema_version", kJsonSchemaVersion},
                    {"by_steps", d.by_steps},
                    {"steps", d.steps},
                    {"wall_us", {to_us(d.wall_ns[0]), to_us(d.wall_ns[1])}},
                    {"gpu_busy_us", {to_us(d.busy_ns[0]), to_us(d.busy_ns[1])}},
                    {"kernels", d.kernels},
                    {"launches", d.launches},
                    {"ops", d.ops},
                    {"parts", std::move(parts)},
                    {"unexplained_us", to_us(d.unexplained_ns)},
                    {"kernels_added", kernels_json(d.kernels_added)},
                    {"kernels_removed", kernels_json(d.kernels_removed)},
                    {"kernels_changed", kernels_json(d.kernels_changed)}});
}

}  // namespace epilogue::trace
