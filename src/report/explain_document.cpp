// SPDX-License-Identifier: Apache-2.0
// An explanation as a document: findings first, then the tables that they rest on.
#include <fmt/format.h>

#include <algorithm>

#include "base/units.h"
#include "epilogue/trace/explain.h"
#include "epilogue/trace/report.h"
#include "report/documents.h"

namespace epilogue::trace {
namespace {

std::string percent(double value) { return fmt::format("{:.1f} %", value); }
// What a product takes besides its own kernel.
std::string split_k_text(const Gemm& g) {
  return g.reduction_ns > 0 ? " + " + format_duration_ns(g.reduction_ns_per_launch()) : "";
}
template <class T>
std::string known(const std::optional<T>& value, fmt::format_string<const T&> format) {
  return value ? fmt::format(format, *value) : "-";
}

class Builder {
 public:
  Builder(const Explanation& e, int top) : e_(e), top_(top) {}

  Document build() {
    add_head();
    add_health();
    add_findings();
    add_wall();
    add_steps();
    add_host();
    add_gemms();
    add_fused();
    add_fusions();
    add_chains();
    add_calls();
    add_collectives();
    add_compile();
    add_memory();
    add_modules();
    return std::move(document_);
  }

 private:
  void head(std::string text) { document_.push_back(Heading{std::move(text)}); }
  void add(Grid grid) {
    limit_rows(grid, top_);
    document_.push_back(std::move(grid));
  }

  // What says nothing of a run without a device. From the last on.
  static void remove_columns(Grid& grid, std::initializer_list<ptrdiff_t> columns) {
    for (const ptrdiff_t column : columns) {
      grid.columns.erase(grid.columns.begin() + column);
      for (std::vector<std::string>& row : grid.rows) row.erase(row.begin() + column);
    }
  }

  void add_head() {
    std::string title(bound_name(e_.host ? e_.host->bound : e_.verdicts.whole.bound));
    if (e_.host) title += " on the CPU";
    if (!e_.path.empty()) title = e_.path + ": " + title;
    head(std::move(title));
    std::string line =
        fmt::format("{}, {}, {} ({} distinct), span {}", counted(e_.events, "event", "events"),
                    counted(e_.ops, "op", "ops"), counted(e_.kernels, "kernel", "kernels"),
                    format_count(e_.distinct_kernels), format_duration_ns(e_.timeline.span_ns()));
    if (!e_.device.empty()) line += ", " + e_.device;
    if (e_.skipped_events > 0)
      line += "; " + counted(e_.skipped_events, "event", "events") + " could not be read";
    document_.push_back(Paragraph{std::move(line)});
  }

  void add_health() {
    Bullets list;
    for (const HealthItem& item : e_.health)
      list.items.push_back({fmt::format("{}: {}", severity_name(item.severity), item.detail), {}});
    if (list.items.empty()) return;
    head("What to know about this trace first");
    document_.push_back(std::move(list));
  }

  // The evidence, then what it costs and how sure that is, then what to do.
  std::vector<std::string> details_of(const Finding& f) const {
    std::vector<std::string> lines;
    for (const std::string& line : f.evidence)
      if (line != f.action) lines.push_back(line);
    if (f.cost_us && *f.cost_us > 0) {
      const double span_us = std::max(1e-3, to_us(e_.timeline.span_ns()));
      std::string line = fmt::format(
          "It takes {} of {} now ({:.0f} %).", format_duration_ns(*f.cost_us * kNsPerUs),
          format_duration_ns(span_us * kNsPerUs), *f.cost_us / span_us * 100);
      if (f.remains_us())
        line += *f.remains_us() < 0.01 * *f.cost_us
                    ? " At best nothing of that remains."
                    : fmt::format(" At best {} of that remain.",
                                  format_duration_ns(*f.remains_us() * kNsPerUs));
      if (f.confidence) line += fmt::format(" Confidence: {}.", confidence_name(*f.confidence));
      lines.push_back(std::move(line));
    }
    if (!f.action.empty()) lines.push_back("To do: " + f.action + ".");
    return lines;
  }

