// SPDX-License-Identifier: Apache-2.0
#include "graph/capture.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "core/backend.h"
#include "core/observer.h"
#include "core/tensor_impl.h"

namespace epilogue::graph {
namespace {

// On this thread: ops are told to `observer` and run no kernels.
class CaptureScope {
 public:
  explicit CaptureScope(OpObserver* observer) : before_(thread_state()) {
    thread_state().capture = observer;
    thread_state().skip_kernels = true;
    thread_state().grad_enabled = false;
  }
  ~CaptureScope() {
    thread_state().capture = before_.capture;
    thread_state().skip_kernels = before_.skip_kernels;
    thread_state().grad_enabled = before_.grad_enabled;
  }
  CaptureScope(const CaptureScope&) = delete;
  CaptureScope& operator=(const CaptureScope&) = delete;

 private:
  ThreadState before_;
};

using detail::Storage;
using detail::TensorImpl;

constexpr int kOverwritten = -2;  // what a tensor was before its memory was written

[[noreturn]] void refuse_write(const OpDef& op, const std::string& why = "") {
  throw Error("[compile] expected ops that write nothing in place, got " + std::string(op.name) +
              why);
}

// The same elements in the same order.
bool is_same_view(const Tensor& a, const Tensor& b) {
  return a.impl()->storage.get() == b.impl()->storage.get() && a.data() == b.data() &&
         a.dtype() == b.dtype() && a.sizes() == b.sizes() && a.strides() == b.strides();
}

// The op that a node runs for an in-place one: itself, into memory of its own, where it reads
// nothing of what it writes; else its functional form, if that gives the same sizes and dtype.
const OpDef* node_op(const Call& call) {
  const OpDef& op = call.op;
  if (op.lists != 0 || op.writes != 1) return nullptr;
  if (op.overwrites) return &op;
  if (op.functional == nullptr) return nullptr;
  const OutMeta made = op.functional->infer({*op.functional, call.in, call.attrs, {}})[0];
  const Tensor& target = call.in[0];
  return made.sizes == target.sizes() && made.dtype == target.dtype() ? op.functional : nullptr;
}

// Nodes make values and change none. So an op that writes in place is a node that makes a new
// value, which is what its target is from then on, provided that nobody can tell the difference:
// - The target's memory was made within the function: nobody else sees that it is not written.
// - The target lies without gaps, as the new value will. What else the op reads is the target
//   itself or shares no memory with it.
// - No other view of that memory is read later: it would have to show what was written.
// All other writes are refused.
class Captor final : public OpObserver {
 public:
  void add_input(const Tensor& t) {
    if (!t.defined()) throw Error("[compile] expected defined inputs, got an undefined one");
    const int v = graph_.add_value({ValueKind::input, t.sizes(), t.strides(), t.dtype(), {}});
    require_place(t);
    graph_.inputs.push_back(v);
    // A tensor that is given twice: its first place is the one that is read.
    values_.try_emplace(t.impl(), v);
    alive_.push_back(t);
    unwritten_.insert(t.impl()->storage.get());
  }

  void on_op(const Call& call) override {
    const bool writes = call.op.kind == OpKind::inplace;
    const OpDef* const op = writes ? node_op(call) : &call.op;
    if (writes && (op == nullptr || !may_write(call))) refuse_write(call.op);
    Node node;
    OpCall what{op, {call.attrs.begin(), call.attrs.end()}, {}};
    for (size_t i = 0; i < call.in.size(); ++i) {
      const bool is_read = call.in[i].defined() && !(i == 0 && op->overwrites);
      what.inputs.push_back(is_read ? value_of(call.in[i]) : kNoValue);
    }
    node.what = std::move(what);
    if (call.op.kind != OpKind::view) node.replaces = {call.op.name};
    if (writes) {
      require_place(call.in[0]);
      forget_views(call);
    }
    for (const Tensor& t : call.out) {
      node.outputs.push_back(new_result(t));
      if (call.op.kind != OpKind::view) unwritten_.insert(t.impl()->storage.get());
    }
    if (call.op.kind == OpKind::compute)
      for (const Tensor& t : call.out) own_.insert(t.impl()->storage.get());
    node.flops = call.op.flops != nullptr ? call.op.flops(call) : 0;
    node.eager_bytes = call.op.bytes != nullptr ? call.op.bytes(call) : moved_bytes(call);
    graph_.draws += graph::is_draw(node) ? 1 : 0;
    graph_.nodes.push_back(std::move(node));
  }

