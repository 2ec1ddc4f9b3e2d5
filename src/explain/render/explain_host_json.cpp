// SPDX-License-Identifier: Apache-2.0
// Of a run without a device: its time, its ops and its products.
#include <algorithm>
#include <string>

#include "explain/render/explain_json_parts.h"
#include "explain/render/explain_parts.h"
#include "explain/render/json_numbers.h"

namespace epilogue::trace {
namespace {

using Json = nlohmann::ordered_json;

// What products are compared with; null where nobody named the CPU.
Json cpu_peaks_json(const HostTime& host) {
  if (!host.peaks) return nullptr;
  const CpuPeaks& p = *host.peaks;
  return {{"cpu", p.cpu},
          {"family", p.family},
          {"is_estimate", p.is_estimate},
          {"is_too_low", is_peak_too_low(host)},
          {"threads", p.threads},
          {"is_threads_assumed", p.is_threads_assumed},
          {"ghz", p.ghz > 0 ? Json(p.ghz) : Json()},
          {"is_ghz_assumed", p.is_ghz_assumed},
          {"f64_gflops", or_null(p.f64)},
          {"f32_gflops", or_null(p.f32)},
          {"bf16_gflops", or_null(p.bf16)},
          {"f16_gflops", or_null(p.f16)},
          {"i8_gops", or_null(p.i8)},
          {"text", p.text()}};
}

Json host_collectives_json(const std::optional<HostCollectives>& c) {
  if (!c) return nullptr;
  return {{"name", c->name},
          {"count", c->count},
          {"time", distribution_json(c->time)},
          {"alone_us", to_us(c->alone_ns)}};
}

Json product_json(std::string_view op, const GemmShape& s, std::string_view dtype, int64_t count) {
  return {{"op", op},         {"m", s.m},       {"n", s.n},      {"k", s.k},
          {"batch", s.batch}, {"dtype", dtype}, {"count", count}};
}

}  // namespace

Json host_json(const std::optional<HostTime>& host, JsonLists& lists) {
  if (!host) return nullptr;
  Json parts = Json::object();
  for (int i = 0; i < kHostParts; ++i) {
    const auto part = static_cast<HostPart>(i);
    parts[std::string(host_part_name(part))] = host->pct(part);
  }
  return {{"verdict", bound_name(host->bound)},
          {"bound_pct", std::move(parts)},
          {"wall_us", to_us(host->wall_ns)},
          {"op_calls", host->op_calls},
          {"ops", lists.of("host.ops", host->ops,
                           [](const HostOp& op) {
                             return Json{{"name", op.name},
                                         {"part", host_part_name(op.part)},
                                         {"count", op.count},
                                         {"self_us", to_us(op.self_ns)},
                                         {"gb_per_s", or_null(op.gb_per_s)}};
                           })},
          {"products", lists.of("host.products", host->products,
                                [](const HostProduct& p) {
                                  return Json{{"op", p.op},
                                              {"shape",
                                               {{"m", p.shape.m},
                                                {"n", p.shape.n},
                                                {"k", p.shape.k},
                                                {"batch", p.shape.batch}}},
                                              {"type", p.type},
                                              {"time", distribution_json(p.time)},
                                              {"gflops", p.gflops},
                                              {"peak_gflops", or_null(p.peak_gflops)},
                                              {"peak_pct", or_null(p.peak_pct)},
                                              {"flops_per_byte", p.flops_per_byte},
                                              {"waits_for_memory", p.waits_for_memory},
                                              {"is_dispatch", p.is_dispatch}};
                                })},
          {"collectives", host_collectives_json(host->collectives)},
          {"peaks", cpu_peaks_json(*host)},
          {"peak_note", host->products.empty() ? "" : peak_note(*host)},
          {"python_functions",
           lists.of("host.python_functions", host->functions, [](const HostFunction& f) {
             return Json{{"name", f.name}, {"count", f.count}, {"self_us", to_us(f.self_ns)}};
           })}};
}

Json top_ops_json(const std::optional<HostTime>& host, JsonLists& lists) {
  if (!host) return Json::array();
  const auto wall = static_cast<double>(std::max<int64_t>(1, host->wall_ns));
  return lists.of("top_ops", host->ops, [&](const HostOp& op) {
    return Json{{"name", op.name},
                {"count", op.count},
                {"self_us", to_us(op.self_ns)},
                {"share_pct", 100.0 * static_cast<double>(op.self_ns) / wall}};
  });
}

Json products_json(const Explanation& e, JsonLists& lists) {
  if (e.host)
    return lists.of("products", e.host->products, [](const HostProduct& p) {
      Json json = product_json(p.op, p.shape, p.type, p.time.count);
      json["gflops"] = p.is_dispatch ? Json() : Json(p.gflops);
      json["peak_pct"] = or_null(p.peak_pct);
      return json;
    });
  constexpr double kGigaPerTera = 1000;
  std::vector<const Gemm*> known;
  for (const Gemm& g : e.gemms.gemms)
    if (g.shape) known.push_back(&g);
  return lists.of("products", known, [](const Gemm* g) {
    Json json = product_json(g->op, *g->shape, g->a_type, g->time.count);
    json["gflops"] = g->tflops ? Json(*g->tflops * kGigaPerTera) : Json();
    json["peak_pct"] = or_null(g->peak_pct);
    return json;
  });
}

}  // namespace epilogue::trace