  void add_findings() {
    head("Findings");
    Bullets list;
    for (const Finding& f : e_.findings) {
      std::string text = f.title;
      if (f.saving_us && *f.saving_us > 0)
        text += fmt::format(" [up to {}]", format_duration_ns(*f.saving_us * 1000));
      else if (f.cost_us)
        text += fmt::format(" [costs {}]", format_duration_ns(*f.cost_us * 1000));
      list.items.push_back({std::move(text), details_of(f)});
    }
    document_.push_back(std::move(list));
    document_.push_back(
        Paragraph{"Savings are estimates over the whole trace; several may save the same time."});
  }

  void add_wall() {
    if (e_.verdicts.whole.part_pct.empty()) return;
    head("How the wall time divides");
    Grid grid{{{"part", true}, {"share"}}, {}, ""};
    for (int i = 0; i < kTimeParts; ++i) {
      const auto part = static_cast<TimePart>(i);
      if (const double pct = e_.verdicts.whole.pct(part); pct > 0)
        grid.rows.push_back({std::string(time_part_name(part)), percent(pct)});
    }
    document_.push_back(std::move(grid));
    document_.push_back(Paragraph{fmt::format(
        "If the device works {:.0f} % of the time or more, it limits the run: compute-bound if "
        "{:.0f} % of that or more is compute, else memory-bound. If not, the largest cause of idle "
        "time limits the run. The profiler's part of the time is left out, and collectives that no "
        "other kernel hides do not count as work.",
        kDeviceBoundPct, kComputeBoundPct)});
  }

  // Of a run without a device.
  void add_host() {
    if (!e_.host) return;
    head("Where the host's time goes");
    Grid ops{{{"op", true, 60}, {"time"}, {"share"}, {"calls"}, {"mean"}, {"GB/s"}}, {}, ""};
    const auto wall = static_cast<double>(std::max<int64_t>(1, e_.host->wall_ns));
    for (const HostOp& op : e_.host->ops)
      ops.rows.push_back({op.name, format_duration_ns(op.self_ns),
                          percent(static_cast<double>(op.self_ns) * 100 / wall),
                          format_count(op.count), format_duration_ns(op.self_ns / op.count),
                          known(op.gb_per_s, "{:.1f}")});
    add(std::move(ops));
    document_.push_back(Paragraph{
        "Of the main thread, without the data loader. Times are of the ops themselves, without "
        "the ops that they call."});
    add_host_products();
    add_host_functions();
  }

  void add_host_products() {
    if (e_.host->products.empty()) return;
    head("Matrix products");
    Grid grid{{{"op", true, 20},
               {"M x N x K", true, 28},
               {"type", true},
               {"count"},
               {"median"},
               {"total"},
               {"GFLOP/s"},
               {"FLOP/byte"}},
              {},
              ""};
    for (const HostProduct& p : e_.host->products) {
      const std::string batch = p.shape.batch > 1 ? fmt::format("{} x ", p.shape.batch) : "";
      grid.rows.push_back({p.op,
                           fmt::format("{}{} x {} x {}", batch, p.shape.m, p.shape.n, p.shape.k),
                           p.type, format_count(p.time.count), format_duration_ns(p.time.median_ns),
                           format_duration_ns(p.time.total_ns), fmt::format("{:.1f}", p.gflops),
                           fmt::format("{:.1f}", p.flops_per_byte)});
    }
    add(std::move(grid));
  }

  void add_host_functions() {
    if (e_.host->functions.empty()) return;
    head("Python between ops");
    Grid grid{{{"function", true, 80}, {"calls"}, {"time"}}, {}, ""};
    for (const HostFunction& f : e_.host->functions)
      grid.rows.push_back({f.name, format_count(f.count), format_duration_ns(f.self_ns)});
    add(std::move(grid));
  }

