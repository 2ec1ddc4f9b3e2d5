// SPDX-License-Identifier: Apache-2.0
#include "passes/chain_stages.h"

#include <algorithm>

#include "base/units.h"
#include "passes/cost_model.h"
#include "passes/product.h"

namespace epilogue::passes {

using fused::Chain;
using fused::ChainStage;
using graph::Graph;
using graph::Node;
using graph::Value;

namespace {

bool contains(const std::vector<int>& list, int v) {
  return std::find(list.begin(), list.end(), v) != list.end();
}

Members members_of(const Extension& e) {
  Members members = {e.first};
  members.insert(members.end(), e.others.begin(), e.others.end());
  return members;
}

}  // namespace

std::string reason_against(const Graph& graph, const Extension& e) {
  const Node& first = graph.nodes[e.first];
  const std::vector<int> made = last_program(first).results;
  for (const int v : e.flows)
    if (!contains(made, v)) return "the second reads what an earlier stage stores";
  for (const ChainStage& stage : e.stages)
    for (const int v : stage.operands)
      if (contains(first.outputs, v)) return "the second reads what lies between twice";
  if (!may_be_one(graph, members_of(e)))
    return "an op between them reads the result of one and makes an operand of the other";
  const size_t results = std::max(e.flows.size(), results_needed(graph, members_of(e)).size());
  if (std::string reason = reason_against_results(graph, results); !reason.empty()) return reason;
  const Value& value = graph.value(e.flows[0]);
  const int64_t block = kKernelBlockRows * value.sizes[value.sizes.rank() - 1] *
                        static_cast<int64_t>(e.flows.size() * dtype_bytes(value.dtype));
  if (block > kHiddenBlockBytes)
    return "a block of " + std::to_string(kKernelBlockRows) + " hidden rows takes " +
           format_bytes(static_cast<double>(block)) + " of L2, more than " +
           format_bytes(static_cast<double>(kHiddenBlockBytes));
  return "";
}

void extend_chain(Graph& graph, const Extension& e) {
  const Members members = members_of(e);
  const std::vector<int> needed = results_needed(graph, members);
  const Node& first = graph.nodes[e.first];
  Chain chain = *first.as<Chain>();
  ChainStage& stage = chain.stages.back();
  const BoundProgram last = last_program(first);
  const auto place_of = [&](int v) {
    const auto at = std::find(last.results.begin(), last.results.end(), v) - last.results.begin();
    return last.program.outputs[static_cast<size_t>(at)];
  };
  stage.epilogue.outputs.clear();
  stage.stores.clear();
  stage.flows = static_cast<int>(e.flows.size());
  for (const int v : e.flows) stage.epilogue.outputs.push_back(place_of(v));
  for (const int v : last.results) {
    if (!contains(needed, v)) continue;
    stage.epilogue.outputs.push_back(place_of(v));
    stage.stores.push_back(v);
  }
  chain.stages.insert(chain.stages.end(), e.stages.begin(), e.stages.end());
  Node fused;
  fused.outputs = chain.outputs(e.result);
  fused.what = std::make_shared<Chain>(std::move(chain));
  replace_nodes(graph, members, std::move(fused));
}

}  // namespace epilogue::passes
