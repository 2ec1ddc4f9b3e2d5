// SPDX-License-Identifier: Apache-2.0
#include "explain/knowledge/op_knowledge.h"

#include <array>
#include <string>
#include <unordered_map>
#include <vector>

#include "pointwise/pointwise_fn.h"

namespace epilogue::trace {

// Each in the file of its name.
std::span<const OpKnowledge> moving_ops();
std::span<const OpKnowledge> layer_ops();
std::span<const OpKnowledge> number_ops();

namespace {

constexpr std::array<std::string_view, 12> kCostNames = {
    "bytes", "arithmetic", "flops",  "gather", "sort", "scan",
    "solve", "transform",  "search", "pairs",  "wait", "metadata"};
// Of a matrix of n x n, a row of n, tables of n and m rows of d.
constexpr std::array<std::string_view, 12> kCostUnits = {
    "element", "element",  "FLOP",
    "element", "n log2 n", "element",
    "n^3",     "n log2 n", "log2 n of an element",
    "n m d",   "element",  "call"};
constexpr std::array<std::string_view, 8> kFusesNames = {
    "pointwise", "reduction", "rows", "norms", "epilogue", "draws", "scans", "alone"};
constexpr std::array<std::string_view, 3> kRoleNames = {"main", "either", "aside"};
constexpr std::array<std::string_view, 12> kSignNames = {
    "none",      "wide_table", "accumulates",  "cut_after",       "grows",      "repeats_input",
    "inference", "one_hot",    "strided_scan", "outer_broadcast", "one_column", "then_product"};

// Many rows, in the order of the page.
std::vector<OpKnowledge> joined_parts() {
  std::vector<OpKnowledge> all;
  for (const std::span<const OpKnowledge> part : {moving_ops(), layer_ops(), number_ops()})
    all.insert(all.end(), part.begin(), part.end());
  return all;
}

using Rows = std::unordered_map<std::string_view, const OpKnowledge*>;

const Rows& rows() {
  static const Rows table = [] {
    Rows t;
    for (const OpKnowledge& row : all_op_knowledge()) {
      std::string_view rest = row.names;
      while (!rest.empty()) {
        const size_t end = std::min(rest.find(' '), rest.size());
        t.emplace(rest.substr(0, end), &row);
        rest.remove_prefix(std::min(end + 1, rest.size()));
      }
    }
    return t;
  }();
  return table;
}

const OpKnowledge* row_of(std::string_view base) {
  const auto found = rows().find(base);
  if (found != rows().end()) return found->second;
  // The table of pointwise functions knows the cost of the others.
  const PointwiseRow* row = pointwise_row_of_op(base);
  if (row == nullptr) return nullptr;
  return rows().at(row->cost == PointwiseCost::costly ? "exp" : "add");
}

}  // namespace

std::string_view op_cost_name(OpCost cost) { return kCostNames[static_cast<size_t>(cost)]; }
std::string_view op_fuses_name(OpFuses fuses) { return kFusesNames[static_cast<size_t>(fuses)]; }

std::string_view op_role_name(OpRole role) { return kRoleNames[static_cast<size_t>(role)]; }
std::string_view op_sign_name(OpSign sign) { return kSignNames[static_cast<size_t>(sign)]; }

std::string_view op_cost_unit(OpCost cost) { return kCostUnits[static_cast<size_t>(cost)]; }

std::span<const OpKnowledge> all_op_knowledge() {
  static const std::vector<OpKnowledge> table = joined_parts();
  return table;
}

const OpKnowledge* op_knowledge(std::string_view name) {
  for (const std::string_view prefix : {"aten::", "torchvision::", "quantized::"})
    if (name.starts_with(prefix)) {
      name.remove_prefix(prefix.size());
      break;
    }
  if (const OpKnowledge* row = row_of(name)) return row;
  for (const std::string_view suffix : {"_", "_out", "_backward", "_copy"}) {
    if (!name.ends_with(suffix) || name.size() == suffix.size()) continue;
    if (const OpKnowledge* row = row_of(name.substr(0, name.size() - suffix.size()))) return row;
  }
  return nullptr;
}

}  // namespace epilogue::trace