  void add_host_steps() {
    head(e_.steps.empty() ? "Regions" : "Steps");
    Grid grid{{{"name", true, 40}, {"wall"}, {"in ops"}, {"ops"}}, {}, ""};
    for (const RegionVerdict& r : e_.verdicts.regions)
      grid.rows.push_back({r.region.name, format_duration_ns(r.region.wall_ns()),
                           format_duration_ns(r.region.cpu_op_ns), format_count(r.region.ops)});
    add(std::move(grid));
  }

  void add_steps() {
    if (e_.verdicts.regions.empty()) return;
    if (e_.host) return add_host_steps();
    head(e_.steps.empty() ? "Regions" : "Steps");
    Grid grid{{{"name", true, 40},
               {"wall"},
               {"device busy"},
               {"idle"},
               {"host in ops"},
               {"launches"},
               {"kernels"},
               {"judged"},
               {"verdict", true}},
              {},
              ""};
    for (const RegionVerdict& r : e_.verdicts.regions)
      grid.rows.push_back({r.region.name, format_duration_ns(r.region.wall_ns()),
                           format_duration_ns(r.region.window_busy_ns),
                           format_duration_ns(r.region.device_end_ns - r.region.device_start_ns -
                                              r.region.window_busy_ns),
                           format_duration_ns(r.region.cpu_op_ns), format_count(r.region.launches),
                           format_count(r.region.kernels), known(r.verdict.judged_pct, "{:.1f} %"),
                           std::string(bound_name(r.verdict.bound))});
    add(std::move(grid));
    if (std::any_of(
            e_.verdicts.regions.begin(), e_.verdicts.regions.end(),
            [](const RegionVerdict& r) { return r.region.device_end_ns > r.region.end_ns; }))
      document_.push_back(Paragraph{
          "Where the host left a region before the device began it, busy, idle and verdict are of "
          "the time in which the device ran what the region launched."});
  }

  void add_gemms() {
    if (e_.gemms.gemms.empty()) return;
    head("Matrix products");
    Grid grid{{{"op", true, 16},
               {"M x N x K", true, 28},
               {"count"},
               {"median"},
               {"TFLOP/s"},
               {"peak"},
               {"attainable"},
               {"waves"},
               {"kernel", true, 56}},
              {},
              ""};
    for (const Gemm& g : e_.gemms.gemms) {
      std::string shape = "-";
      if (g.shape)
        shape = fmt::format("{}{} x {} x {}",
                            g.shape->batch > 1 ? fmt::format("{} x ", g.shape->batch) : "",
                            g.shape->m, g.shape->n, g.shape->k);
      grid.rows.push_back({g.op.empty() ? "-" : g.op, shape, format_count(g.time.count),
                           format_duration_ns(g.time.median_ns) + split_k_text(g),
                           known(g.tflops, "{:.2f}"), known(g.peak_pct, "{:.0f} %"),
                           known(g.attainable_pct, "{:.0f} %"),
                           known(g.tiling ? g.tiling->waves : std::nullopt, "{:.2f}"), g.kernel});
    }
    const bool has_sums = std::any_of(e_.gemms.gemms.begin(), e_.gemms.gemms.end(),
                                      [](const Gemm& g) { return g.reduction_ns > 0; });
    add(std::move(grid));
    if (has_sums)
      document_.push_back(
          Paragraph{"TFLOP/s is over the median; where K is split, with the kernel that adds up "
                    "the parts (+)."});
    Bullets list;
    for (const GemmComparison& c : e_.gemms.comparisons) {
      if (top_ >= 0 && list.items.size() >= static_cast<size_t>(top_)) break;
      list.items.push_back({c.sentence, {}});
    }
    if (!list.items.empty()) document_.push_back(std::move(list));
  }

