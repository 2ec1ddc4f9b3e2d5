// SPDX-License-Identifier: Apache-2.0
//   forward:   x -> product -> g -> gelu -> a -> ...          x -> product -> g -> gelu -> a -> ...
//   backward:  g, a -> ...                          becomes   g -> gelu -> a' ; g, a' -> ...
// What the backward pass reads of the forward pass is saved, or computed again from what is saved
// anyway: then nobody has to keep it, and where it joins a product's program it costs no memory
// traffic at all.
#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "base/units.h"
#include "graph/fused_node.h"
#include "ops/ops.h"
#include "passes/cost_model.h"
#include "passes/pipeline.h"
#include "passes/product.h"

namespace epilogue::passes {
namespace {

using graph::Graph;
using graph::Node;
using graph::OpCall;
using graph::Uses;

enum class Work { view, pointwise, norm, product, other };

Work work_of(const Graph& graph, const Node& node) {
  if (node.fused() != nullptr && node.fused()->is_product()) return Work::product;
  std::string reason;
  if (program_of(graph, node, reason)) return Work::pointwise;
  const OpCall* call = node.call();
  if (call == nullptr) return Work::other;
  if (call->op->kind == OpKind::view) return Work::view;
  return call->op == &kFusedRmsNorm || call->op == &kNativeLayerNorm ? Work::norm : Work::other;
}

// How a value is made again.
struct Recipe {
  std::map<size_t, int> nodes;  // forward nodes, with the products one after another up to them
  double ns = 0;                // beside what is made again for others
};

class Decisions {
 public:
  Decisions(Graph& graph, PassContext& context)
      : graph_(graph), context_(context), uses_(graph), is_read_(graph.values.size(), false) {
    has_products_ = std::ranges::any_of(graph_.nodes, [](const Node& node) {
      return node.fused() != nullptr && node.fused()->is_product();
    });
    for (const Node& node : graph_.nodes)
      if (node.is_backward)
        for (const int v : graph::reads(node)) is_read_[static_cast<size_t>(v)] = true;
  }

  // In the forward nodes' order: what a value is made of was decided before it.
  void decide() {
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      const Node& node = graph_.nodes[i];
      if (node.is_backward) continue;
      for (const int v : node.outputs)
        if (is_read_[static_cast<size_t>(v)]) decide(v, i);
    }
  }

  // The forward nodes that the backward pass runs again.
  bool is_again(size_t node) const { return again_.contains(node); }
  bool is_made_again(int v) const {
    const int producer = uses_.producer(v);
    return producer >= 0 && is_again(static_cast<size_t>(producer)) && !kept_.contains(v);
  }

 private:
  void decide(int v, size_t producer) {
    Recipe recipe;
    const bool can_be_made = collect(v, recipe).has_value();
    const std::string reason =
        can_be_made ? reason_to_save(v, recipe) : "what it is made of is not saved";
    if (reason.empty()) {
      for (const auto& [index, products] : recipe.nodes) again_.insert(index);
    } else {
      kept_.insert(v);
    }
    const Node& node = graph_.nodes[producer];
    if (work_of(graph_, node) == Work::other || (can_be_made && recipe.ns == 0)) return;
    const std::string what = label(graph_, node) + " again in the backward pass";
    const double bytes = graph::value_bytes(graph_.value(v));
    if (reason.empty()) {
      context_.did(what + ", " + format_bytes(bytes) + " not saved", 2 * bytes, 0);
    } else {
      context_.declined(what, reason);
    }
  }

  // Whether a product of the backward pass reads it, and none has a program to make it in.
  bool feeds_eager_product(int v) const {
    for (const Node& node : graph_.nodes) {
      if (!node.is_backward || node.call() == nullptr) continue;
      const std::vector<int> read = graph::reads(node);
      if (std::ranges::find(read, v) == read.end()) continue;
      const OpDef* const op = node.call()->op;
      if (op == &kMm || op == &kAddmm || op == &kBmm) return true;
      if (op->kind == OpKind::view && feeds_eager_product(node.outputs[0])) return true;
    }
    return false;
  }

