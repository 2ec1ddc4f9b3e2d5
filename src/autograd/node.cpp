// SPDX-License-Identifier: Apache-2.0
#include "autograd/node.h"

#include <cctype>
#include <limits>
#include <mutex>
#include <unordered_set>

#include "core/observer.h"
#include "core/tensor_impl.h"

namespace epilogue {

// A chain of a hundred thousand nodes must not recurse a hundred thousand destructors deep: the
// outermost destructor on a thread empties a work list.
Node::~Node() {
  thread_local std::vector<std::shared_ptr<Node>>* work = nullptr;
  if (work != nullptr) {
    for (auto& n : next)
      if (n) work->push_back(std::move(n));
    return;
  }
  std::vector<std::shared_ptr<Node>> mine = std::move(next);
  work = &mine;
  saved_in.clear();
  saved_out.clear();
  while (!mine.empty()) {
    const std::shared_ptr<Node> node = std::move(mine.back());
    mine.pop_back();
  }
  work = nullptr;
}

const GradMeta* find_grad_meta(const Tensor& t) {
  if (!t.defined()) detail::fail_undefined();
  return static_cast<const GradMeta*>(t.impl()->autograd.get());
}

GradMeta& grad_meta(const Tensor& t) {
  if (!t.defined()) detail::fail_undefined();
  auto& slot = t.impl()->autograd;
  if (!slot) slot = std::make_unique<GradMeta>();
  return static_cast<GradMeta&>(*slot);
}

std::shared_ptr<Node> gradient_edge(const Tensor& t) {
  if (!t.defined() || !t.requires_grad()) return nullptr;
  GradMeta& meta = grad_meta(t);
  if (meta.grad_fn) return meta.grad_fn;
  // Several threads may run one module: they share the accumulators of its parameters.
  static std::mutex mutex;
  const std::lock_guard<std::mutex> lock(mutex);
  std::shared_ptr<Node> node = meta.accumulator.lock();
  if (!node) {
    node = std::make_shared<Node>();
    // First in the queue: a leaf's gradient is complete as soon as its last user ran.
    node->sequence_nr = std::numeric_limits<int64_t>::max();
    node->leaf = t;
    node->out_meta = {t.sizes(), t.dtype()};
    meta.accumulator = node;
  }
  return node;
}

void record_function(const OpDef& op, std::span<const Tensor> inputs, std::span<const Tensor> saved,
                     const Tensor& result, GradientRule rule) {
  auto node = std::make_shared<Node>();
  node->op = &op;
  node->sequence_nr = thread_state().sequence_nr++;
  node->thread_id = current_thread_id();
  node->out_meta = {result.sizes(), result.dtype()};
  node->rule = std::move(rule);
  for (const Tensor& t : inputs) {
    node->next.push_back(gradient_edge(t));
    node->in_meta.push_back({t.sizes(), t.dtype()});
  }
  for (const Tensor& t : saved) node->saved_in.push_back({t, t.version()});
  result.impl()->requires_grad = true;
  grad_meta(result).grad_fn = std::move(node);
}

std::vector<Tensor> reachable_leaves(std::span<const Tensor> outputs) {
  std::vector<Tensor> leaves;
  std::vector<Node*> stack;
  std::unordered_set<const Node*> seen;
  const auto meet = [&](const std::shared_ptr<Node>& node) {
    if (node && seen.insert(node.get()).second) stack.push_back(node.get());
  };
  std::vector<std::shared_ptr<Node>> roots;  // a leaf's node dies with what leads to it
  for (const Tensor& t : outputs) meet(roots.emplace_back(gradient_edge(t)));
  while (!stack.empty()) {
    Node* const node = stack.back();
    stack.pop_back();
    if (node->op == nullptr) leaves.push_back(node->leaf);
    for (const auto& next : node->next) meet(next);
  }
  return leaves;
}

std::string GradMeta::grad_fn_name() const { return grad_fn != nullptr ? node_name(*grad_fn) : ""; }

std::string node_name(const Node& node) {
  if (node.op == nullptr) return "torch::autograd::AccumulateGrad";
  std::string_view op = node.op->name;
  op.remove_prefix(op.find("::") + 2);
  if (op.ends_with("_forward")) op.remove_suffix(8);
  std::string name;
  bool upper = true;
  for (const char c : op) {
    if (c == '_') {
      upper = true;
    } else {
      name += upper ? static_cast<char>(std::toupper(c)) : c;
      upper = false;
    }
  }
  return name + "Backward0";
}

Tensor detached(const Tensor& t) { return detail::make_view(t, t.sizes(), t.strides()); }

}  // namespace epilogue
