// SPDX-License-Identifier: Apache-2.0
// Node: one recorded op; GradMeta: what a tensor knows of its graph.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/op.h"

namespace epilogue {

struct Node;

// A tensor kept for the gradient rule, with the version that it had. A result of the op itself is
// kept without its place in the graph (the node would own itself) and gets it back on use.
struct SavedTensor {
  Tensor tensor;
  uint32_t version = 0;
  bool is_result = false;
};

// A gradient rule that is known at run time only; its call's `in` are the saved tensors.
using GradientRule = std::function<Gradients(const GradCall&)>;

// `op` is null for the node that accumulates into a leaf.
struct Node {
  const OpDef* op = nullptr;
  int64_t sequence_nr = 0;
  uint64_t thread_id = 0;
  std::vector<std::shared_ptr<Node>> next;  // one per input; null where no gradient is wanted
  std::vector<OutMeta> in_meta;
  OutMeta out_meta;
  std::vector<Attr> attrs;
  std::vector<SavedTensor> saved_in;
  std::vector<SavedTensor> saved_out;
  bool released = false;
  Tensor leaf;        // accumulate nodes
  GradientRule rule;  // in place of the op's, where there is one

  Node() = default;
  ~Node();
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;
};

struct GradMeta final : detail::AutogradMeta {
  Tensor grad;
  std::shared_ptr<Node> grad_fn;    // null for leaves
  std::weak_ptr<Node> accumulator;  // of a leaf; owned by the nodes that lead to it

  bool is_leaf() const override { return grad_fn == nullptr; }
  std::string grad_fn_name() const override;
};

// The meta of a tensor, made when it has none.
GradMeta& grad_meta(const Tensor& t);
const GradMeta* find_grad_meta(const Tensor& t);

// Where a gradient for t goes: its grad_fn, or a leaf's accumulator; null if t needs none.
std::shared_ptr<Node> gradient_edge(const Tensor& t);

// Makes `result`, a tensor outside the graph, what `op` gives for `inputs`; the rule gets `saved`,
// checked for in-place writes since, and gives a gradient per input. `op` lends its name.
void record_function(const OpDef& op, std::span<const Tensor> inputs, std::span<const Tensor> saved,
                     const Tensor& result, GradientRule rule);

// Adds a gradient to a leaf's .grad, as backward() does.
void accumulate_gradient(const Tensor& leaf, Tensor gradient);

// The leaves that backward() of `outputs` would reach, each once.
std::vector<Tensor> reachable_leaves(std::span<const Tensor> outputs);

// "aten::_to_copy" -> "ToCopyBackward0"; "torch::autograd::AccumulateGrad" for leaves.
std::string node_name(const Node& node);

// A tensor over the same data, outside the graph.
Tensor detached(const Tensor& t);

}  // namespace epilogue
