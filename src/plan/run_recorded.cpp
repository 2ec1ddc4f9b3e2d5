// SPDX-License-Identifier: Apache-2.0
#include "plan/run_recorded.h"

#include "autograd/node.h"
#include "epilogue/autograd.h"
#include "epilogue/ops.h"

namespace epilogue::plan {
namespace {

// Lends the node its name. `saves` anything: a graph is walked once.
constinit const OpDef kCompiledOp{.name = "epilogue::compiled",
                                  .schema = "(Tensor[] inputs)",
                                  .doc = "a compiled function",
                                  .saves = save_input(0)};

// The backward plan as a rule: of the saved tensors the first `count` are its inputs; the others
// are parameters, which it reads itself.
GradientRule rule_of(const std::shared_ptr<Plan>& plan, size_t count, size_t leaves) {
  return [plan, count, leaves](const GradCall& call) {
    if (grad_enabled())
      throw Error(
          "[compile] expected no create_graph: compiled functions have no second derivative");
    std::vector<Tensor> in = {call.dout.is_contiguous() ? call.dout : contiguous(call.dout)};
    in.insert(in.end(), call.in.begin(), call.in.begin() + static_cast<std::ptrdiff_t>(count));
    Gradients gradients(leaves);
    plan->run(in, gradients);
    return gradients;
  };
}

}  // namespace

Tensor run_recorded(const Entry& entry, std::span<const Tensor> in) {
  const NoGrad no_grad;
  std::vector<Tensor> results(entry.plan().graph().outputs.size());
  entry.plan().run(in, results);
  std::vector<Tensor> saved;
  for (const int i : entry.backward_inputs()) saved.push_back(in[static_cast<size_t>(i)]);
  saved.insert(saved.end(), results.begin() + 1, results.end());
  const size_t count = saved.size();
  const graph::Graph& backward = entry.backward_plan()->graph();
  for (const graph::Node& node : backward.nodes)
    for (const int v : graph::reads(node))
      if (backward.value(v).kind == graph::ValueKind::parameter)
        saved.push_back(backward.value(v).tensor);
  for (const std::shared_ptr<graph::Cast>& cast : backward.casts) saved.push_back(cast->from);
  std::vector<Tensor> leaves;
  for (const Leaf& leaf : entry.leaves()) leaves.push_back(leaf.of(in));
  // The result may be an input, a parameter or saved: it gets a place in the graph of its own.
  const Tensor result = results[0].detach();
  record_function(kCompiledOp, leaves, saved, result,
                  rule_of(entry.backward_plan(), count, leaves.size()));
  return result;
}

}  // namespace epilogue::plan