  void add_fused() {
    if (e_.fused.empty()) return;
    head("Fused kernels");
    Grid grid{
        {{"kernel", true, 56}, {"runs", true, 60}, {"count"}, {"time"}, {"bytes"}, {"unfused"}},
        {},
        ""};
    const auto bytes = [](int64_t n) {
      return n < 0 ? std::string("-") : format_bytes(static_cast<double>(n));
    };
    for (const FusedKernel& f : e_.fused)
      grid.rows.push_back({f.kernel, fmt::format("{}", fmt::join(f.ops, " + ")),
                           format_count(f.count), format_duration_ns(f.total_ns), bytes(f.bytes),
                           bytes(f.unfused_bytes)});
    add(std::move(grid));
  }

  void add_fusions() {
    if (e_.fusions.fusions.empty()) return;
    head("What could be fused");
    Grid grid{{{"kind", true},
               {"ops", true, 60},
               {"count"},
               {"time"},
               {"kernels"},
               {"saves"},
               {"confidence", true}},
              {},
              ""};
    for (const Fusion& f : e_.fusions.fusions)
      grid.rows.push_back({std::string(fusion_kind_name(f.kind)),
                           fmt::format("{}", fmt::join(f.ops, " + ")), format_count(f.count),
                           format_duration_ns(f.time_us * 1000),
                           fmt::format("{} -> {}", f.kernels_now, f.kernels_after),
                           format_duration_ns(f.predicted_saving_us * 1000),
                           std::string(confidence_name(f.confidence))});
    if (e_.host) remove_columns(grid, {4});
    add(std::move(grid));
  }

  void add_chains() {
    if (e_.chains.chains.empty()) return;
    head("Dispatch chains");
    Grid grid{{{"ops", true, 90}, {"count"}, {"host"}, {"device"}, {"kernels"}, {"launch nothing"}},
              {},
              ""};
    for (const DispatchChain& c : e_.chains.chains)
      grid.rows.push_back({c.text, format_count(c.count), format_duration_ns(c.cpu_ns),
                           format_duration_ns(c.device_ns), format_count(c.kernels),
                           fmt::format("{} of {}", c.no_launch_ops, c.ops)});
    if (e_.host) remove_columns(grid, {5, 4, 3});
    add(std::move(grid));
  }

  void add_calls() {
    if (!e_.launches.calls.empty()) {
      head("Runtime calls");
      Grid grid{{{"call", true}, {"count"}, {"median"}, {"p95"}, {"total"}}, {}, ""};
      for (const CallStats& c : e_.launches.calls)
        grid.rows.push_back(
            {c.name, format_count(c.time.count), format_duration_ns(c.time.median_ns),
             format_duration_ns(c.time.p95_ns), format_duration_ns(c.time.total_ns)});
      add(std::move(grid));
    }
    if (e_.launches.queue_delay)
      document_.push_back(Paragraph{fmt::format(
          "From the end of a launch call to its kernel's start: median {}, 95 % within {}.",
          format_duration_ns(e_.launches.queue_delay->median_ns),
          format_duration_ns(e_.launches.queue_delay->p95_ns))});
    if (!e_.hot_spots.copies.empty()) {
      head("Copies");
      Grid grid{
          {{"name", true}, {"in", true, 40}, {"count"}, {"bytes"}, {"total"}, {"GB/s"}}, {}, ""};
      for (const CopySpot& c : e_.hot_spots.copies)
        grid.rows.push_back({c.name, c.where.empty() ? "-" : c.where, format_count(c.time.count),
                             c.bytes ? format_bytes(static_cast<double>(*c.bytes)) : "-",
                             format_duration_ns(c.time.total_ns),
                             known(c.bandwidth_gb_s, "{:.1f}")});
      add(std::move(grid));
    }
  }

