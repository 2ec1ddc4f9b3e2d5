// SPDX-License-Identifier: Apache-2.0
#include "explain/fusion/row_chains.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/json.h"
#include "explain/fusion/fusion_groups.h"
#include "explain/index/trace_metadata.h"
#include "explain/kernel_name/text.h"

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
  const Json json = parse_json(*text);
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
    model.read_gb_per_s_ = rates_of(parse_json(*reads)).value_or(Rates());
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

namespace {

class RowChainGrouping {
 public:
  RowChainGrouping(const Trace& trace, const WorkOps& work, const Dataflow& flow)
      : trace_(trace), work_(work), flow_(flow), group_of_(work.ops.size()) {
    std::iota(group_of_.begin(), group_of_.end(), 0U);
  }

  std::vector<RowChainGroup> run() {
    for (uint32_t i = 0; i < work_.ops.size(); ++i) {
      if (!can_join(i)) continue;
      for (size_t k = 0; k < flow_.sources[i].size(); ++k) {
        const uint32_t p = flow_.sources[i][k].producer;
        if (p != kNone && can_join(p)) unite(p, i);
      }
    }
    return collect();
  }

 private:
  std::string_view name(uint32_t i) const { return trace_.name(trace_.events[work_.ops[i].event]); }

  // A product of two results (attention's) has no weight to prepare.
  bool has_weight(uint32_t i) const {
    const WorkOp& op = work_.ops[i];
    const size_t right = left_operand(trace_, op) + 1;
    return op.inputs.size() > right && op.inputs[right].dims.size() == 2 &&
           flow_.sources[i][right].producer == kNone;
  }

  bool can_join(uint32_t i) const {
    const WorkOp& op = work_.ops[i];
    const OpArgs* args = trace_.op_args(trace_.events[op.event]);
    if (args == nullptr || args->sequence_number >= 0 || op.inputs.empty() || !op.output)
      return false;
    switch (op.op_class) {
      case OpClass::pointwise: return true;
      case OpClass::rowwise: return contains(name(i), "norm");
      case OpClass::gemm: return has_weight(i);
      default: return false;
    }
  }

  uint32_t root(uint32_t i) {
    while (group_of_[i] != i) i = group_of_[i] = group_of_[group_of_[i]];
    return i;
  }
  void unite(uint32_t a, uint32_t b) {
    const uint32_t x = root(a);
    const uint32_t y = root(b);
    group_of_[std::max(x, y)] = std::min(x, y);
  }

  std::vector<RowChainGroup> collect() {
    std::vector<uint32_t> place(work_.ops.size(), kNone);
    std::vector<RowChainGroup> groups;
    for (uint32_t i = 0; i < work_.ops.size(); ++i) {
      if (!can_join(i)) continue;
      uint32_t& at = place[root(i)];
      if (at == kNone) {
        at = static_cast<uint32_t>(groups.size());
        groups.emplace_back();
      }
      groups[at].members.push_back(i);
    }
    std::erase_if(groups, [&](RowChainGroup& group) { return !describe(group); });
    return groups;
  }

  // Fills in the work; false where it is no chain of products or its sizes are not known.
  bool describe(RowChainGroup& group) const {
    ChainWork& sum = group.work;
    for (const uint32_t i : group.members) {
      const WorkOp& op = work_.ops[i];
      if (op.op_class != OpClass::gemm) continue;
      const size_t left = left_operand(trace_, op);
      const TensorShape& weight = op.inputs[left + 1];
      const std::string_view type = element_type(op.inputs[left].type);
      const std::optional<int64_t> bytes = weight.bytes();
      const int64_t k = weight.dims[0];
      if (type.empty() || !bytes || k <= 0) return false;
      const int64_t row_count = op.inputs[left].numel() / k;
      const auto rows = static_cast<double>(row_count);
      if (sum.rows == 0) {
        sum.type = type;
        sum.rows = rows;
        sum.bytes += static_cast<double>(op.inputs[left].bytes().value_or(0));
      }
      if (sum.type != type || sum.rows != rows) return false;
      sum.flops += 2 * rows * static_cast<double>(weight.numel());
      sum.elements += rows * static_cast<double>(weight.dims[1]);
      sum.bytes += static_cast<double>(*bytes);
    }
    if (sum.flops == 0) return false;
    sum.bytes += static_cast<double>(work_.ops[group.members.back()].output->bytes().value_or(0));
    return true;
  }

  const Trace& trace_;
  const WorkOps& work_;
  const Dataflow& flow_;
  std::vector<uint32_t> group_of_;
};

}  // namespace

std::vector<RowChainGroup> row_chain_groups(const Trace& trace, const WorkOps& work,
                                            const Dataflow& flow) {
  return RowChainGrouping(trace, work, flow).run();
}

}  // namespace epilogue::trace
