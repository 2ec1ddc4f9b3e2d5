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
                      {{.title = "kernel", .key = "kernel", .kind = Kind::kernel, .width = 56},
                       {.title = "runs", .key = "ops", .kind = Kind::list},
                       {.title = "count", .key = "count", .kind = Kind::count},
                       {.title = "time", .key = "total_us", .kind = Kind::us},
                       {.title = "bytes", .key = "bytes", .kind = Kind::bytes},
                       {.title = "unfused",
                        .key = "unfused_bytes",
                        .kind = Kind::bytes,
                        .note = "bytes that its ops would move one by one"}},
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
  sink.table(table_of(
      "What one kernel could do", "fusions", e.fusions.fusions, fusion_json,
      {{.title = "kind", .key = "kind"},
       {.title = "ops", .key = "ops", .kind = Kind::list},
       {.title = "result", .key = "shape", .where = Where::page},
       {.title = "count", .key = "count", .kind = Kind::count},
       {.title = "time", .key = "time_us", .kind = Kind::us},
       {.title = "kernels", .kind = Kind::cell, .is_shown = !e.host, .derive = kernels_text},
       {.title = "not moved",
        .kind = Kind::bytes,
        .where = Where::page,
        .derive =
            [](const Json& f) {
              const auto now = f["bytes_now"].get<double>();  // 0: shapes are not recorded
              return now > 0 ? Json(now - f["bytes_after"].get<double>()) : Json();
            }},
       {.title = "saves", .key = "predicted_saving_us", .kind = Kind::us, .note = "predicted"},
       {.title = "confidence", .key = "confidence"},
       {.title = "assumption", .key = "assumption", .where = Where::page}},
      "predicted_saving_us"));
}

void add_chains_json(const Explanation& e, Json& json, JsonLists& lists) {
  json["dispatch_chains"] = lists.of("dispatch_chains", e.chains.chains, chain_json);
}

void show_chains(const Explanation& e, SectionSink& sink) {
  if (e.chains.chains.empty()) return;
  const bool has_device = !e.host;
  sink.head("Dispatch chains");
  sink.table(
      table_of("Ops that call ops", "dispatch_chains", e.chains.chains, chain_json,
               {{.title = "ops", .key = "chain", .width = 90},
                {.title = "count", .key = "count", .kind = Kind::count},
                {.title = "host", .key = "cpu_us", .kind = Kind::us},
                {.title = "device", .key = "device_us", .kind = Kind::us, .is_shown = has_device},
                {.title = "kernels", .key = "kernels", .kind = Kind::count, .is_shown = has_device},
                {.title = "launch nothing",
                 .kind = Kind::cell,
                 .note = "ops of one chain that start no device work",
                 .is_shown = has_device,
                 .derive =
                     [](const Json& c) {
                       return Json(fmt::format("{} of {}", c["no_launch_ops"].get<int64_t>(),
                                               c["ops"].get<int64_t>()));
                     }},
                {.title = "their time",
                 .key = "no_launch_us",
                 .kind = Kind::us,
                 .where = Where::page,
                 .is_shown = has_device}},
               "cpu_us"));
}

}  // namespace

extern const Section kFused, kFusions, kChains;
constinit const Section kFused{"fused", "Fused", nullptr, show_fused};
constinit const Section kFusions{"fusions", "Fusions", add_fusions_json, show_fusions};
constinit const Section kChains{"chains", "Chains", add_chains_json, show_chains};

}  // namespace epilogue::trace
