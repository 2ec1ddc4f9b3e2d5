// SPDX-License-Identifier: Apache-2.0
// The members of Tensor that belong to autograd.
#include "autograd/node.h"
#include "autograd/tape.h"
#include "epilogue/autograd.h"

namespace epilogue {

Tensor& Tensor::set_requires_grad(bool on) {
  if (on && !is_floating(dtype()))
    throw Error("[requires_grad] expected a floating tensor, got " + to_string(*this));
  if (!is_leaf() && !on)
    throw Error(
        "[requires_grad] expected a leaf to switch off, got the result of an op; use detach()");
  if (on) {
    install_tape();
    grad_meta(*this);  // made now: threads that use a leaf at once only read it
  }
  impl()->requires_grad = on;
  return *this;
}

bool Tensor::is_leaf() const {
  const GradMeta* meta = find_grad_meta(*this);
  return meta == nullptr || meta->is_leaf();
}

Tensor Tensor::grad() const {
  const GradMeta* meta = find_grad_meta(*this);
  return meta == nullptr ? Tensor() : meta->grad;
}

void Tensor::set_grad(Tensor grad) const {
  if (grad.defined() && (!(grad.sizes() == sizes()) || grad.dtype() != dtype()))
    throw Error("[set_grad] expected a gradient like " + to_string(*this) + ", got " +
                to_string(grad));
  // A part of other memory, a plan's, does not make all of that a gradient's.
  if (grad.defined() && grad.impl()->storage->bytes() == grad.bytes())
    set_memory_category(grad, MemoryCategory::gradient);
  grad_meta(*this).grad = std::move(grad);
}

void Tensor::backward(const Tensor& gradient, bool retain_graph, bool create_graph) const {
  epilogue::backward({this, 1}, {&gradient, 1},
                     {.retain_graph = retain_graph, .create_graph = create_graph});
}

Tensor Tensor::detach() const { return detached(*this); }

}  // namespace epilogue
