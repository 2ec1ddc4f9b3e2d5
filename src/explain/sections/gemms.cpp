// SPDX-License-Identifier: Apache-2.0
// Matrix products of a device.
#include <fmt/format.h>

#include "base/units.h"
#include "explain/sections/section.h"

namespace epilogue::trace {
namespace {

Json tiling_json(const std::optional<GemmTiling>& t) {
  if (!t) return nullptr;
  return {{"tiles", t->tiles},
          {"padding_pct", t->padding_pct},
          {"tiles_per_wave", or_null(t->tiles_per_wave)},
          {"waves", or_null(t->waves)},
          {"wave_efficiency_pct", or_null(t->wave_efficiency_pct)}};
}

Json gemm_json(const Gemm& g) {
  Json shape = nullptr;
  if (g.shape)
    shape = {{"m", g.shape->m}, {"n", g.shape->n}, {"k", g.shape->k}, {"batch", g.shape->batch}};
  return {{"op", g.op},
          {"kernel", g.kernel},
          {"family", g.name.family},
          {"shape", std::move(shape)},
          {"a_type", g.a_type},
          {"b_type", g.b_type},
          {"c_type", g.c_type},
          {"time", distribution_json(g.time)},
          {"reduction_us", g.reduction_ns_per_launch() / kNsPerUs},
          {"rate_time_us", g.rate_time_ns() / kNsPerUs},
          {"flops", or_null(g.flops)},
          {"bytes", or_null(g.bytes)},
          {"intensity_flops_per_byte", or_null(g.intensity)},
          {"tflops", or_null(g.tflops)},
          {"gb_per_s", or_null(g.gb_per_s)},
          {"math_type", g.math_type},
          {"peak_of", g.peak_of},
          {"peak_tflops", or_null(g.peak_tflops)},
          {"peak_pct", or_null(g.peak_pct)},
          {"attainable_tflops", or_null(g.attainable_tflops)},
          {"attainable_pct", or_null(g.attainable_pct)},
          {"roofline_side", side_json(g.side)},
          {"uses_tensor_cores", or_null(g.uses_tensor_cores)},
          {"tensor_core_note", g.tensor_core_note},
          {"tensor_core_advice", g.tensor_core_advice},
          {"tiling", tiling_json(g.tiling)}};
}

void add_gemms_json(const Explanation& e, Json& json, JsonLists& lists) {
  json["gemms"] = lists.of("gemms", e.gemms.gemms, gemm_json);
  json["gemm_comparisons"] = lists.of("gemm_comparisons", e.gemms.comparisons,
                                      [](const GemmComparison& c) { return Json(c.sentence); });
}

// "f16, f32": each type once.
Json types_text(const Json& g) {
  std::vector<std::string> types;
  for (const char* key : {"a_type", "b_type", "c_type"})
    if (const auto type = g[key].get<std::string>();
        !type.empty() && std::find(types.begin(), types.end(), type) == types.end())
      types.push_back(type);
  return fmt::format("{}", fmt::join(types, ", "));
}

Json median_text(const Json& g) {
  const auto text = [&](const Json& us) { return format_duration_ns(us.get<double>() * kNsPerUs); };
  const bool has_sum = g["reduction_us"].get<double>() > 0;
  return text(g["time"]["median_us"]) + (has_sum ? " + " + text(g["reduction_us"]) : "");
}

void show_gemms(const Explanation& e, SectionSink& sink) {
  if (e.gemms.gemms.empty()) return;
  const bool has_sums = std::any_of(e.gemms.gemms.begin(), e.gemms.gemms.end(),
                                    [](const Gemm& g) { return g.reduction_ns > 0; });
  sink.head("Matrix products");
  sink.plot("roofline", {{"list", "gemms"}, {"points", "matrix products"}});
  sink.table(table_of(
      "By op, shape and kernel", "gemms", e.gemms.gemms, gemm_json,
      {Column(Kind::text, "op", "op").wide(16),
       Column(Kind::shape, "M x N x K", [](const Json& g) { return shape_text(g["shape"]); })
           .wide(28),
       Column(Kind::text, "type", types_text).page(), Column(Kind::count, "count", "time.count"),
       Column(Kind::us, "total", "time.total_us").page(),
       Column(Kind::cell, "median", median_text).text(),
       Column(Kind::us, "median", "time.median_us").page(),
       Column(Kind::us, "split-K sum", "reduction_us")
           .page()
           .hint("of the kernel that adds up a split K; TFLOP/s counts it in")
           .when(has_sums),
       Column(Kind::number, "TFLOP/s", "tflops").places(2),
       Column(Kind::percent, "peak", "peak_pct").places(0).hint("share of the device's peak"),
       Column(Kind::percent, "attainable", "attainable_pct")
           .places(0)
           .hint("share of the roofline: of what intensity and memory bandwidth allow"),
       Column(Kind::number, "FLOP/byte", "intensity_flops_per_byte").page(),
       Column(Kind::number, "waves", "tiling.waves").places(2),
       Column(Kind::percent, "wave efficiency", "tiling.wave_efficiency_pct")
           .page()
           .hint("waves over whole waves of tiles"),
       Column(Kind::kernel, "kernel", "kernel").wide(56)},
      "time.total_us"));
  if (has_sums)
    sink.note(
        "TFLOP/s is over the median; where K is split, with the kernel that adds up the parts "
        "(+).");
  std::vector<SectionSink::Item> items;
  for (const GemmComparison& c : e.gemms.comparisons) {
    if (sink.top() >= 0 && items.size() >= static_cast<size_t>(sink.top())) break;
    items.emplace_back(c.sentence, std::vector<std::string>());
  }
  if (!items.empty()) sink.bullets(items);
}

Json roofline_json(const OpRoofline& r) {
  return {{"kind", roofline_kind_name(r.kind)},
          {"op", r.op},
          {"shapes", r.shapes},
          {"type", r.type},
          {"kernel", r.kernel},
          {"device", r.device},
          {"kernels", r.kernels},
          {"time", distribution_json(r.time)},
          {"flops", or_null(r.flops)},
          {"bytes", r.bytes},
          {"intensity_flops_per_byte", or_null(r.intensity)},
          {"tflops", or_null(r.tflops)},
          {"gb_per_s", or_null(r.gb_per_s)},
          {"peak_of", r.peak_of},
          {"peak_tflops", or_null(r.peak_tflops)},
          {"peak_gb_per_s", or_null(r.peak_gb_per_s)},
          {"attainable_pct", or_null(r.attainable_pct)},
          {"roofline_side", side_json(r.side)}};
}

void add_rooflines_json(const Explanation& e, Json& json, JsonLists& lists) {
  json["rooflines"] = lists.of("rooflines", e.rooflines, roofline_json);
}

void show_rooflines(const Explanation& e, SectionSink& sink) {
  if (e.rooflines.empty()) return;
  sink.head("Other ops against the roofline");
  sink.plot("roofline", {{"list", "rooflines"}, {"points", "ops"}});
  sink.table(table_of(
      "By op and inputs", "rooflines", e.rooflines, roofline_json,
      {Column(Kind::text, "kind", "kind"), Column(Kind::text, "op", "op").wide(44),
       Column(Kind::text, "inputs", "shapes").wide(44), Column(Kind::text, "type", "type").page(),
       Column(Kind::kernel, "kernel", "kernel").page(), Column(Kind::count, "count", "time.count"),
       Column(Kind::us, "total", "time.total_us").page(),
       Column(Kind::us, "median", "time.median_us"),
       Column(Kind::number, "TFLOP/s", "tflops").places(2),
       Column(Kind::number, "GB/s", "gb_per_s").places(0),
       Column(Kind::number, "FLOP/byte", "intensity_flops_per_byte").page(),
       Column(Kind::percent, "attainable", "attainable_pct")
           .places(0)
           .hint("share of the roofline: of what intensity and memory bandwidth allow; above "
                 "100 %, caches held the data")},
      "time.total_us"));
}

}  // namespace

Json shape_text(const Json& shape) {
  if (shape.is_null()) return nullptr;
  const auto batch = shape["batch"].get<int64_t>();
  return fmt::format("{}{} x {} x {}", batch > 1 ? fmt::format("{} x ", batch) : "",
                     shape["m"].get<int64_t>(), shape["n"].get<int64_t>(),
                     shape["k"].get<int64_t>());
}

extern const Section kGemms, kRooflines;
constinit const Section kGemms{"gemms", "GEMMs", add_gemms_json, show_gemms};
constinit const Section kRooflines{"rooflines", "Rooflines", add_rooflines_json, show_rooflines};

}  // namespace epilogue::trace
