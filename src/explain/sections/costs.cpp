// SPDX-License-Identifier: Apache-2.0
// What holds the time, op by op: shapes, place, and what the trace answers.
#include <fmt/format.h>

#include "base/units.h"
#include "explain/sections/section.h"

namespace epilogue::trace {
namespace {

Json cost_answer_json(const CostAnswer& answer) {
  return {{"question", cost_question_name(answer.question)},
          {"text", answer.text},
          {"action", answer.action},
          {"is_loss", answer.is_loss}};
}

Json cost_shape_json(const CostShape& shape) {
  return {{"text", shape.text}, {"time", distribution_json(shape.time)}};
}

Json cost_item_json(const CostItem& item) {
  return {{"op", item.op},
          {"count", item.count},
          {"time_us", to_us(item.ns)},
          {"shape_kinds", item.shape_kinds},
          {"shapes", array_of(item.shapes, cost_shape_json)},
          {"place",
           {{"op", item.place.op},
            {"annotation", item.place.annotation},
            {"module", item.place.module},
            {"function", item.place.function}}},
          {"asked", item.asked},
          {"answers", array_of(item.answers, cost_answer_json)}};
}

Json cost_spot_json(const CostSpot& spot) {
  return {{"kind", cost_spot_name(spot.kind)},
          {"name", spot.name},
          {"count", spot.count},
          {"time_us", to_us(spot.ns)},
          {"text", spot.text}};
}

void add_costs_json(const Explanation& e, Json& json, JsonLists& lists) {
  json["costs"] = lists.of("costs", e.method.items, cost_item_json);
  json["cost_spots"] = lists.of("cost_spots", e.method.spots, cost_spot_json);
}

Json shapes_cell(const Json& item) {
  if (item["shapes"].empty()) return "";
  const auto text = item["shapes"][0]["text"].get<std::string>();
  const auto kinds = item["shape_kinds"].get<int64_t>();
  return kinds > 1 ? fmt::format("{} and {} more", text.empty() ? "?" : text, kinds - 1) : text;
}

Json place_cell(const Json& item) {
  const Json& place = item["place"];
  for (const char* key : {"function", "module", "annotation", "op"})
    if (const auto text = place[key].get<std::string>(); !text.empty()) return text;
  return "";
}

Json answer_cell(const Json& item) {
  return item["answers"].empty() ? Json("no answer") : item["answers"][0]["text"];
}

void show_costs(const Explanation& e, SectionSink& sink) {
  if (e.method.items.empty() || e.method.wall_ns <= 0) return;
  const double wall_us = to_us(e.method.wall_ns);
  sink.head("What holds the time");
  sink.table(table_of(
      "By op", "costs", e.method.items, cost_item_json,
      {Column(Kind::text, "op", "op").wide(40), Column(Kind::us, "time", "time_us"),
       Column(Kind::percent, "share",
              [=](const Json& item) { return Json(item["time_us"].get<double>() * 100 / wall_us); })
           .hint(e.method.is_device ? "of the span" : "of the wall time"),
       Column(Kind::count, "calls", "count"), Column(Kind::text, "most on", shapes_cell).wide(48),
       Column(Kind::text, "most in", place_cell).wide(40),
       Column(Kind::text, "answer", answer_cell).wide(80)},
      "time_us"));
  sink.note(fmt::format(
      "{} of {} ({:.0f} %) in these ops, {}.",
      format_duration_ns(static_cast<double>(e.method.told_ns)),
      format_duration_ns(static_cast<double>(e.method.wall_ns)),
      100 * static_cast<double>(e.method.told_ns) / static_cast<double>(e.method.wall_ns),
      e.method.is_device ? "by the device work that they launched"
                         : "by their own time, without the ops that they call"));
  if (e.method.spots.empty()) return;
  sink.table(table_of(
      "By module, range, function and gap", "cost_spots", e.method.spots, cost_spot_json,
      {Column(Kind::text, "kind", "kind"), Column(Kind::text, "name", "name").wide(60),
       Column(Kind::us, "time", "time_us"),
       Column(Kind::percent, "share",
              [=](const Json& item) { return Json(item["time_us"].get<double>() * 100 / wall_us); })
           .hint(e.method.is_device ? "of the span" : "of the wall time"),
       Column(Kind::count, "times", "count"), Column(Kind::text, "what it is", "text").wide(60)},
      "time_us"));
}

}  // namespace

extern const Section kCosts;
constinit const Section kCosts{"costs", "Costs", add_costs_json, show_costs};

}  // namespace epilogue::trace