  std::string reason_to_save(int v, const Recipe& recipe) const {
    const Saved saved = context_.options().saved;
    if (recipe.ns == 0 || saved == Saved::recompute) return "";  // views cost nothing
    if (saved == Saved::save) return "not asked for";
    if (!has_products_ && feeds_eager_product(v))
      return "a product reads it as eager's do: a kernel would make it";
    const double bytes = graph::value_bytes(graph_.value(v));
    const double save_ns =
        2 * bytes / (bytes <= kCachedBytes ? kCachedBytesPerNs : kMemoryBytesPerNs);
    if (recipe.ns <= save_ns) return "";
    return "it takes " + format_duration_ns(recipe.ns) + ", saving it " +
           format_duration_ns(save_ns);
  }

  // Adds what makes v in the backward pass, and says how many products stand one after another in
  // it. nullopt where it needs what is not there, or more than one.
  std::optional<int> collect(int v, Recipe& recipe) const {
    const int producer = uses_.producer(v);
    if (producer < 0 || kept_.contains(v)) return 0;
    const auto index = static_cast<size_t>(producer);
    // What was drawn cannot be drawn again, and lies in memory: the backward pass reads it there.
    if (graph::is_draw(graph_.nodes[index])) return 0;
    if (const auto known = recipe.nodes.find(index); known != recipe.nodes.end())
      return known->second;
    const Node& node = graph_.nodes[index];
    const Work work = work_of(graph_, node);
    if (work == Work::other) return std::nullopt;
    int products = 0;
    for (const int input : graph::reads(node)) {
      const std::optional<int> before = collect(input, recipe);
      if (!before) return std::nullopt;
      products = std::max(products, *before);
    }
    if (work == Work::product && ++products > 1) return std::nullopt;
    recipe.nodes[index] = products;
    if (!is_again(index))
      recipe.ns += work == Work::product ? kLaunchNs + node.flops / kProductFlopsPerNs
                                         : node.flops / kPointwiseFlopsPerNs;
    return products;
  }

  Graph& graph_;
  PassContext& context_;
  Uses uses_;
  std::vector<bool> is_read_;  // by the backward pass
  bool has_products_ = false;  // products with programs
  std::set<int> kept_;
  std::set<size_t> again_;
};

// Copies of the nodes that run again, each before the first backward node that needs it.
class Copier {
 public:
  Copier(Graph& graph, const Decisions& decisions)
      : graph_(graph), uses_(graph), decisions_(decisions) {}

  void run() {
    for (Node& node : std::vector<Node>(graph_.nodes)) {
      if (node.is_backward) read_copies(node);
      nodes_.push_back(std::move(node));
    }
    graph_.nodes = std::move(nodes_);
  }

 private:
  void read_copies(Node& node) {
    for (const int v : graph::reads(node))
      if (decisions_.is_made_again(v)) graph::replace_reads(node, v, copy_of(v));
  }

  int copy_of(int v) {
    const auto known = copies_.find(v);
    if (known != copies_.end()) return known->second;
    Node node = graph_.nodes[static_cast<size_t>(uses_.producer(v))];
    node.is_backward = true;
    read_copies(node);
    for (int& output : node.outputs) {
      const int copy = graph_.add_value(graph_.value(output));
      copies_[output] = copy;
      output = copy;
    }
    nodes_.push_back(std::move(node));
    return copies_.at(v);
  }

  Graph& graph_;
  Uses uses_;
  const Decisions& decisions_;
  std::vector<Node> nodes_;
  std::map<int, int> copies_;
};

}  // namespace

void recompute_saved(Graph& graph, PassContext& context) {
  if (std::ranges::none_of(graph.nodes, &Node::is_backward)) return;
  Decisions decisions(graph, context);
  decisions.decide();
  Copier(graph, decisions).run();
}

}  // namespace epilogue::passes
