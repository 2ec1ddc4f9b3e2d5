// SPDX-License-Identifier: Apache-2.0
// A difference as a document, and as JSON.
#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/units.h"
#include "epilogue/trace/diff.h"
#include "epilogue/trace/report.h"
#include "explain/compare/diff_parts.h"
#include "explain/render/documents.h"
#include "explain/render/json_numbers.h"

namespace epilogue::trace {
namespace {

std::string change(int64_t ns) {
  return (ns < 0 ? "-" : "+") + format_duration_ns(ns < 0 ? -ns : ns);
}
std::string pair(const std::array<double, 2>& n) {
  return count_text(n[0]) + " -> " + count_text(n[1]);
}

// What a kernel does in words, and where its name differs from others that do the same.
constexpr size_t kMaxLabelChars = 160;

void add_changes(const std::string& title, const char* column,
                 const std::vector<KernelChange>& list, int top, Document& document) {
  if (list.empty()) return;
  document.push_back(Heading{title});
  Grid grid{{{column, true, kMaxLabelChars}, {"executions"}, {"time"}}, {}, ""};
  for (const KernelChange& k : list)
    grid.rows.push_back({k.label, pair(k.count),
                         fmt::format("{} -> {}", format_duration_ns(k.total_ns[0]),
                                     format_duration_ns(k.total_ns[1]))});
  limit_rows(grid, top);
  document.push_back(std::move(grid));
}

std::string what_is_compared(const TraceDiff& d) {
  if (!d.by_steps) return "whole traces";
  const std::string steps = fmt::format("{} -> {} steps", d.steps[0], d.steps[1]);
  return d.per_step
             ? fmt::format("per step, averages over {}: all numbers below are of one step", steps)
             : "sum of " + steps;
}

void add_all_changes(const TraceDiff& d, int top, Document& document) {
  const char* each = d.per_step ? ", per step" : "";
  add_changes(fmt::format("Kernels only before{}", each), "kernel", d.kernels_removed, top,
              document);
  add_changes(fmt::format("Kernels only after{}", each), "kernel", d.kernels_added, top, document);
  add_changes(fmt::format("Kernels that changed{}", each), "kernel", d.kernels_changed, top,
              document);
  const std::string self = fmt::format(" (time in themselves{})", each);
  add_changes("Ops only before" + self, "op", d.ops_removed, top, document);
  add_changes("Ops only after" + self, "op", d.ops_added, top, document);
  add_changes("Ops that changed" + self, "op", d.ops_changed, top, document);
}

std::string device_text(const TraceDiff& d) {
  return fmt::format("device busy {} -> {}; kernels {}, launches {}, ",
                     format_duration_ns(d.busy_ns[0]), format_duration_ns(d.busy_ns[1]),
                     pair(d.kernels), pair(d.launches));
}

std::string captured_text(const TraceDiff& d) {
  const auto side = [&](size_t i) {
    return d.captured_pct[i] ? fmt::format("{:.0f} %", *d.captured_pct[i]) : "no graph replayed";
  };
  return fmt::format(
      "Kernels of replayed graphs have the op that captured them, by time: {} -> {}.", side(0),
      side(1));
}

Document build_diff(const TraceDiff& d, int top) {
  Document document;
  const double ratio =
      d.wall_ns[1] > 0 ? static_cast<double>(d.wall_ns[0]) / static_cast<double>(d.wall_ns[1]) : 0;
  document.push_back(Heading{fmt::format(
      "wall time{} {} -> {} ({}){}", d.per_step ? " per step" : "",
      format_duration_ns(d.wall_ns[0]), format_duration_ns(d.wall_ns[1]),
      change(d.wall_ns[1] - d.wall_ns[0]), ratio > 0 ? fmt::format(", {:.2f}x", ratio) : "")});
  const std::string ops = "ops " + pair(d.ops);
  document.push_back(
      Paragraph{what_is_compared(d) + "; " + (d.has_device_work ? device_text(d) + ops : ops)});
  if (!d.devices[0].empty() && !d.devices[1].empty() && d.devices[0] != d.devices[1])
    document.push_back(Paragraph{
        fmt::format("The traces are of different devices: {} -> {}. A part of the difference is "
                    "theirs, and not the program's.",
                    d.devices[0], d.devices[1])});
  if (d.captured_pct[0] || d.captured_pct[1]) document.push_back(Paragraph{captured_text(d)});
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
  if (d.parts.empty())
    document.push_back(Paragraph{"No part takes longer or shorter than before."});
  else
    document.push_back(std::move(parts));
  add_all_changes(d, top, document);
  return document;
}

// Whole counts as integers, which they are where they are no averages.
nlohmann::ordered_json count_json(double count) {
  const double whole = std::round(count);
  return count == whole ? nlohmann::ordered_json(static_cast<int64_t>(whole))
                        : nlohmann::ordered_json(count);
}
nlohmann::ordered_json counts_json(const std::array<double, 2>& n) {
  return {count_json(n[0]), count_json(n[1])};
}

nlohmann::ordered_json changes_json(const std::vector<KernelChange>& list) {
  auto array = nlohmann::ordered_json::array();
  for (const KernelChange& k : list)
    array.push_back({{"name", k.name},
                     {"label", k.label},
                     {"count", counts_json(k.count)},
                     {"total_us", {to_us(k.total_ns[0]), to_us(k.total_ns[1])}}});
  return array;
}

}  // namespace

Document diff_document(const TraceDiff& diff, int top) {
  Document document = build_diff(diff, top);
  document.json = [&diff] { return diff_json(diff); };
  return document;
}

std::string diff_text(const TraceDiff& diff, const ReportOptions& options) {
  return document_text(diff_document(diff, options.top), options.use_bold);
}
std::string diff_markdown(const TraceDiff& diff, const ReportOptions& options) {
  return document_markdown(diff_document(diff, options.top));
}

std::string diff_json(const TraceDiff& d) {
  auto parts = nlohmann::ordered_json::array();
  const auto bytes = [](int64_t n) {
    return n < 0 ? nlohmann::ordered_json() : nlohmann::ordered_json(n);
  };
  const auto pct = [](const std::optional<double>& value) {
    return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json();
  };
  for (const DiffPart& part : d.parts)
    parts.push_back({{"what", part.what},
                     {"why", part.why},
                     {"delta_us", to_us(part.delta_ns())},
                     {"before_us", to_us(part.before_ns)},
                     {"after_us", to_us(part.after_ns)},
                     {"kernels", counts_json(part.kernels)},
                     {"kernel_names", part.kernel_names},
                     {"bytes", {bytes(part.bytes[0]), bytes(part.bytes[1])}}});
  return dump_json({{"schema_version", kJsonSchemaVersion},
                    {"by_steps", d.by_steps},
                    {"per_step", d.per_step},
                    {"steps", d.steps},
                    {"wall_us", {to_us(d.wall_ns[0]), to_us(d.wall_ns[1])}},
                    {"gpu_busy_us", {to_us(d.busy_ns[0]), to_us(d.busy_ns[1])}},
                    {"devices", d.devices},
                    {"kernels", counts_json(d.kernels)},
                    {"launches", counts_json(d.launches)},
                    {"ops", counts_json(d.ops)},
                    {"captured_pct", {pct(d.captured_pct[0]), pct(d.captured_pct[1])}},
                    {"parts", std::move(parts)},
                    {"unexplained_us", to_us(d.unexplained_ns)},
                    {"kernels_added", changes_json(d.kernels_added)},
                    {"kernels_removed", changes_json(d.kernels_removed)},
                    {"kernels_changed", changes_json(d.kernels_changed)},
                    {"ops_added", changes_json(d.ops_added)},
                    {"ops_removed", changes_json(d.ops_removed)},
                    {"ops_changed", changes_json(d.ops_changed)}});
}

}  // namespace epilogue::trace