  void add_collectives() {
    if (e_.collectives.kinds.empty()) return;
    head("Collectives");
    Grid grid{{{"name", true}, {"count"}, {"bytes"}, {"time"}, {"hidden"}, {"exposed"}}, {}, ""};
    for (const CollectiveStats& c : e_.collectives.kinds)
      grid.rows.push_back({c.name, format_count(c.time.count),
                           c.bytes ? format_bytes(static_cast<double>(*c.bytes)) : "-",
                           format_duration_ns(c.time.total_ns), format_duration_ns(c.overlap_ns),
                           format_duration_ns(c.exposed_ns)});
    add(std::move(grid));
  }

  void add_compile() {
    if (!e_.compile.is_compiled()) return;
    head("Compiled regions");
    Grid grid{{{"name", true, 70}, {"count"}, {"host"}, {"kernels"}, {"device"}}, {}, ""};
    for (const auto* list : {&e_.compile.regions, &e_.compile.graphs})
      for (const CompiledRange& r : *list)
        grid.rows.push_back({r.name, format_count(r.count), format_duration_ns(r.cpu_ns),
                             format_count(r.kernels), format_duration_ns(r.device_ns)});
    for (const TritonKernel& k : e_.compile.triton)
      grid.rows.push_back({k.name, format_count(k.count), "-", format_count(k.count),
                           format_duration_ns(k.device_ns)});
    add(std::move(grid));
  }

  void add_memory() {
    for (const DeviceMemory& m : e_.memory) {
      head(fmt::format("Memory at the peak of {}: {}",
                       m.type == DeviceType::cpu ? "the CPU" : fmt::format("device {}", m.device),
                       format_bytes(static_cast<double>(m.peak_bytes))));
      Grid grid{{{"allocated by", true}, {"allocations"}, {"bytes"}}, {}, ""};
      if (m.before_window_bytes.value_or(0) > 0)
        grid.rows.push_back({"(before the window)", "-",
                             format_bytes(static_cast<double>(*m.before_window_bytes))});
      for (const MemoryHolder& h : m.at_peak)
        grid.rows.push_back({h.op.empty() ? "-" : h.op, format_count(h.allocations),
                             format_bytes(static_cast<double>(h.bytes))});
      add(std::move(grid));
      add_memory_categories(m);
    }
  }

  void add_memory_categories(const DeviceMemory& m) {
    if (m.category_totals.empty()) return;
    Grid grid{{{"category", true}, {"at the peak"}, {"its own peak"}}, {}, ""};
    for (size_t c = 0; c < kMemoryCategories; ++c)
      if (m.category_peak[c] > 0)
        grid.rows.push_back({std::string(memory_category_name(static_cast<MemoryCategory>(c))),
                             format_bytes(static_cast<double>(m.category_at_peak[c])),
                             format_bytes(static_cast<double>(m.category_peak[c]))});
    add(std::move(grid));
  }

  void add_modules() {
    if (e_.modules.empty()) return;
    head("Modules");
    Grid grid{{{"module", true, 70}, {"count"}, {"host"}, {"device"}, {"kernels"}}, {}, ""};
    for (const ModuleTime& m : e_.modules)
      grid.rows.push_back({std::string(static_cast<size_t>(m.depth) * 2, ' ') + m.name,
                           format_count(m.count), format_duration_ns(m.cpu_ns),
                           format_duration_ns(m.device_ns), format_count(m.kernels)});
    add(std::move(grid));
  }

  const Explanation& e_;
  int top_;
  Document document_;
};

}  // namespace

Document explain_document(const Explanation& explanation, int top) {
  Document document = Builder(explanation, top).build();
  document.json = [&explanation] { return explain_json(explanation); };
  return document;
}

std::string explain_text(const Explanation& explanation, const ReportOptions& options) {
  return document_text(explain_document(explanation, options.top), options.use_bold);
}
std::string explain_markdown(const Explanation& explanation, const ReportOptions& options) {
  return document_markdown(explain_document(explanation, options.top));
}

}  // namespace epilogue::trace
