// SPDX-License-Identifier: Apache-2.0
#include "core/tensor_impl.h"
#include "graph/fused_node.h"
#include "graph/print.h"

namespace epilogue::graph {
namespace {

class Verifier {
 public:
  explicit Verifier(const Graph& graph) : graph_(graph), known_(graph.values.size(), false) {}

  void run() {
    for (size_t v = 0; v < graph_.values.size(); ++v) {
      const Value& value = graph_.values[v];
      const bool has_tensor =
          value.kind == ValueKind::parameter || value.kind == ValueKind::constant;
      require(value.tensor.defined() == has_tensor, "tensors of parameters and constants alone",
              name(static_cast<int>(v)));
      known_[v] = has_tensor;
    }
    for (const int v : graph_.inputs) {
      require_exists(v);
      require(graph_.value(v).kind == ValueKind::input, "inputs of kind input", name(v));
      known_[static_cast<size_t>(v)] = true;
    }
    for (const Node& node : graph_.nodes) check(node);
    for (const int v : graph_.outputs) require_known(v);
    require(draws_ == graph_.draws, std::to_string(graph_.draws) + " draws of random numbers",
            std::to_string(draws_));
  }

 private:
  static std::string name(int v) { return "%" + std::to_string(v); }
  static void require(bool condition, const std::string& expected, const std::string& got) {
    if (!condition) throw Error("[graph] expected " + expected + ", got " + got);
  }
  void require_exists(int v) const {
    require(v >= 0 && static_cast<size_t>(v) < graph_.values.size(), "values that exist", name(v));
  }
  void require_known(int v) const {
    require_exists(v);
    require(known_[static_cast<size_t>(v)], "values that were computed before", name(v));
  }

  void check(const Node& node) {
    for (const int v : reads(node)) require_known(v);
    for (const int v : node.outputs) {
      require_exists(v);
      require(graph_.value(v).kind == ValueKind::intermediate && !known_[static_cast<size_t>(v)],
              "each value to be made once", name(v));
      known_[static_cast<size_t>(v)] = true;
    }
    if (const OpCall* call = node.call()) check_call(node, *call);
    if (is_draw(node)) check_draw(node);
    if (const FusedNode* fused = node.fused()) fused->verify(NodeRules(graph_, node));
  }

  // Capture numbers values in the order of their nodes, and nobody makes a draw's value anew.
  void check_draw(const Node& node) {
    require(!node.is_backward, "draws in the forward pass", to_text(graph_, node));
    require(node.outputs[0] > last_drawn_, "draws in the order of the capture",
            to_text(graph_, node));
    last_drawn_ = node.outputs[0];
    ++draws_;
  }

  // It writes its result, of which nothing is there before.
  void check_overwriting(const Node& node, const OpCall& call) const {
    require(call.op->overwrites && !call.inputs.empty() && call.inputs[0] == kNoValue,
            "in-place ops that read nothing of what they write", to_text(graph_, node));
    const Value& made = graph_.value(node.outputs[0]);
    require(node.outputs.size() == 1 && detail::strides_are_contiguous(made.sizes, made.strides),
            "one result without gaps", to_text(graph_, node));
  }

  void check_call(const Node& node, const OpCall& call) const {
    if (call.op->kind == OpKind::inplace) return check_overwriting(node, call);
    if (call.op->infer != nullptr && call.op->kind == OpKind::compute) {
      std::vector<Tensor> in;
      in.reserve(call.inputs.size());
      for (const int v : call.inputs)
        in.push_back(v == kNoValue ? Tensor() : rule_input(graph_.value(v)));
      const OutMetas metas = call.op->infer(Call{*call.op, in, call.attrs, {}});
      require(node.outputs.size() == metas.size(), "as many results as the op has",
              to_text(graph_, node));
      for (size_t i = 0; i < metas.size(); ++i)
        NodeRules(graph_, node).require_result(i, metas[i].sizes, metas[i].dtype);
    } else {
      require(!node.outputs.empty(), "at least one result", to_text(graph_, node));
    }
  }
  // Numbers promote otherwise than tensors do, so constants come as they are.
  static Tensor rule_input(const Value& value) {
    return value.tensor.defined() ? value.tensor : shape_only(value);
  }

  const Graph& graph_;
  std::vector<bool> known_;
  size_t draws_ = 0;
  int last_drawn_ = -1;  // its value
};

}  // namespace

void verify(const Graph& graph) { Verifier(graph).run(); }

}  // namespace epilogue::graph