  void on_new_tensor(const Tensor& t) override {
    own_.insert(t.impl()->storage.get());
    made_.push_back(t);
  }

  bool is_unwritten(const Tensor& t) const override {
    return unwritten_.contains(t.impl()->storage.get());
  }

  Graph finish(std::span<const Tensor> results) {
    for (const Tensor& t : results) {
      if (!t.defined()) throw Error("[compile] expected defined results, got an undefined one");
      graph_.outputs.push_back(value_of(t));
    }
    graph_.capabilities = backend_of(graph_.device).capabilities();
    return std::move(graph_);
  }

 private:
  int new_result(const Tensor& t) {
    const int v =
        graph_.add_value({ValueKind::intermediate, t.sizes(), t.strides(), t.dtype(), {}});
    values_[t.impl()] = v;
    alive_.push_back(t);
    return v;
  }

  bool may_write(const Call& call) const {
    const Tensor& target = call.in[0];
    const Storage* const memory = target.impl()->storage.get();
    return own_.contains(memory) && target.is_contiguous() && !target.requires_grad() &&
           !target.impl()->is_wrapped_number &&
           std::all_of(call.in.begin() + 1, call.in.end(), [&](const Tensor& t) {
             return !t.defined() || t.impl()->storage.get() != memory || is_same_view(t, target);
           });
  }

  // What is known of the memory that the op writes is so no more; other handles of the target are
  // known again when they are met.
  void forget_views(const Call& call) {
    const Tensor& target = call.in[0];
    const Storage* const memory = target.impl()->storage.get();
    written_[memory] = &call.op;
    std::erase_if(alive_, [&](const Tensor& t) {
      if (t.impl()->storage.get() != memory) return false;
      values_[t.impl()] = kOverwritten;
      made_.push_back(t);
      if (is_same_view(t, target)) values_.erase(t.impl());
      return true;
    });
  }

  // Autograd keeps results under identities of their own: another tensor of the same elements is
  // the same value, since nothing is written behind it.
  const Tensor* alias_of(const Tensor& t) const {
    const auto found =
        std::ranges::find_if(alive_, [&](const Tensor& known) { return is_same_view(known, t); });
    return found == alive_.end() ? nullptr : &*found;
  }

  int value_of(const Tensor& t) {
    const auto [found, is_new] = values_.try_emplace(t.impl(), 0);
    if (is_new) found->second = value_of_new(t);
    if (found->second == kOverwritten)
      refuse_write(*written_.at(t.impl()->storage.get()),
                   ", of whose memory another view is read later");
    return found->second;
  }

  // Of a tensor that was not met before.
  int value_of_new(const Tensor& t) {
    if (const Tensor* const known = alias_of(t)) {
      const int value = values_.at(known->impl());
      alive_.push_back(t);
      return value;
    }
    if (written_.contains(t.impl()->storage.get())) return kOverwritten;
    alive_.push_back(t);
    const ValueKind kind = t.impl()->is_wrapped_number ? ValueKind::constant : ValueKind::parameter;
    if (kind == ValueKind::parameter) require_place(t);
    return graph_.add_value({kind, t.sizes(), t.strides(), t.dtype(), t});
  }

  // A plan runs on one device: that of the first tensor.
  void require_place(const Tensor& t) {
    if (!has_place_) graph_.device = t.device();
    has_place_ = true;
    if (!(t.device() == graph_.device))
      throw Error("[compile] expected tensors on one device, got some on " +
                  to_string(graph_.device) + " and " + to_string(t) + " on " +
                  to_string(t.device()));
  }

  Graph graph_;
  bool has_place_ = false;
  std::unordered_map<const TensorImpl*, int> values_;
  std::unordered_set<const Storage*> own_;                    // made within the function
  std::unordered_map<const Storage*, const OpDef*> written_;  // by which op last
  std::unordered_set<const Storage*> unwritten_;              // of inputs and results
  // While every tensor lives, no address is used twice.
  std::vector<Tensor> alive_;
  std::vector<Tensor> made_;  // the same for those that no value is known of
};

}  // namespace

Graph capture(const Function& function, std::span<const Tensor> inputs) {
  Captor captor;
  for (const Tensor& t : inputs) captor.add_input(t);
  const RngState before = rng_state();
  std::vector<Tensor> results;
  {
    const CaptureScope scope(&captor);
    results = function(inputs);
  }
  if (rng_state().offset != before.offset || rng_state().seed != before.seed) {
    set_rng_state(before);
    throw Error("[compile] expected a function that draws no random numbers, got one that does");
  }
  return captor.finish(results);
}

}  // namespace epilogue::graph
