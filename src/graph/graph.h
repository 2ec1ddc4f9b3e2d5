// SPDX-License-Identifier: Apache-2.0
// The graph that compile() works on: values, and nodes in the order in which they run.
//
// Capture makes nodes of ops. Passes replace them by fused nodes (graph/fused_node.h). Everything a
// node reads stands before it.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <variant>
#include <vector>

#include "core/capabilities.h"
#include "core/matrix_view.h"
#include "core/op.h"

namespace epilogue::graph {

// input: an argument of the call. parameter: a tensor that capture met, read anew at every call
// (weights may be written). constant: a number that never changes.
enum class ValueKind : uint8_t { input, parameter, constant, intermediate };

inline constexpr int kNoValue = -1;  // an absent optional argument

struct Value {
  ValueKind kind = ValueKind::intermediate;
  Dims sizes;
  Dims strides;
  DType dtype = DType::f32;
  Tensor tensor;  // of parameters and constants
};

// An op as eager runs it. One that writes in place writes its result, and its first input is absent
// (OpDef::overwrites): nodes change no values.
struct OpCall {
  const OpDef* op = nullptr;
  std::vector<Attr> attrs;
  std::vector<int> inputs;  // values; kNoValue: undefined
};

class FusedNode;

struct Node {
  std::variant<OpCall, std::shared_ptr<const FusedNode>> what;
  std::vector<int> outputs;                // values; several for ops such as native_layer_norm
  std::vector<std::string_view> replaces;  // the ATen ops that it stands for, in their order
  double flops = 0;                        // of those ops
  double eager_bytes = 0;                  // what they would move, one by one
  bool is_backward = false;                // see mark_backward()

  const OpCall* call() const { return std::get_if<OpCall>(&what); }
  const FusedNode* fused() const {
    const auto* const fused = std::get_if<std::shared_ptr<const FusedNode>>(&what);
    return fused != nullptr ? fused->get() : nullptr;
  }
  // The pattern, if the node is one of that class; for passes, which form them.
  template <class Pattern>
  const Pattern* as() const {
    return dynamic_cast<const Pattern*>(fused());
  }
};

// A parameter that is a cast of another one: written before a call where that one was.
struct Cast {
  Cast(Tensor source, Tensor result) : from(std::move(source)), to(std::move(result)) {}
  // Writes it where `from` was written since. Thread-safe.
  void refresh();

  const Tensor from;
  const Tensor to;

 private:
  std::mutex writing_;
  std::atomic<int64_t> made_of_{-1};  // the version of `from`
};

struct Graph {
  std::vector<Value> values;
  std::vector<Node> nodes;
  std::vector<int> inputs;
  std::vector<int> outputs;
  std::vector<std::shared_ptr<Cast>> casts;  // shared by all who hold the parameters
  // How many nodes draw random numbers. What they draw depends on all that was drawn before, so
  // that passes keep each of them, once and in the order of the capture, whether it is read or not.
  size_t draws = 0;
  Device device;              // of everything but numbers
  Capabilities capabilities;  // of the fused kernels there, when it was captured

  Value& value(int v) { return values[static_cast<size_t>(v)]; }
  const Value& value(int v) const { return values[static_cast<size_t>(v)]; }
  int add_value(Value v) {
    values.push_back(std::move(v));
    return static_cast<int>(values.size()) - 1;
  }
};

// Whether it takes numbers from the generator: two such nodes make different values.
bool is_draw(const Node& node);

// The values that a node reads, in order, once per use; absent arguments are left out.
std::vector<int> reads(const Node& node);

// Lets the node read `to` wherever it reads `from`.
void replace_reads(Node& node, int from, int to);

// Nodes that the first `results` results do not need belong to the backward pass: what they read of
// the others is saved for them. Gradients draw nothing, so that draws belong to the forward pass.
void mark_backward(Graph& graph, size_t results);

// Who makes and who reads each value. Out of date as soon as a node changes.
class Uses {
 public:
  explicit Uses(const Graph& graph);
  // Index of the node that makes a value; -1 for leaves.
  int producer(int value) const { return producers_[static_cast<size_t>(value)]; }
  // Reads by nodes, plus one for each time it is a result of the graph.
  int count(int value) const { return counts_[static_cast<size_t>(value)]; }
  bool is_single(int value) const { return count(value) == 1; }

 private:
  std::vector<int> producers_;
  std::vector<int> counts_;
};

// Removes nodes for which `dead[index]` is true.
void erase_nodes(Graph& graph, const std::vector<bool>& dead);

// Moves nodes behind those that make what they read; others keep their order. There is no cycle.
void sort_nodes(Graph& graph);

// A tensor of these sizes whose memory must not be touched: for shape rules.
Tensor shape_only(const Value& value);

// Whether a value is a leaf that the function itself holds: no input, nothing that a node makes.
inline bool is_leaf(const Value& value) {
  return value.kind == ValueKind::parameter || value.kind == ValueKind::constant;
}

// Bytes of all elements once.
double value_bytes(const Value& value);

// Throws Error where a node reads what is not there yet, names a value that does not exist, two
// nodes make one value, or a shape is not what the op's own rule gives.
void verify(const Graph& graph);

// A value's rows as a matrix that broadcasts to `sizes` ([..., n]); nullopt where its strides or
// sizes do not allow that. Dimensions of size 1 broadcast in leaves that stay the same from call to
// call, so that they fit any number of rows. With `repeats` a value of any rank that broadcasts has
// a layout, if kRowLevels levels say where its rows lie.
struct RowLayout {
  int64_t row_stride = 0;
  int64_t col_stride = 0;
  std::array<RowLevel, kRowLevels> levels = {};
};
std::optional<RowLayout> row_layout(const Value& value, const Dims& sizes, bool repeats = false);

// The product of all sizes but the last.
int64_t row_count(const Dims& sizes);
// Whether all sizes but the last are the same.
bool same_leading(const Dims& a, const Dims& b);

}  // namespace epilogue::graph
