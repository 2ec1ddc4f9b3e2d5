// SPDX-License-Identifier: Apache-2.0
// The walk: nodes in order of decreasing sequence number, gradients summed per node.
#include <algorithm>
#include <queue>
#include <unordered_map>
#include <unordered_set>

#include "autograd/node.h"
#include "core/observer.h"
#include "epilogue/autograd.h"
#include "epilogue/ops.h"

namespace epilogue {
namespace {

struct Pending {
  int users = 0;  // nodes of this walk that still send a gradient here
  Tensor gradient;
  std::shared_ptr<Node> node;
};

[[noreturn]] void fail(const std::string& text) { throw Error("[backward] " + text); }

Tensor seed_for(const Tensor& output, const Tensor& given) {
  if (given.defined()) {
    if (!(given.sizes() == output.sizes()))
      fail("expected a gradient of the output's shape " + to_string(output.sizes()) + ", got " +
           to_string(given));
    return given.dtype() == output.dtype() ? given : to(given, output.dtype());
  }
  if (output.numel() != 1)
    fail("grad can be implicitly created only for scalar outputs, got " + to_string(output));
  return full(output.sizes(), 1, output.dtype(), output.device());
}

// Saved tensors as the gradient rule gets them, checked for in-place writes since.
std::vector<Tensor> unpack(const std::vector<SavedTensor>& saved,
                           const std::shared_ptr<Node>& node) {
  std::vector<Tensor> tensors;
  for (const SavedTensor& s : saved) {
    if (s.tensor.defined() && s.tensor.version() != s.version)
      fail(
          "one of the variables needed for gradient computation has been modified by an inplace "
          "operation: [" +
          to_string(s.tensor) + "] of " + node_name(*node) + " is at version " +
          std::to_string(s.tensor.version()) + "; expected version " + std::to_string(s.version));
    Tensor t = s.tensor;
    if (s.is_result && grad_enabled()) {
      t = detached(t);
      t.impl()->requires_grad = true;
      grad_meta(t).grad_fn = node;
    }
    tensors.push_back(std::move(t));
  }
  return tensors;
}

// `is_needed` says of a node whether this walk wants its gradient.
template <class IsNeeded>
Gradients apply_rule(const std::shared_ptr<Node>& node, const Tensor& gradient, bool retain,
                     const IsNeeded& is_needed) {
  if (node->released)
    fail(
        "Trying to backward through the graph a second time (or directly access saved tensors "
        "after they have already been freed). Saved intermediate values of the graph are freed "
        "when you call .backward() or autograd.grad(). Specify retain_graph=True if you need to "
        "backward through the graph a second time or if you need to access saved tensors after "
        "calling backward.");
  if (node->op->vjp == nullptr && !node->rule)
    fail("the derivative for '" + std::string(node->op->name) + "' is not implemented");
  const std::vector<Tensor> in = unpack(node->saved_in, node);
  const std::vector<Tensor> out = unpack(node->saved_out, node);
  std::array<bool, 64> needs_buffer{};
  std::unique_ptr<bool[]> needs_heap;
  bool* needs = needs_buffer.data();
  if (node->next.size() > needs_buffer.size()) {
    needs_heap = std::make_unique<bool[]>(node->next.size());
    needs = needs_heap.get();
  }
  for (size_t i = 0; i < node->next.size(); ++i) needs[i] = is_needed(node->next[i].get());
  if (!retain && !node->saved_in.empty()) {
    node->released = (node->op->saves != 0);
    node->saved_in.clear();
    node->saved_out.clear();
  }
  const GradCall call = {in, out, node->in_meta, node->attrs, gradient, {needs, node->next.size()}};
  return node->rule ? node->rule(call) : node->op->vjp(call);
}

// A rule may answer in a broadcast shape or a wider dtype; the input gets its own.
Tensor fit(const Tensor& gradient, const OutMeta& meta) {
  Tensor g = gradient;
  if (!(g.sizes() == meta.sizes)) g = sum_to_size(g, meta.sizes);
  if (g.dtype() != meta.dtype) g = to(g, meta.dtype);
  return g;
}

// Keeps a fresh gradient as it is; one that something else may hold, that is a part of a larger
// block, or whose elements share memory (an expanded sum) is copied.
void accumulate(const Tensor& leaf, Tensor gradient, bool create_graph) {
  GradMeta& meta = grad_meta(leaf);
  if (meta.grad.defined()) {
    if (create_graph) {
      meta.grad = add(meta.grad, gradient);
    } else {
      add_(meta.grad, gradient);
    }
    return;
  }
  const detail::Storage& storage = *gradient.impl()->storage.get();
  const bool only_ours = !create_graph && gradient.impl()->use_count() == 1 &&
                         storage.use_count() == 1 && gradient.is_contiguous() &&
                         storage.bytes() == gradient.bytes() && !storage.is_borrowed();
  meta.grad = only_ours ? std::move(gradient) : clone(gradient);
  set_memory_category(meta.grad, MemoryCategory::gradient);
}

struct Later {
  bool operator()(const std::shared_ptr<Node>& a, const std::shared_ptr<Node>& b) const {
    return a->sequence_nr < b->sequence_nr;
  }
};

class Walk {
 public:
  // With targets: their gradients are captured, no leaf is written, and only nodes that lead to a
  // target are evaluated (and released).
  Walk(BackwardOptions options, const std::vector<Node*>* targets)
      : options_(options), targets_(targets) {}

