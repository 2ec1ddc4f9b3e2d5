// SPDX-License-Identifier: Apache-2.0
// Calls, copies, collectives, compiled regions, memory and modules.
#include <fmt/format.h>

#include <algorithm>

#include "base/units.h"
#include "epilogue/trace/explain.h"
#include "explain/render/documents.h"
#include "explain/render/explain_parts.h"

namespace epilogue::trace {
namespace {

void add_memory_categories(ExplainParts& p, const DeviceMemory& m) {
  if (m.category_totals.empty()) return;
  Grid grid{{{"category", true}, {"at the peak"}, {"its own peak"}}, {}, ""};
  for (size_t c = 0; c < kMemoryCategories; ++c)
    if (m.category_peak[c] > 0)
      grid.rows.push_back({std::string(memory_category_name(static_cast<MemoryCategory>(c))),
                           format_bytes(static_cast<double>(m.category_at_peak[c])),
                           format_bytes(static_cast<double>(m.category_peak[c]))});
  p.add(std::move(grid));
}

// Where the source of Inductor's kernels lies, if the trace says so.
void add_triton_sources(ExplainParts& p) {
  Grid grid{{{"Triton kernel", true}, {"config", true, 40}, {"source", true, 90}}, {}, ""};
  for (const TritonKernel& k : p.e.compile.triton) {
    if (k.file.empty()) continue;
    std::string config = k.config.empty() ? "-" : k.config;
    if (k.warps) config += fmt::format(", {}", counted(*k.warps, "warp", "warps"));
    grid.rows.push_back({k.name, std::move(config), k.file});
  }
  if (!grid.rows.empty()) p.add(std::move(grid));
}

void add_python_holders_of(ExplainParts& p, const DeviceMemory& m) {
  if (m.at_peak_by_python.empty()) return;
  Grid grid{{{"in module", true}, {"in function", true, 60}, {"allocations"}, {"bytes"}}, {}, ""};
  for (const PythonMemoryHolder& h : m.at_peak_by_python)
    grid.rows.push_back({h.module.empty() ? "-" : h.module, h.function.empty() ? "-" : h.function,
                         format_count(h.allocations), format_bytes(static_cast<double>(h.bytes))});
  p.add(std::move(grid));
}

// A kernel may start before its launch call returns.
std::string queue_delay_text(const Distribution& delay) {
  const auto when = [](int64_t ns) {
    return ns < 0 ? format_duration_ns(-static_cast<double>(ns)) + " before"
                  : format_duration_ns(static_cast<double>(ns)) + " after";
  };
  return fmt::format("A kernel starts {} its launch call ends (median); 95 % start {} or earlier.",
                     when(delay.median_ns), when(delay.p95_ns));
}

}  // namespace

void add_calls(ExplainParts& p) {
  if (!p.e.launches.calls.empty()) {
    p.head("Runtime calls");
    Grid grid{{{"call", true}, {"count"}, {"median"}, {"p95"}, {"total"}}, {}, ""};
    for (const CallStats& c : p.e.launches.calls)
      grid.rows.push_back({c.name, format_count(c.time.count), format_duration_ns(c.time.median_ns),
                           format_duration_ns(c.time.p95_ns), format_duration_ns(c.time.total_ns)});
    p.add(std::move(grid));
  }
  if (p.e.launches.queue_delay)
    p.document.push_back(Paragraph{queue_delay_text(*p.e.launches.queue_delay)});
  for (const StreamQueue& q : p.e.queues)
    if (q.max_length > 0 && &q == &p.e.queues.front())
      p.document.push_back(Paragraph{fmt::format(
          "On stream {} of device {}, up to {} launched and had not started, on average {:.1f}.",
          q.stream, q.device, counted(q.max_length, "piece of work was", "pieces of work were"),
          q.mean_length)});
  if (!p.e.hot_spots.copies.empty()) {
    p.head("Copies");
    Grid grid{
        {{"name", true}, {"in", true, 40}, {"count"}, {"bytes"}, {"total"}, {"GB/s"}}, {}, ""};
    for (const CopySpot& c : p.e.hot_spots.copies)
      grid.rows.push_back({c.name, c.where.empty() ? "-" : c.where, format_count(c.time.count),
                           c.bytes ? format_bytes(static_cast<double>(*c.bytes)) : "-",
                           format_duration_ns(c.time.total_ns), known(c.bandwidth_gb_s, "{:.1f}")});
    p.add(std::move(grid));
  }
}

void add_collectives(ExplainParts& p) {
  if (p.e.collectives.kinds.empty()) return;
  p.head("Collectives");
  Grid grid{{{"name", true},
             {"count"},
             {"bytes"},
             {"time"},
             {"hidden"},
             {"exposed"},
             {"algbw"},
             {"busbw"}},
            {},
            ""};
  for (const CollectiveStats& c : p.e.collectives.kinds)
    grid.rows.push_back({c.name, format_count(c.time.count),
                         c.bytes ? format_bytes(static_cast<double>(*c.bytes)) : "-",
                         format_duration_ns(c.time.total_ns), format_duration_ns(c.overlap_ns),
                         format_duration_ns(c.exposed_ns), algbw_text(c.rates),
                         busbw_text(c.rates)});
  p.add(std::move(grid));
  const auto& kinds = p.e.collectives.kinds;
  p.document.push_back(Paragraph{
      bandwidth_note(std::any_of(kinds.begin(), kinds.end(),
                                 [](const CollectiveStats& c) { return c.rates.has_value(); }),
                     "by the kernels' time, in which this rank may wait for others")});
}

void add_compile(ExplainParts& p) {
  if (!p.e.compile.is_compiled()) return;
  p.head("Compiled regions");
  Grid grid{{{"name", true, 70}, {"count"}, {"host"}, {"kernels"}, {"device"}}, {}, ""};
  for (const auto* list : {&p.e.compile.regions, &p.e.compile.graphs})
    for (const CompiledRange& r : *list)
      grid.rows.push_back({r.name, format_count(r.count), format_duration_ns(r.cpu_ns),
                           format_count(r.kernels), format_duration_ns(r.device_ns)});
  for (const TritonKernel& k : p.e.compile.triton)
    grid.rows.push_back({k.name, format_count(k.count), "-", format_count(k.count),
                         format_duration_ns(k.device_ns)});
  p.add(std::move(grid));
  add_triton_sources(p);
}

void add_device_ranges(ExplainParts& p) {
  if (p.e.device_ranges.empty()) return;
  p.head("Annotations on the device");
  Grid grid{{{"name", true}, {"count"}, {"total"}, {"longest"}, {"busy"}, {"idle"}}, {}, ""};
  for (const DeviceRange& r : p.e.device_ranges)
    grid.rows.push_back({r.name, format_count(r.count), format_duration_ns(r.total_ns),
                         format_duration_ns(r.max_ns), format_duration_ns(r.busy_ns),
                         format_duration_ns(r.idle_ns)});
  p.add(std::move(grid));
}

void add_memory(ExplainParts& p) {
  for (const DeviceMemory& m : p.e.memory) {
    p.head(fmt::format("Memory at the peak of {}: {}",
                       m.type == DeviceType::cpu ? "the CPU" : fmt::format("device {}", m.device),
                       format_bytes(static_cast<double>(m.peak_bytes))));
    Grid grid{{{"allocated by", true}, {"allocations"}, {"bytes"}}, {}, ""};
    if (m.before_window_bytes.value_or(0) > 0)
      grid.rows.push_back(
          {"(before the window)", "-", format_bytes(static_cast<double>(*m.before_window_bytes))});
    for (const MemoryHolder& h : m.at_peak)
      grid.rows.push_back({h.op.empty() ? "-" : h.op, format_count(h.allocations),
                           format_bytes(static_cast<double>(h.bytes))});
    p.add(std::move(grid));
    add_python_holders_of(p, m);
    add_memory_categories(p, m);
  }
}

void add_modules(ExplainParts& p) {
  if (p.e.modules.empty()) return;
  p.head("Modules");
  Grid grid{{{"module", true, 70}, {"count"}, {"host"}, {"device"}, {"kernels"}}, {}, ""};
  for (const ModuleTime& m : p.e.modules)
    grid.rows.push_back({std::string(static_cast<size_t>(m.depth) * 2, ' ') + m.name,
                         format_count(m.count), format_duration_ns(m.cpu_ns),
                         format_duration_ns(m.device_ns), format_count(m.kernels)});
  p.add(std::move(grid));
}

}  // namespace epilogue::trace
