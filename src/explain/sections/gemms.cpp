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
      {{.title = "op", .key = "op", .width = 16},
       {.title = "M x N x K",
        .width = 28,
        .derive = [](const Json& g) { return shape_text(g["shape"]); }},
       {.title = "type", .where = Where::page, .derive = types_text},
       {.title = "count", .key = "time.count", .kind = Kind::count},
       {.title = "total", .key = "time.total_us", .kind = Kind::us, .where = Where::page},
       {.title = "median", .kind = Kind::cell, .where = Where::text, .derive = median_text},
       {.title = "median", .key = "time.median_us", .kind = Kind::us, .where = Where::page},
       {.title = "split-K sum",
        .key = "reduction_us",
        .kind = Kind::us,
        .where = Where::page,
        .note = "of the kernel that adds up a split K; TFLOP/s counts it in",
        .is_shown = has_sums},
       {.title = "TFLOP/s", .key = "tflops", .kind = Kind::number, .digits = 2},
       {.title = "peak",
        .key = "peak_pct",
        .kind = Kind::percent,
        .digits = 0,
        .note = "share of the device's peak"},
       {.title = "attainable",
        .key = "attainable_pct",
        .kind = Kind::percent,
        .digits = 0,
        .note = "share of the roofline: of what intensity and memory bandwidth allow"},
       {.title = "FLOP/byte",
        .key = "intensity_flops_per_byte",
        .kind = Kind::number,
        .where = Where::page},
       {.title = "waves", .key = "tiling.waves", .kind = Kind::number, .digits = 2},
       {.title = "wave efficiency",
        .key = "tiling.wave_efficiency_pct",
        .kind = Kind::percent,
        .where = Where::page,
        .note = "waves over whole waves of tiles"},
       {.title = "kernel", .key = "kernel", .kind = Kind::kernel, .width = 56}},
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
      {{.title = "kind", .key = "kind"},
       {.title = "op", .key = "op", .width = 44},
       {.title = "inputs", .key = "shapes", .width = 44},
       {.title = "type", .key = "type", .where = Where::page},
       {.title = "kernel", .key = "kernel", .kind = Kind::kernel, .where = Where::page},
       {.title = "count", .key = "time.count", .kind = Kind::count},
       {.title = "total", .key = "time.total_us", .kind = Kind::us, .where = Where::page},
       {.title = "median", .key = "time.median_us", .kind = Kind::us},
       {.title = "TFLOP/s", .key = "tflops", .kind = Kind::number, .digits = 2},
       {.title = "GB/s", .key = "gb_per_s", .kind = Kind::number, .digits = 0},
       {.title = "FLOP/byte",
        .key = "intensity_flops_per_byte",
        .kind = Kind::number,
        .where = Where::page},
       {.title = "attainable",
        .key = "attainable_pct",
        .kind = Kind::percent,
        .digits = 0,
        .note = "share of the roofline: of what intensity and memory bandwidth allow; above "
                "100 %, caches held the data"}},
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