  void seed(const Tensor& output, const Tensor& given) {
    std::shared_ptr<Node> node = gradient_edge(output);
    if (!node)
      fail("expected an output that requires a gradient, got " + to_string(output) +
           ", which does not require grad and does not have a grad_fn");
    seeds_.push_back(seed_for(output, given));
    roots_.push_back(std::move(node));
  }

  void run() {
    if (targets_ != nullptr) find_needed();
    for (size_t i = 0; i < roots_.size(); ++i) {
      if (!is_needed(roots_[i].get())) continue;
      count_users(roots_[i]);
      send(roots_[i], std::move(seeds_[i]), false);
    }
    for (const auto& root : roots_)
      if (is_needed(root.get())) make_ready(root);
    while (!ready_.empty()) {
      const std::shared_ptr<Node> node = ready_.top();
      ready_.pop();
      Tensor gradient = std::move(pending_[node.get()].gradient);
      if (targets_ != nullptr) capture(*node, gradient);
      evaluate(node, std::move(gradient));
    }
  }

  Tensor captured(const Node* node) const {
    const auto it = captured_.find(node);
    return it == captured_.end() ? Tensor() : it->second;
  }

 private:
  // needed_: the targets and whatever reaches them, found backwards over the edges.
  void find_needed() {
    std::unordered_map<const Node*, std::vector<const Node*>> users;
    std::vector<const Node*> stack;
    const auto meet = [&](const Node* node) {
      if (users.try_emplace(node).second) stack.push_back(node);
    };
    for (const auto& root : roots_) meet(root.get());
    while (!stack.empty()) {
      const Node* node = stack.back();
      stack.pop_back();
      for (const auto& next : node->next) {
        if (!next) continue;
        meet(next.get());
        users[next.get()].push_back(node);
      }
    }
    for (const Node* target : *targets_)
      if (users.contains(target) && needed_.insert(target).second) stack.push_back(target);
    while (!stack.empty()) {
      const Node* node = stack.back();
      stack.pop_back();
      for (const Node* user : users[node])
        if (needed_.insert(user).second) stack.push_back(user);
    }
  }
  bool is_needed(const Node* node) const {
    return node != nullptr && (targets_ == nullptr || needed_.contains(node));
  }

  // Each node's number of incoming edges within this walk.
  void count_users(const std::shared_ptr<Node>& root) {
    std::vector<Node*> stack = {root.get()};
    if (!pending_.try_emplace(root.get(), Pending{0, {}, root}).second) return;
    while (!stack.empty()) {
      Node* node = stack.back();
      stack.pop_back();
      for (const auto& next : node->next) {
        if (!is_needed(next.get())) continue;
        const auto [it, fresh] = pending_.try_emplace(next.get(), Pending{0, {}, next});
        ++it->second.users;
        if (fresh) stack.push_back(next.get());
      }
    }
  }

  void send(const std::shared_ptr<Node>& node, Tensor gradient, bool from_user) {
    Pending& p = pending_[node.get()];
    if (gradient.defined())
      p.gradient = p.gradient.defined() ? add(p.gradient, gradient) : std::move(gradient);
    if (from_user && --p.users == 0) make_ready(node);
  }

