// SPDX-License-Identifier: Apache-2.0
// Chains of ops: those that are fused, those that could be, and what dispatch costs.
#include <fmt/format.h>

#include "base/units.h"
#include "explain/sections/section.h"

namespace epilogue::trace {
namespace {

Json fusion_json(const Fusion& f) {
  return {{"kind", fusion_kind_name(f.kind)},
          {"ops", f.ops},
          {"kernels", f.kernels},
          {"shape", f.shape},
          {"count", f.count},
          {"kernels_now", f.kernels_now},
          {"kernels_after", f.kernels_after},
          {"time_us", f.time_us},
          {"host_us", f.host_us},
          {"bytes_now", f.bytes_now},
          {"bytes_after", f.bytes_after},
          {"device_saving_us", f.device_saving_us},
          {"host_saving_us", f.host_saving_us},
          {"predicted_saving_us", f.predicted_saving_us},
          {"predicted_cost_us", f.predicted_cost_us},
          {"confidence", confidence_name(f.confidence)},
          {"assumption", f.assumption}};
}

Json fused_json(const FusedKernel& f) {
  const auto bytes = [](int64_t n) { return n < 0 ? Json() : Json(n); };
  return {{"kernel", f.kernel},      {"ops", f.ops},
          {"count", f.count},        {"total_us", to_us(f.total_ns)},
          {"bytes", bytes(f.bytes)}, {"unfused_bytes", bytes(f.unfused_bytes)}};
}

Json chain_json(const DispatchChain& c) {
  return {{"chain", c.text},
          {"op", c.op},
          {"count", c.count},
          {"cpu_us", to_us(c.cpu_ns)},
          {"device_us", to_us(c.device_ns)},
          {"kernels", c.kernels},
          {"ops", c.ops},
          {"no_launch_ops", c.no_launch_ops},
          {"no_launch_us", to_us(c.no_launch_ns)}};
}

void add_fusions_json(const Explanation& e, Json& json, JsonLists& lists) {
  json["fusions"] = lists.of("fusions", e.fusions.fusions, fusion_json);
  json["fused_kernels"] = lists.of("fused_kernels", e.fused, fused_json);
  json["fusion_bandwidth_gb_per_s"] = e.fusions.bandwidth_gb_per_s;
}

void show_fused(const Explanation& e, SectionSink& sink) {
  if (e.fused.empty()) return;
  sink.head("Fused kernels");
  sink.table(table_of("What one kernel does", "fused_kernels", e.fused, fused_json,
                      {Column(Kind::kernel, "kernel", "kernel").wide(56),
                       Column(Kind::list, "runs", "ops"), Column(Kind::count, "count", "count"),
                       Column(Kind::us, "time", "total_us"), Column(Kind::bytes, "bytes", "bytes"),
                       Column(Kind::bytes, "unfused", "unfused_bytes")
                           .hint("bytes that its ops would move one by one")},
                      "total_us"));
}

Json kernels_text(const Json& f) {
  const auto now = f["kernels_now"].get<int64_t>();
  const auto after = f["kernels_after"].get<int64_t>();
  return now > after ? Json(fmt::format("{} -> {}", now, after)) : Json();
}

void show_fusions(const Explanation& e, SectionSink& sink) {
  if (e.fusions.fusions.empty()) return;
  sink.head("What could be fused");
  sink.table(table_of("What one kernel could do", "fusions", e.fusions.fusions, fusion_json,
                      {Column(Kind::text, "kind", "kind"), Column(Kind::list, "ops", "ops"),
                       Column(Kind::text, "result", "shape").page(),
                       Column(Kind::count, "count", "count"), Column(Kind::us, "time", "time_us"),
                       Column(Kind::cell, "kernels", kernels_text).when(!e.host),
                       Column(Kind::bytes, "not moved",
                              [](const Json& f) {
                                const auto now =
                                    f["bytes_now"].get<double>();  // 0: shapes are not recorded
                                return now > 0 ? Json(now - f["bytes_after"].get<double>())
                                               : Json();
                              })
                           .page(),
                       Column(Kind::us, "saves", "predicted_saving_us").hint("predicted"),
                       Column(Kind::text, "confidence", "confidence"),
                       Column(Kind::text, "assumption", "assumption").page()},
                      "predicted_saving_us"));
}

void add_chains_json(const Explanation& e, Json& json, JsonLists& lists) {
  json["dispatch_chains"] = lists.of("dispatch_chains", e.chains.chains, chain_json);
}

void show_chains(const Explanation& e, SectionSink& sink) {
  if (e.chains.chains.empty()) return;
  const bool has_device = !e.host;
  sink.head("Dispatch chains");
  sink.table(table_of(
      "Ops that call ops", "dispatch_chains", e.chains.chains, chain_json,
      {Column(Kind::text, "ops", "chain").wide(90), Column(Kind::count, "count", "count"),
       Column(Kind::us, "host", "cpu_us"), Column(Kind::us, "device", "device_us").when(has_device),
       Column(Kind::count, "kernels", "kernels").when(has_device),
       Column(Kind::cell, "launch nothing",
              [](const Json& c) {
                return Json(fmt::format("{} of {}", c["no_launch_ops"].get<int64_t>(),
                                        c["ops"].get<int64_t>()));
              })
           .hint("ops of one chain that start no device work")
           .when(has_device),
       Column(Kind::us, "their time", "no_launch_us").page().when(has_device)},
      "cpu_us"));
}

}  // namespace

extern const Section kFused, kFusions, kChains;
constinit const Section kFused{"fused", "Fused", nullptr, show_fused};
constinit const Section kFusions{"fusions", "Fusions", add_fusions_json, show_fusions};
constinit const Section kChains{"chains", "Chains", add_chains_json, show_chains};

}  // namespace epilogue::trace
