// SPDX-License-Identifier: Apache-2.0
#include "plan/gradient_capture.h"

#include <algorithm>

#include "autograd/node.h"
#include "epilogue/autograd.h"

namespace epilogue::plan {
namespace {

// The inputs as leaves of their own: what stands before them is no part of the graph.
std::vector<Tensor> own_leaves(std::span<const Tensor> inputs) {
  std::vector<Tensor> own;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Tensor& t = inputs[i];
    if (!t.defined()) throw Error("[compile] expected defined inputs, got an undefined one");
    size_t same = 0;
    while (!inputs[same].is_same(t)) ++same;
    Tensor leaf = same < i ? own[same] : t.detach();
    if (t.requires_grad()) leaf.set_requires_grad(true);
    own.push_back(std::move(leaf));
  }
  return own;
}

Leaf leaf_of(const Tensor& t, std::span<const Tensor> inputs) {
  for (size_t i = 0; i < inputs.size(); ++i)
    if (inputs[i].is_same(t)) return {static_cast<int>(i), {}};
  return {-1, t};
}

// The gradients of `result`, weighted by `seed`, behind the results; who they belong to.
std::vector<Leaf> append_gradients(std::vector<Tensor>& results, const Tensor& seed,
                                   std::span<const Tensor> inputs) {
  const Tensor of = results[0];
  const std::vector<Tensor> leaves = reachable_leaves({&of, 1});
  const std::vector<Tensor> gradients = grad({&of, 1}, leaves, {&seed, 1});
  std::vector<Leaf> belong;
  for (size_t i = 0; i < leaves.size(); ++i) {
    if (!gradients[i].defined()) continue;
    results.push_back(gradients[i]);
    belong.push_back(leaf_of(leaves[i], inputs));
  }
  return belong;
}

// A tensor with a past of its own: what stands before it would be walked, not captured.
void require_leaves(const graph::Graph& graph) {
  for (const graph::Value& value : graph.values)
    if (value.kind == graph::ValueKind::parameter && value.tensor.requires_grad() &&
        !value.tensor.is_leaf())
      throw Error(
          "[compile] expected a function whose tensors are leaves, got one that holds the result "
          "of an op, " +
          to_string(value.tensor));
}

// The tensor that capture met as a parameter becomes the graph's last input.
void make_last_input(graph::Graph& graph, const Tensor& seed) {
  const auto known = std::find_if(graph.values.begin(), graph.values.end(), [&](const auto& v) {
    return v.tensor.defined() && v.tensor.is_same(seed);
  });
  auto v = static_cast<int>(known - graph.values.begin());
  if (known == graph.values.end())
    v = graph.add_value({graph::ValueKind::input, seed.sizes(), seed.strides(), seed.dtype(), {}});
  graph.value(v).kind = graph::ValueKind::input;
  graph.value(v).tensor = {};
  graph.inputs.push_back(v);
}

}  // namespace

Captured capture_step(const StepFunction& function, std::span<const Tensor> inputs) {
  for (const Tensor& t : inputs)
    if (t.defined() && t.requires_grad() && !t.is_leaf())
      throw Error("[compile_step] expected leaves as inputs, got the result of an op, " +
                  to_string(t) + ": its gradient would have to go on");
  Captured captured;
  const auto step = [&](std::span<const Tensor> in) {
    const GradMode gradients_on(true);
    std::vector<Tensor> results = function(in);
    if (results.empty() || !results[0].defined())
      throw Error("[compile_step] expected a loss, got an undefined tensor");
    captured.forward_results = results.size();
    captured.leaves = append_gradients(results, {}, in);
    return results;
  };
  captured.graph = graph::capture(step, own_leaves(inputs));
  require_leaves(captured.graph);
  return captured;
}

Captured capture_function(const graph::Function& function, std::span<const Tensor> inputs) {
  Captured captured;
  captured.grad_mode = true;
  Tensor seed;
  const auto call = [&](std::span<const Tensor> in) {
    const GradMode gradients_on(true);
    std::vector<Tensor> results = function(in);
    const bool wanted = std::any_of(results.begin(), results.end(), [](const Tensor& t) {
      return t.defined() && t.requires_grad();
    });
    if (!wanted) return results;
    if (results.size() != 1)
      throw Error("[compile] expected one result where gradients are wanted, got " +
                  std::to_string(results.size()));
    seed = empty_like(results[0]);
    captured.leaves = append_gradients(results, seed, in);
    return results;
  };
  captured.graph = graph::capture(call, own_leaves(inputs));
  require_leaves(captured.graph);
  if (!seed.defined()) return captured;
  captured.forward_results = 1;
  captured.runs_backward_later = true;
  make_last_input(captured.graph, seed);
  return captured;
}

}  // namespace epilogue::plan
