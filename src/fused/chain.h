// SPDX-License-Identifier: Apache-2.0
// A row chain (core/row_chain.h) as a node: products, norms and programs over blocks of rows.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/row_chain.h"
#include "graph/fused_node.h"

namespace epilogue::fused {

// The norm of a chain's rows; weight and bias are values, or kNoValue.
struct ChainNorm {
  Norm kind = Norm::none;
  double eps = 0;
  int weight = graph::kNoValue;
  int bias = graph::kNoValue;
};

// Weights are parameters [n, k]. Operands are values that broadcast to [rows, n]. `stores` are
// results of the node beside its first: of the rows' sizes, or one row where columns are summed.
using ChainStage = RowChainStage<int>;

class Chain final : public graph::FusedNode {
 public:
  Chain(int rows, ChainNorm the_norm, std::vector<ChainStage> the_stages)
      : x(rows), norm(the_norm), stages(std::move(the_stages)) {}

  const OpDef& op() const override;
  std::string label() const override { return stages.size() == 1 ? "product" : "row chain"; }
  std::string text() const override;
  std::vector<int> reads() const override;
  std::shared_ptr<const FusedNode> reading(int from, int to) const override;
  void verify(const graph::NodeRules& rules) const override;
  std::vector<int> written_over(const graph::Graph& graph, const graph::Node& node,
                                size_t result) const override;
  bool takes_any_rows(const graph::Graph& graph, const Dims& model) const override;
  bool is_same_but_rows(const FusedNode& other) const override;
  bool reads_masks(int value) const override { return value != x; }
  bool is_product() const override { return stages.size() == 1; }
  std::vector<graph::OperandView> views(const graph::Graph& graph,
                                        const graph::Node& node) const override;
  std::unique_ptr<FusedKernel> make_kernel(const graph::Graph& graph, const graph::Node& node,
                                           const graph::KernelOptions& options) const override;

  // The node's results: `result`, then what the stages store.
  std::vector<int> outputs(int result) const;

  int x = graph::kNoValue;  // [..., k]; the leading dimensions are the rows
  ChainNorm norm;
  std::vector<ChainStage> stages;
  bool overlaps = false;  // programs run while the next block's products do
};

}  // namespace epilogue::fused