  void make_ready(const std::shared_ptr<Node>& node) {
    Pending& p = pending_[node.get()];
    if (p.users != 0 || p.node == nullptr) return;
    p.node = nullptr;  // queued: once only, also when it is a root twice
    ready_.push(node);
  }

  void capture(const Node& node, const Tensor& gradient) {
    for (const Node* t : *targets_)
      if (t == &node && gradient.defined()) captured_[t] = gradient;
  }

  bool leads_on(const Node& node) const {
    return std::any_of(node.next.begin(), node.next.end(),
                       [this](const auto& next) { return is_needed(next.get()); });
  }

  void evaluate(const std::shared_ptr<Node>& node, Tensor gradient) {
    if (node->op != nullptr && !leads_on(*node)) return;  // a target whose inputs nobody wants
    // Names are only made while somebody listens.
    std::string name;
    std::string outer_name;
    if (run_observer() != nullptr) {
      name = node_name(*node);
      outer_name = "autograd::engine::evaluate_function: " + name;
    }
    const ScopedRange outer(outer_name, RangeKind::function);
    if (node->op == nullptr) {
      if (targets_ != nullptr || !gradient.defined()) return;
      const ScopedRange inner(name, RangeKind::backward_function);
      return accumulate(node->leaf, std::move(gradient), options_.create_graph);
    }
    Gradients gradients(node->next.size());
    if (gradient.defined()) {
      const ScopedRange inner(name, RangeKind::backward_function, node->sequence_nr,
                              node->thread_id);
      gradients = apply_rule(node, gradient, options_.retain_graph || options_.create_graph,
                             [this](const Node* next) { return is_needed(next); });
    }
    gradient = Tensor();
    for (size_t i = 0; i < node->next.size(); ++i) {
      if (!is_needed(node->next[i].get())) continue;
      Tensor g = i < gradients.size() ? std::move(gradients[i]) : Tensor();
      if (g.defined()) g = fit(g, node->in_meta[i]);
      send(node->next[i], std::move(g), true);
    }
  }

  BackwardOptions options_;
  const std::vector<Node*>* targets_;
  std::vector<std::shared_ptr<Node>> roots_;
  std::vector<Tensor> seeds_;  // one per root
  std::unordered_set<const Node*> needed_;
  std::unordered_map<Node*, Pending> pending_;
  std::unordered_map<const Node*, Tensor> captured_;
  std::priority_queue<std::shared_ptr<Node>, std::vector<std::shared_ptr<Node>>, Later> ready_;
};

void walk(Walk& w, std::span<const Tensor> outputs, std::span<const Tensor> gradients,
          BackwardOptions options) {
  if (!gradients.empty() && gradients.size() != outputs.size())
    fail("expected one gradient per output, got " + std::to_string(gradients.size()) + " for " +
         std::to_string(outputs.size()));
  const GradMode mode(options.create_graph);
  for (size_t i = 0; i < outputs.size(); ++i)
    w.seed(outputs[i], gradients.empty() ? Tensor() : gradients[i]);
  w.run();
}

}  // namespace

void accumulate_gradient(const Tensor& leaf, Tensor gradient) {
  accumulate(leaf, std::move(gradient), false);
}

bool grad_enabled() { return thread_state().grad_enabled; }
GradMode::GradMode(bool enabled) : before_(thread_state().grad_enabled) {
  thread_state().grad_enabled = enabled;
}
GradMode::~GradMode() { thread_state().grad_enabled = before_; }

void backward(std::span<const Tensor> outputs, std::span<const Tensor> gradients,
              BackwardOptions options) {
  Walk w(options, nullptr);
  walk(w, outputs, gradients, options);
}

std::vector<Tensor> grad(std::span<const Tensor> outputs, std::span<const Tensor> inputs,
                         std::span<const Tensor> gradients, BackwardOptions options) {
  std::vector<std::shared_ptr<Node>> keep;
  std::vector<Node*> targets;
  for (const Tensor& t : inputs) {
    keep.push_back(gradient_edge(t));
    if (!keep.back()) fail("expected inputs that require a gradient, got " + to_string(t));
    targets.push_back(keep.back().get());
  }
  Walk w(options, &targets);
  walk(w, outputs, gradients, options);
  std::vector<Tensor> result;
  result.reserve(targets.size());
  for (const Node* t : targets) result.push_back(w.captured(t));
  return result;
}

}  // namespace epilogue
