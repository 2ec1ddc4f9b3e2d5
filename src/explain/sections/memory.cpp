// SPDX-License-Identifier: Apache-2.0
// Memory at the peak: who holds it.
#include <fmt/format.h>

#include "base/units.h"
#include "explain/sections/curve_json.h"
#include "explain/sections/section.h"

namespace epilogue::trace {
namespace {

// Points of a curve over time; the page has more.
constexpr size_t kMemoryCurveBuckets = 200;

Json holder_json(const MemoryHolder& h) {
  return {{"op", h.op}, {"allocations", h.allocations}, {"bytes", h.bytes}};
}

Json python_holder_json(const PythonMemoryHolder& h) {
  return {{"module", h.module},
          {"function", h.function},
          {"allocations", h.allocations},
          {"bytes", h.bytes}};
}

Json category_json(const DeviceMemory& m, size_t category) {
  return {{"category", memory_category_name(static_cast<MemoryCategory>(category))},
          {"at_peak_bytes", m.category_at_peak[category]},
          {"peak_bytes", m.category_peak[category]}};
}

// `path` is the place of the device in the explanation: "memory.0".
Json device_memory_json(const DeviceMemory& m, const std::string& path, JsonLists& lists) {
  Json categories = Json::array();
  for (size_t c = 0; !m.category_totals.empty() && c < kMemoryCategories; ++c)
    categories.push_back(category_json(m, c));
  return {{"device_type", static_cast<int>(m.type)},
          {"device", m.device},
          {"allocations", m.allocations},
          {"frees", m.frees},
          {"peak_bytes", m.peak_bytes},
          {"peak_us", to_us(m.peak_ns)},
          {"peak_reserved_bytes", m.peak_reserved_bytes},
          {"before_window_bytes", or_null(m.before_window_bytes)},
          {"is_relative", m.is_relative},
          {"out_of_memory", m.out_of_memory},
          {"categories", std::move(categories)},
          {"at_peak", array_of(m.at_peak, holder_json)},
          {"at_peak_by_python",
           lists.of(path + ".at_peak_by_python", m.at_peak_by_python, python_holder_json)},
          {"over_time", curve_json(m.totals, kMemoryCurveBuckets, &MemoryPoint::allocated_bytes)}};
}

void add_memory_json(const Explanation& e, Json& json, JsonLists& lists) {
  Json& array = json["memory"] = Json::array();
  for (const DeviceMemory& m : e.memory)
    array.push_back(device_memory_json(m, "memory." + std::to_string(array.size()), lists));
}

std::string facts_of(const DeviceMemory& m) {
  std::string text = fmt::format("{}; {}", counted(m.allocations, "allocation", "allocations"),
                                 counted(m.frees, "free", "frees"));
  const auto bytes = [](int64_t n) { return format_bytes(static_cast<double>(n)); };
  if (m.before_window_bytes.value_or(0) > 0)
    text += "; " + bytes(*m.before_window_bytes) + " of it from before the window";
  if (m.peak_reserved_bytes > 0)
    text += "; " + bytes(m.peak_reserved_bytes) + " reserved by the allocator";
  if (m.out_of_memory > 0)
    text += "; " + counted(m.out_of_memory, "failed allocation", "failed allocations");
  if (m.is_relative)
    text +=
        ". The trace has no totals: counted from 0 at its start, without what was allocated before";
  return text + ".";
}

void show_holders(const DeviceMemory& m, const std::string& path, SectionSink& sink) {
  const std::vector<Column> columns = {Column(Kind::text, "allocated by", "op"),
                                       Column(Kind::count, "allocations", "allocations"),
                                       Column(Kind::bytes, "bytes", "bytes")};
  std::vector<Json> rows;
  if (m.before_window_bytes.value_or(0) > 0)
    rows.push_back({{"op", "(before the window)"},
                    {"allocations", nullptr},
                    {"bytes", *m.before_window_bytes}});
  for (const MemoryHolder& h : m.at_peak) rows.push_back(holder_json(h));
  sink.table(table_of(
      "", "", rows, [](const Json& row) { return row; }, columns));
  sink.page_table(table_of("Live at the peak, by the op that allocated it", path + ".at_peak",
                           m.at_peak, holder_json, columns, "bytes"));
  if (m.at_peak_by_python.empty()) return;
  sink.table(table_of(
      "Live at the peak, by the code that allocated it", path + ".at_peak_by_python",
      m.at_peak_by_python, python_holder_json,
      {Column(Kind::text, "in module", "module"), Column(Kind::text, "in function", "function"),
       Column(Kind::count, "allocations", "allocations"), Column(Kind::bytes, "bytes", "bytes")},
      "bytes"));
}

void show_categories(const DeviceMemory& m, const std::string& path, SectionSink& sink) {
  if (m.category_totals.empty()) return;
  std::vector<Json> rows;
  for (size_t c = 0; c < kMemoryCategories; ++c)
    if (m.category_peak[c] > 0) rows.push_back(category_json(m, c));
  sink.table(table_of("By category", path + ".categories", rows,
                      [](const Json& row) { return row; },
                      {Column(Kind::text, "category", "category"),
                       Column(Kind::bytes, "at the peak", "at_peak_bytes"),
                       Column(Kind::bytes, "its own peak", "peak_bytes")}));
}

void show_memory(const Explanation& e, SectionSink& sink) {
  for (size_t i = 0; i < e.memory.size(); ++i) {
    const DeviceMemory& m = e.memory[i];
    const std::string path = "memory." + std::to_string(i);
    sink.head(
        fmt::format("Memory at the peak of {}: {}",
                    m.type == DeviceType::cpu ? "the CPU" : fmt::format("device {}", m.device),
                    format_bytes(static_cast<double>(m.peak_bytes))));
    sink.note(facts_of(m), Where::page);
    sink.plot("memory", i);
    show_holders(m, path, sink);
    show_categories(m, path, sink);
  }
}

}  // namespace

extern const Section kMemory;
constinit const Section kMemory{"memory", "Memory", add_memory_json, show_memory};

}  // namespace epilogue::trace
