// SPDX-License-Identifier: Apache-2.0
#include "explain/fusion/chain_model.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "explain/index/trace_metadata.h"

namespace epilogue::trace {
namespace {

using Json = nlohmann::json;

constexpr double kNsPerUs = 1000;

std::optional<double> positive(const Json& value) {
  if (!value.is_number() || !(value.get<double>() > 0)) return std::nullopt;
  return value.get<double>();
}

using Rates = std::vector<std::pair<double, double>>;

// [[rows, rate], ...]; empty where it is anything else.
std::optional<Rates> rates_of(const Json& points) {
  Rates rates;
  if (!points.is_array()) return std::nullopt;
  for (const Json& point : points) {
    if (!point.is_array() || point.size() != 2) return std::nullopt;
    const std::optional<double> at = positive(point[0]);
    const std::optional<double> rate = positive(point[1]);
    if (!at || !rate) return std::nullopt;
    rates.emplace_back(*at, *rate);
  }
  if (rates.empty()) return std::nullopt;
  std::sort(rates.begin(), rates.end());
  return rates;
}

// Between two measured points in proportion to the logarithm; beyond them the nearest.
double interpolated(const Rates& rates, double at) {
  const auto after =
      std::find_if(rates.begin(), rates.end(), [&](const auto& r) { return r.first >= at; });
  if (after == rates.end()) return rates.back().second;
  if (after == rates.begin()) return after->second;
  const auto before = std::prev(after);
  const double share = std::log(at / before->first) / std::log(after->first / before->first);
  return before->second * (1 - share) + after->second * share;
}

}  // namespace

std::optional<ChainModel> ChainModel::of(const Trace& trace) {
  const std::optional<std::string_view> text = find_metadata(trace, "row_chain");
  if (!text) return std::nullopt;
  const Json json = Json::parse(*text, nullptr, false);
  if (!json.is_object()) return std::nullopt;
  const std::optional<double> overhead_us = positive(json.value("overhead_us", Json()));
  const Json by_type = json.value("gflops_by_rows", Json());
  if (!overhead_us || !by_type.is_object()) return std::nullopt;
  ChainModel model;
  model.overhead_ns_ = *overhead_us * kNsPerUs;
  for (const auto& [type, points] : by_type.items()) {
    std::optional<Rates> rates = rates_of(points);
    if (!rates) return std::nullopt;
    const Json elements = json.value("ns_per_element", Json::object());
    const Json of_type = elements.is_object() ? elements.value(type, Json()) : Json();
    model.costs_.emplace(type, Cost{std::move(*rates), positive(of_type).value_or(0)});
  }
  if (const auto reads = find_metadata(trace, "read_gb_per_s_by_bytes"))
    model.read_gb_per_s_ = rates_of(Json::parse(*reads, nullptr, false)).value_or(Rates());
  return model;
}

std::optional<double> ChainModel::time_ns(const ChainWork& work) const {
  const auto cost = costs_.find(work.type);
  if (cost == costs_.end() || work.rows < 1) return std::nullopt;
  double ns = work.flops / interpolated(cost->second.gflops, work.rows) +
              work.elements * cost->second.ns_per_element;
  if (!read_gb_per_s_.empty())
    ns = std::max(ns, work.bytes / interpolated(read_gb_per_s_, work.bytes));
  return overhead_ns_ + ns;
}

}  // namespace epilogue::trace
