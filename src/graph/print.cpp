// SPDX-License-Identifier: Apache-2.0
#include "graph/print.h"

#include <cstdio>

#include "graph/fused_node.h"

namespace epilogue::graph {
std::string number_text(double x) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%g", x);
  return text.data();
}

std::string value_name(int v) { return v == kNoValue ? "none" : "%" + std::to_string(v); }

std::string value_list(const std::vector<int>& values) {
  std::string text;
  for (const int v : values) text += (text.empty() ? "" : ", ") + value_name(v);
  return text;
}

namespace {

struct AttrText {
  std::string operator()(std::monostate) const { return "none"; }
  std::string operator()(bool x) const { return x ? "true" : "false"; }
  std::string operator()(int64_t x) const { return std::to_string(x); }
  std::string operator()(double x) const { return number_text(x); }
  std::string operator()(DType x) const { return std::string(dtype_name(x)); }
  std::string operator()(const Dims& x) const { return to_string(x); }
};

std::string call_text(const OpCall& call) {
  std::string attrs;
  for (const Attr& a : call.attrs)
    attrs += (attrs.empty() ? "; " : ", ") + std::visit(AttrText{}, a);
  return std::string(call.op->name) + "(" + value_list(call.inputs) + attrs + ")";
}

std::string what_text(const Node& node) {
  return node.fused() != nullptr ? node.fused()->text() : call_text(*node.call());
}

std::string leaf_text(const Graph& graph, int v) {
  const Value& value = graph.value(v);
  if (value.kind == ValueKind::input) return "input " + to_text(value);
  if (value.kind == ValueKind::parameter) return "parameter " + to_text(value);
  return "constant " +
         (value.tensor.numel() == 1 ? number_text(value.tensor.item()) : to_text(value));
}

// Leaves in the order of their first read, inputs before them.
std::vector<int> read_leaves(const Graph& graph) {
  std::vector<int> leaves = graph.inputs;
  std::vector<bool> seen(graph.values.size(), false);
  for (const int v : leaves) seen[static_cast<size_t>(v)] = true;
  const auto add = [&](int v) {
    if (graph.value(v).kind == ValueKind::intermediate || seen[static_cast<size_t>(v)]) return;
    seen[static_cast<size_t>(v)] = true;
    leaves.push_back(v);
  };
  for (const Node& node : graph.nodes)
    for (const int v : reads(node)) add(v);
  for (const int v : graph.outputs) add(v);
  return leaves;
}

std::string escaped(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    result += c == '\n' ? std::string("\\l") : std::string(1, c);
  }
  return result;
}

}  // namespace

std::string to_text(const Value& value) {
  return std::string(dtype_name(value.dtype)) + to_string(value.sizes);
}

std::string to_text(const Graph& graph, const Node& node) {
  std::string types;
  for (const int v : node.outputs) types += (types.empty() ? "" : ", ") + to_text(graph.value(v));
  const std::string what = what_text(node);
  const size_t line = what.find('\n');
  const std::string rest = line == std::string::npos ? "" : what.substr(line);
  return value_list(node.outputs) + " = " + what.substr(0, line) + " -> " + types + rest;
}

std::string to_text(const Graph& graph) {
  std::string text;
  for (const int v : read_leaves(graph)) text += value_name(v) + " = " + leaf_text(graph, v) + "\n";
  for (const Node& node : graph.nodes) text += to_text(graph, node) + "\n";
  return text + "return " + value_list(graph.outputs) + "\n";
}

std::string to_dot(const Graph& graph) {
  std::string text = "digraph compiled {\n  node [shape=box, fontname=\"monospace\"];\n";
  const Uses uses(graph);
  const auto source = [&](int v) {
    const int producer = uses.producer(v);
    return producer < 0 ? "v" + std::to_string(v) : "n" + std::to_string(producer);
  };
  for (const int v : read_leaves(graph))
    text += "  v" + std::to_string(v) + " [shape=ellipse, label=\"" +
            escaped(value_name(v) + " " + leaf_text(graph, v)) + "\"];\n";
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const std::string id = "n" + std::to_string(i);
    text += "  " + id + " [label=\"" + escaped(what_text(graph.nodes[i]) + "\n") + "\"];\n";
    for (const int v : reads(graph.nodes[i]))
      text += "  " + source(v) + " -> " + id + " [label=\"" + escaped(to_text(graph.value(v))) +
              "\"];\n";
  }
  for (size_t i = 0; i < graph.outputs.size(); ++i) {
    const std::string id = "out" + std::to_string(i);
    text += "  " + id + " [shape=ellipse, label=\"result " + std::to_string(i) + "\"];\n";
    text += "  " + source(graph.outputs[i]) + " -> " + id + ";\n";
  }
  return text + "}\n";
}

}  // namespace epilogue::graph
