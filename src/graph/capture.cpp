// SPDX-License-Identifier: Apache-2.0
#include "graph/capture.h"

#include <algorithm>
#include <unordered_map>

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
  }

  void on_op(const Call& call) override {
    if (call.op.kind == OpKind::inplace)
      throw Error("[compile] expected ops that write nothing in place, got " +
                  std::string(call.op.name));
    Node node;
    OpCall what{&call.op, {call.attrs.begin(), call.attrs.end()}, {}};
    for (const Tensor& t : call.in) what.inputs.push_back(t.defined() ? value_of(t) : kNoValue);
    node.what = std::move(what);
    if (call.op.kind != OpKind::view) node.replaces = {call.op.name};
    for (const Tensor& t : call.out) node.outputs.push_back(new_result(t));
    node.flops = call.op.flops != nullptr ? call.op.flops(call) : 0;
    node.eager_bytes = call.op.bytes != nullptr ? call.op.bytes(call) : moved_bytes(call);
    graph_.nodes.push_back(std::move(node));
  }

  Graph finish(std::span<const Tensor> results) {
    for (const Tensor& t : results) {
      if (!t.defined()) throw Error("[compile] expected defined results, got an undefined one");
      graph_.outputs.push_back(value_of(t));
    }
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

  // Autograd keeps results under identities of their own: another tensor of the same elements is
  // the same value, since nothing is written in place.
  const Tensor* alias_of(const Tensor& t) const {
    const auto found = std::find_if(alive_.begin(), alive_.end(), [&](const Tensor& known) {
      return known.impl()->storage.get() == t.impl()->storage.get() && known.data() == t.data() &&
             known.dtype() == t.dtype() && known.sizes() == t.sizes() &&
             known.strides() == t.strides();
    });
    return found == alive_.end() ? nullptr : &*found;
  }

  int value_of(const Tensor& t) {
    const auto [found, is_new] = values_.try_emplace(t.impl(), 0);
    if (is_new) {
      if (const Tensor* known = alias_of(t)) {
        found->second = values_.at(known->impl());
        alive_.push_back(t);
        return found->second;
      }
      const ValueKind kind =
          t.impl()->is_wrapped_number ? ValueKind::constant : ValueKind::parameter;
      if (kind == ValueKind::parameter) require_place(t);
      found->second = graph_.add_value({kind, t.sizes(), t.strides(), t.dtype(), t});
      alive_.push_back(t);
    }
    return found->second;
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
  std::unordered_map<const detail::TensorImpl*, int> values_;
  // While every tensor lives, no address is used twice.
  std::vector<Tensor> alive_;
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
