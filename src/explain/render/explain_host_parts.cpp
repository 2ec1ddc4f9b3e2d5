// SPDX-License-Identifier: Apache-2.0
// The parts of an explanation that a run without a device has.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/units.h"
#include "epilogue/trace/explain.h"
#include "explain/render/explain_parts.h"

namespace epilogue::trace {
namespace {

void add_host_products(ExplainParts& p) {
  if (p.e.host->products.empty()) return;
  p.head("Matrix products");
  Grid grid{{{"op", true, 20},
             {"M x N x K", true, 28},
             {"type", true},
             {"count"},
             {"median"},
             {"total"},
             {"GFLOP/s"},
             {"peak"},
             {"FLOP/byte"}},
            {},
            ""};
  bool has_calls = false;
  for (const HostProduct& product : p.e.host->products) {
    has_calls = has_calls || product.is_dispatch;
    const std::string batch =
        product.shape.batch > 1 ? fmt::format("{} x ", product.shape.batch) : "";
    grid.rows.push_back(
        {product.op,
         fmt::format("{}{} x {} x {}", batch, product.shape.m, product.shape.n, product.shape.k),
         product.type, format_count(product.time.count), format_duration_ns(product.time.median_ns),
         format_duration_ns(product.time.total_ns),
         product.is_dispatch ? "call" : fmt::format("{:.1f}", product.gflops),
         known(product.peak_pct, "{:.0f} %"), fmt::format("{:.1f}", product.flops_per_byte)});
  }
  constexpr ptrdiff_t kPeakColumn = 7;
  if (!p.e.host->peaks) ExplainParts::remove_columns(grid, {kPeakColumn});
  p.add(std::move(grid));
  p.document.push_back(Paragraph{peak_note(*p.e.host)});
  if (has_calls)
    p.document.push_back(Paragraph{
        "call: the product is so small that calling it takes longer than computing it; its time is "
        "counted as calling ops."});
}

void add_host_functions(ExplainParts& p) {
  if (p.e.host->functions.empty()) return;
  p.head("Python between ops");
  Grid grid{{{"function", true, 80}, {"calls"}, {"time"}}, {}, ""};
  for (const HostFunction& f : p.e.host->functions)
    grid.rows.push_back({f.name, format_count(f.count), format_duration_ns(f.self_ns)});
  p.add(std::move(grid));
}

}  // namespace

std::string peak_note(const HostTime& host) {
  if (!host.peaks)
    return "Rates are not compared with a peak: a trace of PyTorch does not name the CPU, and this "
           "machine need not be the one that recorded it. --cpu names it.";
  std::string text = "Peak: " + host.peaks->text() + ".";
  if (const std::string more = host.peaks->assumptions(); !more.empty()) text += " " + more;
  for (const char* type : {"bf16", "f16"})
    if (host.peaks->lacks(type) &&
        std::ranges::any_of(host.products, [&](const HostProduct& p) { return p.type == type; }))
      text += fmt::format(" It has no instructions for {}: the peak is that of f32.", type);
  if (!is_peak_too_low(host)) return text;
  int64_t above = 0;
  double most_pct = 0;
  for (const HostProduct& p : host.products) {
    above += p.peak_pct.value_or(0) > 100 ? 1 : 0;
    most_pct = std::max(most_pct, p.peak_pct.value_or(0));
  }
  text += fmt::format(
      " {} faster than that: the {} is too low (more cores, a higher clock, f32 computed in a "
      "narrower type), and shares of it say nothing.",
      above == 1 ? "One product is" : fmt::format("{} products are", above),
      host.peaks->is_estimate ? "estimate" : "peak");
  if (host.peaks->is_threads_assumed)
    text += fmt::format(" If the clock is right, the run had {:.0f} threads or more.",
                        std::ceil(most_pct / 100));
  return text;
}

void add_host(ExplainParts& p) {
  if (!p.e.host) return;
  p.head("Where the host's time goes");
  Grid ops{{{"op", true, 60}, {"time"}, {"share"}, {"calls"}, {"mean"}, {"GB/s"}}, {}, ""};
  const auto wall = static_cast<double>(std::max<int64_t>(1, p.e.host->wall_ns));
  for (const HostOp& op : p.e.host->ops) {
    const auto self_ns = static_cast<double>(op.self_ns);
    ops.rows.push_back({op.name, format_duration_ns(self_ns), percent(self_ns * 100 / wall),
                        format_count(op.count),
                        format_duration_ns(self_ns / static_cast<double>(op.count)),
                        known(op.gb_per_s, "{:.1f}")});
  }
  p.add(std::move(ops));
  p.document.push_back(Paragraph{
      "Of the main thread, without the data loader. Times are of the ops themselves, without "
      "the ops that they call."});
  add_host_products(p);
  add_host_functions(p);
}

void add_host_steps(ExplainParts& p) {
  p.head(p.e.steps.empty() ? "Regions" : "Steps");
  Grid grid{{{"name", true, 40}, {"wall"}, {"in ops"}, {"ops"}}, {}, ""};
  for (const RegionVerdict& r : p.e.verdicts.regions)
    grid.rows.push_back({r.region.name, format_duration_ns(r.region.wall_ns()),
                         format_duration_ns(r.region.cpu_op_ns), format_count(r.region.ops)});
  p.add(std::move(grid));
}

}  // namespace epilogue::trace
