// SPDX-License-Identifier: Apache-2.0
#include "fused/program.h"

#include <algorithm>

#include "core/backend.h"
#include "core/fused_call.h"
#include "graph/print.h"

namespace epilogue::fused {

using graph::FusedNode;
using graph::Graph;
using graph::Node;
using graph::NodeRules;
using graph::OperandView;

namespace {

constinit const OpDef kPointwiseOp{.name = "epilogue::pointwise",
                                   .schema = "(Tensor[] inputs)",
                                   .doc = "a chain of pointwise ops"};

class PlannedProgram final : public FusedKernel {
 public:
  PlannedProgram(std::unique_ptr<ProgramKernel> program, int64_t cols, DType dtype)
      : program_(std::move(program)), cols_(cols), dtype_(dtype) {}

  void run(int64_t rows, std::span<const MatrixView> operands,
           std::span<const MatrixView> results) const override {
    program_->run(rows, cols_, operands, results);
  }
  KernelInfo info(int64_t rows, std::string_view ops) const override {
    KernelInfo info;
    info.name = fused_kernel_name(program_->kernel_prefix(), "fused", ops, dtype_);
    info.block = {rows, cols_, 1};
    info.threads = program_->threads(rows, cols_);
    return info;
  }
  std::string describe(int64_t /*rows*/) const override {
    return program_->kernel_prefix() + "_fused";
  }

 private:
  std::unique_ptr<ProgramKernel> program_;
  int64_t cols_;
  DType dtype_;
};

int64_t columns(const Dims& sizes) { return sizes[sizes.rank() - 1]; }

}  // namespace

const OpDef& Program::op() const { return kPointwiseOp; }

std::string Program::text() const {
  return "pointwise(" + graph::value_list(inputs) + "): " + to_string(program);
}

std::shared_ptr<const FusedNode> Program::reading(int from, int to) const {
  auto copy = std::make_shared<Program>(*this);
  std::ranges::replace(copy->inputs, from, to);
  return copy;
}

void verify_output(const NodeRules& rules, int v, const Dims& sizes,
                   const PointwiseProgram& program, size_t i) {
  const Extent extent = output_extents(program)[i];
  const Dims& have = rules.graph.value(v).sizes;
  const bool fits = extent == Extent::element ? have == sizes
                    : extent == Extent::row   ? element_count(have) == graph::row_count(sizes)
                                              : element_count(have) == columns(sizes);
  rules.require(fits, "results of " + to_string(sizes));
}

void verify_operands(const NodeRules& rules, const std::vector<int>& values, const Dims& sizes,
                     const std::string& expected) {
  const bool repeats = rules.graph.capabilities.programs_repeat_rows;
  for (const int v : values)
    rules.require(graph::row_layout(rules.graph.value(v), sizes, repeats).has_value(), expected);
}

void Program::verify(const NodeRules& rules) const {
  epilogue::verify(program);
  rules.require(program.inputs == static_cast<int>(inputs.size()) &&
                    program.outputs.size() == rules.node.outputs.size(),
                "a program that fits its node");
  verify_operands(rules, inputs, sizes, "inputs that broadcast to the result");
  for (size_t i = 0; i < rules.node.outputs.size(); ++i)
    verify_output(rules, rules.node.outputs[i], sizes, program, i);
}

Dims Program::elements(const Graph& /*graph*/, const Node& /*node*/) const { return sizes; }

// A reduced result is written before all of its like was read.
std::vector<int> Program::written_over(const Graph& graph, const Node& node, size_t result) const {
  return graph.value(node.outputs[result]).sizes == sizes ? inputs : std::vector<int>();
}

bool Program::takes_any_rows(const Graph& graph, const Dims& model) const {
  return graph::same_leading(sizes, model) &&
         std::ranges::all_of(inputs, [&](int v) { return graph::serves_any_rows(graph, v); });
}

bool Program::is_same_but_rows(const FusedNode& other) const {
  const auto* const o = dynamic_cast<const Program*>(&other);
  return o != nullptr && program == o->program && columns(sizes) == columns(o->sizes);
}

bool Program::reads_masks(int /*value*/) const { return true; }

std::vector<OperandView> Program::views(const Graph& graph, const Node& node) const {
  std::vector<OperandView> list;
  for (const int v : inputs) list.push_back(graph::view_of(graph, v, sizes));
  const std::vector<Extent> extent = output_extents(program);
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    MatrixView& view = list.emplace_back(graph::view_of(graph, node.outputs[i],
                                                        graph.value(node.outputs[i]).sizes))
                           .view;
    // One number per row, one after the other, whatever their sizes are.
    if (extent[i] == Extent::row) view.row_stride = view.col_stride = 1;
  }
  return list;
}

std::unique_ptr<FusedKernel> Program::make_kernel(const Graph& graph, const Node& node,
                                                  const graph::KernelOptions& /*options*/) const {
  return std::make_unique<PlannedProgram>(backend_of(graph.device).make_program(program),
                                          columns(sizes), graph.value(node.outputs[0]).dtype);
}

}  // namespace epilogue::fused
