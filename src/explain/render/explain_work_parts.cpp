// SPDX-License-Identifier: Apache-2.0
// Products, fused kernels, fusions and chains of ops.
#include <fmt/format.h>

#include <algorithm>

#include "base/units.h"
#include "epilogue/trace/explain.h"
#include "explain/render/explain_parts.h"

namespace epilogue::trace {
namespace {

// What a product takes besides its own kernel.
std::string split_k_text(const Gemm& g) {
  return g.reduction_ns > 0 ? " + " + format_duration_ns(g.reduction_ns_per_launch()) : "";
}

}  // namespace

void add_gemms(ExplainParts& p) {
  if (p.e.gemms.gemms.empty()) return;
  p.head("Matrix products");
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
  for (const Gemm& g : p.e.gemms.gemms) {
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
  const bool has_sums = std::any_of(p.e.gemms.gemms.begin(), p.e.gemms.gemms.end(),
                                    [](const Gemm& g) { return g.reduction_ns > 0; });
  p.add(std::move(grid));
  if (has_sums)
    p.document.push_back(
        Paragraph{"TFLOP/s is over the median; where K is split, with the kernel that adds up "
                  "the parts (+)."});
  Bullets list;
  for (const GemmComparison& c : p.e.gemms.comparisons) {
    if (p.top >= 0 && list.items.size() >= static_cast<size_t>(p.top)) break;
    list.items.push_back({c.sentence, {}});
  }
  if (!list.items.empty()) p.document.push_back(std::move(list));
}

void add_rooflines(ExplainParts& p) {
  if (p.e.rooflines.empty()) return;
  p.head("Other ops against the roofline");
  Grid grid{{{"kind", true},
             {"op", true, 44},
             {"inputs", true, 44},
             {"count"},
             {"median"},
             {"TFLOP/s"},
             {"GB/s"},
             {"attainable"}},
            {},
            ""};
  for (const OpRoofline& r : p.e.rooflines)
    grid.rows.push_back({std::string(roofline_kind_name(r.kind)), r.op, r.shapes,
                         format_count(r.time.count), format_duration_ns(r.time.median_ns),
                         known(r.tflops, "{:.2f}"), known(r.gb_per_s, "{:.0f}"),
                         known(r.attainable_pct, "{:.0f} %")});
  p.add(std::move(grid));
}

void add_fused(ExplainParts& p) {
  if (p.e.fused.empty()) return;
  p.head("Fused kernels");
  Grid grid{{{"kernel", true, 56}, {"runs", true, 60}, {"count"}, {"time"}, {"bytes"}, {"unfused"}},
            {},
            ""};
  const auto bytes = [](int64_t n) {
    return n < 0 ? std::string("-") : format_bytes(static_cast<double>(n));
  };
  for (const FusedKernel& f : p.e.fused)
    grid.rows.push_back({f.kernel, fmt::format("{}", fmt::join(f.ops, " + ")),
                         format_count(f.count), format_duration_ns(f.total_ns), bytes(f.bytes),
                         bytes(f.unfused_bytes)});
  p.add(std::move(grid));
}

void add_fusions(ExplainParts& p) {
  if (p.e.fusions.fusions.empty()) return;
  p.head("What could be fused");
  Grid grid{{{"kind", true},
             {"ops", true, 60},
             {"count"},
             {"time"},
             {"kernels"},
             {"saves"},
             {"confidence", true}},
            {},
            ""};
  for (const Fusion& f : p.e.fusions.fusions)
    grid.rows.push_back(
        {std::string(fusion_kind_name(f.kind)), fmt::format("{}", fmt::join(f.ops, " + ")),
         format_count(f.count), format_duration_ns(f.time_us * 1000),
         f.kernels_now > f.kernels_after ? fmt::format("{} -> {}", f.kernels_now, f.kernels_after)
                                         : "-",
         format_duration_ns(f.predicted_saving_us * 1000),
         std::string(confidence_name(f.confidence))});
  if (p.e.host) ExplainParts::remove_columns(grid, {4});
  p.add(std::move(grid));
}

void add_chains(ExplainParts& p) {
  if (p.e.chains.chains.empty()) return;
  p.head("Dispatch chains");
  Grid grid{{{"ops", true, 90}, {"count"}, {"host"}, {"device"}, {"kernels"}, {"launch nothing"}},
            {},
            ""};
  for (const DispatchChain& c : p.e.chains.chains)
    grid.rows.push_back({c.text, format_count(c.count), format_duration_ns(c.cpu_ns),
                         format_duration_ns(c.device_ns), format_count(c.kernels),
                         fmt::format("{} of {}", c.no_launch_ops, c.ops)});
  if (p.e.host) ExplainParts::remove_columns(grid, {5, 4, 3});
  p.add(std::move(grid));
}

}  // namespace epilogue::trace
