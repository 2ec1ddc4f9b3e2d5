// SPDX-License-Identifier: Apache-2.0
#include "core/tensor_impl.h"
#include "graph/graph.h"
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
    if (const Pointwise* pointwise = node.pointwise()) check_pointwise(node, *pointwise);
    if (const Chain* chain = node.chain()) check_chain(node, *chain);
  }

  void require_result(const Node& node, size_t i, const Dims& sizes, DType dtype) const {
    require(i < node.outputs.size(), "as many results as the op has", to_text(graph_, node));
    const Value& value = graph_.value(node.outputs[i]);
    require(value.sizes == sizes && value.dtype == dtype,
            std::string(dtype_name(dtype)) + to_string(sizes) + " by the op's rule",
            to_text(graph_, node));
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
        require_result(node, i, metas[i].sizes, metas[i].dtype);
    } else {
      require(!node.outputs.empty(), "at least one result", to_text(graph_, node));
    }
  }
  // Numbers promote otherwise than tensors do, so constants come as they are.
  static Tensor rule_input(const Value& value) {
    return value.tensor.defined() ? value.tensor : shape_only(value);
  }

  bool repeats() const { return graph_.capabilities.programs_repeat_rows; }

  void check_pointwise(const Node& node, const Pointwise& p) const {
    epilogue::verify(p.program);
    require(p.program.inputs == static_cast<int>(p.inputs.size()) &&
                p.program.outputs.size() == node.outputs.size(),
            "a program that fits its node", to_text(graph_, node));
    for (const int v : p.inputs)
      require(row_layout(graph_.value(v), p.sizes, repeats()).has_value(),
              "inputs that broadcast to the result", to_text(graph_, node));
    for (size_t i = 0; i < node.outputs.size(); ++i)
      require_extent(node, node.outputs[i], p.sizes, p.program, i);
  }

  // Output i of a program over elements of `sizes`.
  void require_extent(const Node& node, int v, const Dims& sizes, const PointwiseProgram& program,
                      size_t i) const {
    const Extent extent = output_extents(program)[i];
    const Dims& have = graph_.value(v).sizes;
    const bool fits = extent == Extent::element ? have == sizes
                      : extent == Extent::row   ? element_count(have) == row_count(sizes)
                                                : element_count(have) == sizes[sizes.rank() - 1];
    require(fits, "results of " + to_string(sizes), to_text(graph_, node));
  }

  void check_chain(const Node& node, const Chain& chain) const {
    require(!chain.stages.empty() && node.outputs == chain_outputs(chain, node.outputs[0]),
            "stages, and what they store as results", to_text(graph_, node));
    const Value& x = graph_.value(chain.x);
    require(x.sizes.rank() > 0 && row_layout(x, x.sizes).has_value(), "rows as input",
            to_text(graph_, node));
    Dims sizes = x.sizes;
    int64_t columns = sizes[sizes.rank() - 1];
    for (const ChainStage& stage : chain.stages) {
      check_weights(node, stage, columns, x.dtype);
      columns = flowing_columns(graph_, stage);
      sizes[sizes.rank() - 1] = graph_.value(stage.weights[0]).sizes[0];
      check_stage(node, stage, sizes);
    }
    require(chain.stages.back().flows == 1, "one result of the last stage", to_text(graph_, node));
    require_result(node, 0, sizes, x.dtype);
  }

  void check_weights(const Node& node, const ChainStage& stage, int64_t columns,
                     DType dtype) const {
    require(!stage.weights.empty(), "a stage with weights", to_text(graph_, node));
    const Value& first = graph_.value(stage.weights[0]);
    int64_t sum = 0;
    for (const int w : stage.weights) {
      const Value& weight = graph_.value(w);
      require(weight.kind == ValueKind::parameter && weight.sizes.rank() == 2 &&
                  weight.sizes[0] == first.sizes[0] && weight.dtype == dtype,
              "weights of one number of rows", to_text(graph_, node));
      require(stage.stacked || weight.sizes[1] == columns,
              "weights [n, " + std::to_string(columns) + "]", to_text(graph_, node));
      sum += weight.sizes[1];
    }
    require(!stage.stacked || sum == columns,
            "stacked weights of " + std::to_string(columns) + " columns", to_text(graph_, node));
  }

  void check_stage(const Node& node, const ChainStage& stage, const Dims& sizes) const {
    const PointwiseProgram& program = stage.epilogue;
    epilogue::verify(program);
    const size_t products = stage.stacked ? 1 : stage.weights.size();
    require(program.inputs == static_cast<int>(products + stage.operands.size()) &&
                program.outputs.size() == static_cast<size_t>(stage.flows) + stage.stores.size(),
            "a program that fits its stage", to_text(graph_, node));
    for (const int v : stage.operands)
      require(row_layout(graph_.value(v), sizes, repeats()).has_value(),
              "operands that broadcast to the result", to_text(graph_, node));
    for (size_t i = 0; i < stage.stores.size(); ++i)
      require_extent(node, stage.stores[i], sizes, program, static_cast<size_t>(stage.flows) + i);
  }

  const Graph& graph_;
  std::vector<bool> known_;
  size_t draws_ = 0;
  int last_drawn_ = -1;  // its value
};

}  // namespace

void verify(const Graph& graph) { Verifier(graph).run(); }

}  // namespace epilogue::graph
