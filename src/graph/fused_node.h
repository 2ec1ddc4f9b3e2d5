// SPDX-License-Identifier: Apache-2.0
// FusedNode: a node that stands for several ops. Each pattern is a class (src/fused, or the file of
// the pass that forms it); graph, plan and memory know this interface alone.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/fused_kernel.h"
#include "epilogue/fusion_choices.h"
#include "graph/graph.h"

namespace epilogue::graph {

// An operand or a result of a fused kernel: a value, and how its rows lie.
struct OperandView {
  int value = kNoValue;
  MatrixView view;  // without its data
};

// What every plan of the node's graph wants of its kernels.
struct KernelOptions {
  Quantisation bits = {};
};

// What verify() holds a node to. Each throws Error with the node's text.
class NodeRules {
 public:
  NodeRules(const Graph& the_graph, const Node& the_node) : graph(the_graph), node(the_node) {}
  void require(bool condition, const std::string& expected) const;
  // Result i of the node.
  void require_result(size_t i, const Dims& sizes, DType dtype) const;

  const Graph& graph;
  const Node& node;
};

// Never changes: copies of a graph share it. What it says of results, it is given the node for.
class FusedNode {
 public:
  virtual ~FusedNode() = default;

  // What the profiler calls it: "epilogue::row_chain".
  virtual const OpDef& op() const = 0;
  // What notes call it: "product".
  virtual std::string label() const = 0;
  // As a graph's text shows it; further lines begin with a newline and are indented.
  virtual std::string text() const = 0;

  // The values that it reads, in order, once per use.
  virtual std::vector<int> reads() const = 0;
  // The same, reading `to` wherever it reads `from`.
  virtual std::shared_ptr<const FusedNode> reading(int from, int to) const = 0;
  // Shapes and dtypes of what it reads and of its results.
  virtual void verify(const NodeRules& rules) const = 0;

  // Sizes of what its kernel works on, whose leading dimensions are its rows: the first result, or
  // what that was reduced from.
  virtual Dims elements(const Graph& graph, const Node& node) const;
  // Bytes that its kernel moves, each operand once; what is no leaf grows with the rows.
  virtual double moved_bytes(const Graph& graph, const Node& node, double rows_scale) const;

  // Values that it reads element by element, tile by tile, just before it writes the same elements
  // of this result: the result may take their memory.
  virtual std::vector<int> written_over(const Graph& /*graph*/, const Node& /*node*/,
                                        size_t /*result*/) const {
    return {};
  }
  // Whether it holds for any number of rows, if what it reads has the leading sizes of `model`.
  virtual bool takes_any_rows(const Graph& /*graph*/, const Dims& /*model*/) const { return false; }
  // Whether a node of another capture, which reads the same, is this one but for its rows.
  virtual bool is_same_but_rows(const FusedNode& /*other*/) const { return false; }
  // Whether nothing but programs reads this value there, which take bytes as 0 and 1.
  virtual bool reads_masks(int /*value*/) const { return false; }
  // Whether it is one product with weights: its time is its operations'.
  virtual bool is_product() const { return false; }

  // Operands in the order in which its kernel gets them, then the node's results.
  virtual std::vector<OperandView> views(const Graph& graph, const Node& node) const = 0;
  virtual std::unique_ptr<FusedKernel> make_kernel(const Graph& graph, const Node& node,
                                                   const KernelOptions& options) const = 0;
};

// A value that broadcasts to `sizes`, which row_layout() has a layout for.
OperandView view_of(const Graph& graph, int value, const Dims& sizes);

// Whether a value is no leaf, or a leaf of one row that any rows share.
bool serves_any_rows(const Graph& graph, int value);

}  // namespace epilogue::graph
