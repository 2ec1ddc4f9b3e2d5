// SPDX-License-Identifier: Apache-2.0
// A run without a device: its time, its ops and its products; and the products of any run in one
// form.
#include <fmt/format.h>

#include <cmath>

#include "base/units.h"
#include "explain/sections/section.h"

namespace epilogue::trace {
namespace {

// The peaks that products are compared with; null where nobody named the CPU.
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

Json host_op_json(const HostOp& op) {
  return {{"name", op.name},
          {"part", host_part_name(op.part)},
          {"count", op.count},
          {"self_us", to_us(op.self_ns)},
          {"gb_per_s", or_null(op.gb_per_s)}};
}

Json host_product_json(const HostProduct& p) {
  return {
      {"op", p.op},
      {"shape", {{"m", p.shape.m}, {"n", p.shape.n}, {"k", p.shape.k}, {"batch", p.shape.batch}}},
      {"type", p.type},
      {"time", distribution_json(p.time)},
      {"gflops", p.gflops},
      {"peak_gflops", or_null(p.peak_gflops)},
      {"peak_pct", or_null(p.peak_pct)},
      {"flops_per_byte", p.flops_per_byte},
      {"waits_for_memory", p.waits_for_memory},
      {"is_dispatch", p.is_dispatch}};
}

Json host_function_json(const HostFunction& f) {
  return {{"name", f.name}, {"count", f.count}, {"self_us", to_us(f.self_ns)}};
}

Json host_range_json(const HostRange& r) {
  return {{"name", r.name}, {"count", r.count}, {"self_us", to_us(r.self_ns)}};
}

Json host_json(const std::optional<HostTime>& host, JsonLists& lists) {
  if (!host) return nullptr;
  Json parts = Json::object();
  for (int i = 0; i < kHostParts; ++i) {
    const auto part = static_cast<HostPart>(i);
    parts[std::string(host_part_name(part))] = host->pct(part);
  }
  return {
      {"verdict", bound_name(host->bound)},
      {"bound_pct", std::move(parts)},
      {"wall_us", to_us(host->wall_ns)},
      {"op_calls", host->op_calls},
      {"ops", lists.of("host.ops", host->ops, host_op_json)},
      {"products", lists.of("host.products", host->products, host_product_json)},
      {"collectives", host_collectives_json(host->collectives)},
      {"peaks", cpu_peaks_json(*host)},
      {"peak_note", host->products.empty() ? "" : peak_note(*host)},
      {"python_functions", lists.of("host.python_functions", host->functions, host_function_json)},
      {"ranges", lists.of("host.ranges", host->ranges, host_range_json)}};
}

// Its ops by their own time; of other runs empty.
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

Json product_json(std::string_view op, const GemmShape& s, std::string_view dtype, int64_t count) {
  return {{"op", op},         {"m", s.m},       {"n", s.n},      {"k", s.k},
          {"batch", s.batch}, {"dtype", dtype}, {"count", count}};
}

// The products of the host or the device in one form, as far as their sizes are known.
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

void add_host_json(const Explanation& e, Json& json, JsonLists& lists) {
  json["host_verdict"] = e.host ? Json(bound_name(e.host->bound)) : Json();
  json["host"] = host_json(e.host, lists);
  json["top_ops"] = top_ops_json(e.host, lists);
  json["products"] = products_json(e, lists);
}

void show_host(const Explanation& e, SectionSink& sink) {
  if (!e.host) return;
  const double wall_us = to_us(std::max<int64_t>(1, e.host->wall_ns));
  sink.head("Where the host's time goes");
  sink.table(table_of(
      "By op", "host.ops", e.host->ops, host_op_json,
      {Column(Kind::text, "op", "name"), Column(Kind::text, "part", "part").page(),
       Column(Kind::us, "time", "self_us").hint("without ops that it calls"),
       Column(Kind::percent, "share",
              [=](const Json& op) { return Json(op["self_us"].get<double>() * 100 / wall_us); })
           .hint("of the wall time"),
       Column(Kind::count, "calls", "count"),
       Column(Kind::us, "mean",
              [](const Json& op) {
                return Json(op["self_us"].get<double>() / op["count"].get<double>());
              }),
       Column(Kind::number, "GB/s", "gb_per_s")},
      "self_us"));
  sink.note(
      "Of the main thread, without the data loader. Times are of the ops themselves, without the "
      "ops that they call.");
}

void show_host_products(const Explanation& e, SectionSink& sink) {
  if (!e.host || e.host->products.empty()) return;
  const std::vector<HostProduct>& products = e.host->products;
  sink.head("Matrix products");
  sink.table(table_of(
      "By op, shape and type", "host.products", products, host_product_json,
      {Column(Kind::text, "op", "op").wide(20),
       Column(Kind::shape, "M x N x K", [](const Json& p) { return shape_text(p["shape"]); })
           .wide(28),
       Column(Kind::text, "type", "type"), Column(Kind::count, "count", "time.count"),
       Column(Kind::us, "median", "time.median_us"), Column(Kind::us, "total", "time.total_us"),
       Column(Kind::number, "GFLOP/s",
              [](const Json& p) { return p["is_dispatch"].get<bool>() ? "call" : p["gflops"]; })
           .hint("of large products: calling small ones takes longer"),
       Column(Kind::percent, "peak", "peak_pct")
           .places(0)
           .hint(e.host->peaks ? "share of the peak: " + e.host->peaks->text() : "")
           .when(e.host->peaks.has_value()),
       Column(Kind::number, "FLOP/byte", "flops_per_byte")},
      "time.total_us"));
  sink.note(peak_note(*e.host));
  if (std::ranges::any_of(products, [](const HostProduct& p) { return p.is_dispatch; }))
    sink.note(
        "call: the product is so small that calling it takes longer than computing it; its time is "
        "counted as calling ops.");
}

void show_host_functions(const Explanation& e, SectionSink& sink) {
  if (!e.host || e.host->functions.empty()) return;
  sink.head("Python between ops");
  sink.table(table_of("By function", "host.python_functions", e.host->functions, host_function_json,
                      {Column(Kind::text, "function", "name").wide(80),
                       Column(Kind::count, "calls", "count"), Column(Kind::us, "time", "self_us")},
                      "self_us"));
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

extern const Section kHost, kHostProducts, kHostFunctions;
constinit const Section kHost{"host", "Host", add_host_json, show_host};
constinit const Section kHostProducts{"products", "Products", nullptr, show_host_products};
constinit const Section kHostFunctions{"functions", "Python", nullptr, show_host_functions};

}  // namespace epilogue::trace
