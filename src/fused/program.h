// SPDX-License-Identifier: Apache-2.0
// A pointwise program as a node: one kernel for a chain of pointwise ops and reductions of rows.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/pointwise_program.h"
#include "graph/fused_node.h"

namespace epilogue::fused {

// Inputs broadcast to `sizes`, which its elements have; results are elements, one number per row
// ([..., 1] or [...]) or one per column.
class Program final : public graph::FusedNode {
 public:
  Program(PointwiseProgram the_program, std::vector<int> the_inputs, const Dims& the_sizes)
      : program(std::move(the_program)), inputs(std::move(the_inputs)), sizes(the_sizes) {}

  const OpDef& op() const override;
  std::string label() const override { return "pointwise program"; }
  std::string text() const override;
  std::vector<int> reads() const override { return inputs; }
  std::shared_ptr<const FusedNode> reading(int from, int to) const override;
  void verify(const graph::NodeRules& rules) const override;
  Dims elements(const graph::Graph& graph, const graph::Node& node) const override;
  std::vector<int> written_over(const graph::Graph& graph, const graph::Node& node,
                                size_t result) const override;
  bool takes_any_rows(const graph::Graph& graph, const Dims& model) const override;
  bool is_same_but_rows(const FusedNode& other) const override;
  bool reads_masks(int value) const override;
  std::vector<graph::OperandView> views(const graph::Graph& graph,
                                        const graph::Node& node) const override;
  std::unique_ptr<FusedKernel> make_kernel(const graph::Graph& graph, const graph::Node& node,
                                           const graph::KernelOptions& options) const override;

  PointwiseProgram program;
  std::vector<int> inputs;
  Dims sizes;
};

// That a program over elements of `sizes` is one, and that value `v` is what its output `i` gives.
void verify_output(const graph::NodeRules& rules, int v, const Dims& sizes,
                   const PointwiseProgram& program, size_t i);
// That each of these has a layout in which it broadcasts to `sizes`.
void verify_operands(const graph::NodeRules& rules, const std::vector<int>& values,
                     const Dims& sizes, const std::string& expected);

}  // namespace epilogue::fused
