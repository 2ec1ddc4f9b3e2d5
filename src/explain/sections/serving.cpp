// SPDX-License-Identifier: Apache-2.0
// Steps of a server by phase, and the kernels of replayed graphs by who captured them. A trace
// without either has no key of them.
#include <fmt/format.h>

#include <algorithm>

#include "base/units.h"
#include "explain/sections/section.h"

namespace epilogue::trace {
namespace {

// --- Serving ------------------------------------------------------------------------------------

Json parts_of(const std::array<int64_t, kServingParts>& part_ns) {
  Json json = Json::object();
  for (size_t i = 0; i < kServingParts; ++i)
    json[std::string(serving_part_name(static_cast<ServingPart>(i)))] = to_us(part_ns[i]);
  return json;
}

Json us_or_null(const std::optional<int64_t>& ns) { return ns ? Json(to_us(*ns)) : Json(); }

Json phase_json(const ServingPhaseTime& p) {
  return {{"phase", serving_phase_name(p.phase)},
          {"count", p.count},
          {"requests", or_null(p.requests)},
          {"tokens", or_null(p.tokens)},
          {"context_tokens", or_null(p.context_tokens)},
          {"median_us", to_us(p.median_ns)},
          {"p99_us", to_us(p.p99_ns)},
          {"total_us", to_us(p.total_ns)},
          {"busy_pct", p.busy_pct},
          {"part_us", parts_of(p.part_ns)},
          {"gap_us", us_or_null(p.gap_ns)},
          {"gaps_us", to_us(p.gaps_ns)},
          {"limit", p.limit},
          {"reason", p.reason},
          {"change", p.change}};
}

Json step_json(const ServingStep& s) {
  return {{"name", s.name},
          {"phase", serving_phase_name(s.label.phase)},
          {"requests", or_null(s.label.requests)},
          {"prefill_tokens", or_null(s.label.prefill_tokens)},
          {"decode_tokens", or_null(s.label.decode_tokens)},
          {"context_tokens", or_null(s.label.context_tokens)},
          {"start_us", to_us(s.start_ns)},
          {"host_us", to_us(s.host_ns)},
          {"device_start_us", to_us(s.device_start_ns)},
          {"device_us", to_us(s.device_ns)},
          {"busy_us", to_us(s.busy_ns)},
          {"kernels", s.kernels},
          {"graph_launches", s.graph_launches},
          {"part_us", parts_of(s.part_ns)},
          {"gap_us", us_or_null(s.gap_ns)}};
}

Json experts_json(const ExpertLoad& x) {
  return {{"op", x.op},           {"calls", x.calls},
          {"experts", x.experts}, {"experts_per_token", or_null(x.per_token)},
          {"tokens", x.tokens},   {"tokens_per_expert", or_null(x.tokens_per_expert)}};
}

double share_pct(int64_t part, int64_t whole) {
  return whole == 0 ? 0 : 100.0 * static_cast<double>(part) / static_cast<double>(whole);
}

Json imbalance_json(const ExpertImbalance& x) {
  return {{"phase", serving_phase_name(x.phase)},
          {"op", x.op},
          {"layers", x.layers},
          {"experts", x.experts},
          {"experts_per_token", x.per_token},
          {"tokens", x.tokens},
          {"max_over_mean", x.max_over_mean},
          {"worst_max_over_mean", x.worst_max_over_mean},
          {"device_us", to_us(x.device_ns)},
          {"largest_us", us_or_null(x.largest_ns)},
          {"largest_pct",
           x.largest_ns && x.device_ns > 0 ? Json(share_pct(*x.largest_ns, x.device_ns)) : Json()}};
}

void add_serving_json(const Explanation& e, Json& json, JsonLists& lists) {
  const ServingReport& s = e.serving;
  if (s.is_empty()) return;
  json["serving"] = {{"server", s.server},
                     {"is_inferred", s.is_inferred},
                     {"phases", lists.of("serving.phases", s.phases, phase_json)},
                     {"steps", lists.of("serving.steps", s.steps, step_json)},
                     {"experts", lists.of("serving.experts", s.experts, experts_json)},
                     {"imbalance", lists.of("serving.imbalance", s.imbalance, imbalance_json)}};
}

Column part_column(ServingPart part) {
  const std::string name(serving_part_name(part));
  return {Kind::us, name, "part_us." + name};
}

void show_experts(const ServingReport& s, SectionSink& sink) {
  if (!s.experts.empty())
    sink.table(
        table_of("Tokens of experts", "serving.experts", s.experts, experts_json,
                 {Column(Kind::text, "routed by", "op"), Column(Kind::count, "calls", "calls"),
                  Column(Kind::count, "experts", "experts"),
                  Column(Kind::count, "of each token", "experts_per_token"),
                  Column(Kind::number, "tokens", "tokens").places(0),
                  Column(Kind::number, "tokens per expert", "tokens_per_expert")
                      .hint("if every expert took the same number")}));
  if (s.imbalance.empty()) return;
  sink.table(table_of(
      "Imbalance of experts", "serving.imbalance", s.imbalance, imbalance_json,
      {Column(Kind::text, "phase", "phase"), Column(Kind::text, "products", "op"),
       Column(Kind::count, "layers", "layers").hint("routed layers, over all steps of the phase"),
       Column(Kind::count, "experts", "experts"),
       Column(Kind::count, "of each token", "experts_per_token"),
       Column(Kind::number, "tokens", "tokens").places(0),
       Column(Kind::number, "max / mean", "max_over_mean")
           .places(2)
           .hint("tokens of the expert with most, over the mean of all experts; median"),
       Column(Kind::number, "worst", "worst_max_over_mean").places(2),
       Column(Kind::us, "experts take", "device_us"), Column(Kind::us, "largest", "largest_us"),
       Column(Kind::percent, "its share", "largest_pct")}));
  for (const ExpertImbalance& x : s.imbalance)
    sink.note(
        fmt::format("{}: the expert with most tokens has {:.2f} times the mean (at worst {:.2f}), "
                    "by the rows of {} in {}{}.",
                    serving_phase_name(x.phase), x.max_over_mean, x.worst_max_over_mean, x.op,
                    counted(x.layers, "layer", "layers"),
                    x.largest_ns && x.device_ns > 0
                        ? fmt::format("; it holds {} of the {} of all experts ({:.0f} %)",
                                      format_duration_ns(static_cast<double>(*x.largest_ns)),
                                      format_duration_ns(static_cast<double>(x.device_ns)),
                                      share_pct(*x.largest_ns, x.device_ns))
                        : "; one call has all experts, so that its time is not told"));
}

void show_serving(const Explanation& e, SectionSink& sink) {
  const ServingReport& s = e.serving;
  if (s.is_empty()) return;
  const auto any = [&](auto has) { return std::ranges::any_of(s.phases, has); };
  sink.head("Serving");
  sink.table(table_of(
      "Steps of the server by phase", "serving.phases", s.phases, phase_json,
      {Column(Kind::text, "phase", "phase"), Column(Kind::count, "steps", "count"),
       Column(Kind::number, "requests", "requests").places(0).when(any([](const auto& p) {
         return p.requests.has_value();
       })),
       Column(Kind::number, "tokens", "tokens").places(0).when(any([](const auto& p) {
         return p.tokens.has_value();
       })),
       Column(Kind::number, "context", "context_tokens").places(0).when(any([](const auto& p) {
         return p.context_tokens.has_value();
       })),
       Column(Kind::us, "median", "median_us"), Column(Kind::us, "p99", "p99_us"),
       Column(Kind::percent, "busy", "busy_pct"), part_column(ServingPart::attention),
       part_column(ServingPart::products), part_column(ServingPart::experts),
       part_column(ServingPart::collectives), part_column(ServingPart::sampling),
       part_column(ServingPart::other),
       Column(Kind::us, "gap before", "gap_us")
           .hint("median time of the device without work before such a step"),
       Column(Kind::text, "limited by", "limit")}));
  std::string how =
      s.is_inferred
          ? "No annotation names the steps: each ends with the copy that brings its tokens to the "
            "host. Attention in a replayed graph makes it a decode, no graph at all a prefill."
          : fmt::format(
                "Steps by the annotations of {}. Work that was launched before the next "
                "step belongs to a step.",
                s.server);
  sink.note(how +
            " median and p99 are of the device's time from first to last work; parts are added up "
            "over all steps of a phase; requests, tokens and context are medians.");
  for (const ServingPhaseTime& p : s.phases) {
    if (!p.reason.empty()) sink.note(fmt::format("{}: {}.", serving_phase_name(p.phase), p.reason));
    if (!p.change.empty()) sink.note(fmt::format("{}: {}.", serving_phase_name(p.phase), p.change));
  }
  sink.page_table(table_of(
      "Steps", "serving.steps", s.steps, step_json,
      {Column(Kind::text, "name", "name"), Column(Kind::text, "phase", "phase"),
       Column(Kind::count, "requests", "requests"), Column(Kind::us, "host", "host_us"),
       Column(Kind::us, "device", "device_us"), Column(Kind::us, "busy", "busy_us"),
       Column(Kind::count, "kernels", "kernels"), Column(Kind::count, "graphs", "graph_launches"),
       Column(Kind::us, "gap before", "gap_us")}));
  show_experts(s, sink);
}

// --- Graphs -------------------------------------------------------------------------------------

Json owner_json(const GraphOwner& o) {
  return {{"op", o.op},
          {"module", o.module},
          {"frame", o.frame},
          {"source", graph_source_name(o.source)},
          {"confidence", o.confidence ? Json(confidence_name(*o.confidence)) : Json()},
          {"kernels", o.kernels},
          {"device_us", to_us(o.device_ns)},
          {"kernel", o.kernel}};
}

void add_graphs_json(const Explanation& e, Json& json, JsonLists& lists) {
  const GraphReport& g = e.graphs;
  if (g.is_empty()) return;
  Json sources = Json::object();
  for (size_t i = 0; i < g.source_ns.size(); ++i)
    sources[std::string(graph_source_name(static_cast<GraphSource>(i)))] = to_us(g.source_ns[i]);
  json["graphs"] = {{"launches", g.launches},
                    {"sequences", g.sequences},
                    {"kernels", g.kernels},
                    {"device_us", to_us(g.device_ns)},
                    {"source_us", std::move(sources)},
                    {"named_pct", share_pct(g.named_ns, g.all_device_ns)},
                    {"owners", lists.of("graphs.owners", g.owners, owner_json)}};
}

std::string graphs_note(const GraphReport& g) {
  const auto ns = [&](GraphSource s) { return g.source_ns[static_cast<size_t>(s)]; };
  std::string note = fmt::format(
      "{} ran {} in {}, {:.0f} % of the device's work. {:.0f} % of all its work has an op, a "
      "module or a frame",
      counted(g.launches, "replay", "replays"), counted(g.kernels, "kernel", "kernels"),
      counted(g.sequences, "order", "different orders"), share_pct(g.device_ns, g.all_device_ns),
      share_pct(g.named_ns, g.all_device_ns));
  std::string by;
  for (const GraphSource s :
       {GraphSource::annotation, GraphSource::capture, GraphSource::same_trace}) {
    if (ns(s) == 0) continue;
    const char* what = s == GraphSource::annotation ? "annotations"
                       : s == GraphSource::capture  ? "the order of the capture's kernels"
                                                    : "the order of this trace's other kernels";
    by +=
        fmt::format("{}{} {} {:.0f} % of the graphs' work", by.empty() ? ": " : ", ", what,
                    s == GraphSource::annotation ? "name" : "names", share_pct(ns(s), g.device_ns));
  }
  return note + by + ".";
}

void show_graphs(const Explanation& e, SectionSink& sink) {
  const GraphReport& g = e.graphs;
  if (g.is_empty()) return;
  const auto any = [&](auto has) { return std::ranges::any_of(g.owners, has); };
  sink.head("Replayed graphs");
  sink.note(graphs_note(g));
  sink.table(
      table_of("Kernels of replayed graphs by origin", "graphs.owners", g.owners, owner_json,
               {Column(Kind::text, "op", "op").wide(40),
                Column(Kind::text, "module", "module").wide(40).when(any([](const auto& o) {
                  return !o.module.empty();
                })),
                Column(Kind::text, "frame", "frame").wide(50).when(any([](const auto& o) {
                  return !o.frame.empty();
                })),
                Column(Kind::us, "time", "device_us"), Column(Kind::count, "kernels", "kernels"),
                Column(Kind::text, "by", "source"), Column(Kind::text, "confidence", "confidence"),
                Column(Kind::kernel, "mostly", "kernel")},
               "device_us"));
  const int64_t by_name = g.source_ns[static_cast<size_t>(GraphSource::kernel_name)] +
                          g.source_ns[static_cast<size_t>(GraphSource::none)];
  if (by_name == 0) return;
  sink.note(fmt::format(
      "{:.0f} % of the graphs' work has its kernel's name alone: {}. torch.cuda.graph(..., "
      "enable_annotations=True) keeps names in the trace; `--capture TRACE` takes them from a "
      "profile of the capture, or of an eager run of the same model.",
      share_pct(by_name, g.device_ns),
      g.has_capture ? "the order of its kernels is not the capture's"
                    : "a replay records no op, and nothing else in this trace ran its kernels in "
                      "that order"));
}

}  // namespace

extern const Section kServing, kGraphs;
constinit const Section kServing{"serving", "Serving", add_serving_json, show_serving};
constinit const Section kGraphs{"graphs", "Replayed graphs", add_graphs_json, show_graphs};

}  // namespace epilogue::trace
