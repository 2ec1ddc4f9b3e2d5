// SPDX-License-Identifier: Apache-2.0
// Reverse-mode differentiation over a tape of ops.
//
// Ops on tensors that require a gradient leave nodes behind; backward() walks them from the latest
// to the earliest and adds gradients to the leaves. Semantics and messages are PyTorch's. Not
// thread-safe where threads share anything: neither may two walk one graph at once, nor may walks
// of different graphs that reach a common leaf run at once (both would write its .grad).
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "epilogue/tensor.h"

#pragma GCC visibility push(default)

namespace epilogue {

// Whether ops on this thread are recorded; true at first.
bool grad_enabled();

// Switches recording on this thread for a scope.
class GradMode {
 public:
  explicit GradMode(bool enabled);
  ~GradMode();
  GradMode(const GradMode&) = delete;
  GradMode& operator=(const GradMode&) = delete;

 private:
  bool before_;
};
struct NoGrad : GradMode {
  NoGrad() : GradMode(false) {}
};

struct BackwardOptions {
  bool retain_graph = false;  // keep saved tensors for another walk
  bool create_graph = false;  // record the walk (for second derivatives); drop .grad() to free it
};

// Adds the gradients of `outputs` (each weighted by its entry of `gradients`; an undefined one is
// allowed for one-element outputs and means 1) to every leaf that requires one. Throws Error when
// an output is not part of a graph, a shape disagrees, the graph was walked before, or a saved
// tensor was changed in place.
void backward(std::span<const Tensor> outputs, std::span<const Tensor> gradients = {},
              BackwardOptions options = {});

// The gradients with respect to `inputs` (leaves or not), leaving every .grad() alone; undefined
// where outputs do not depend on an input. Only the part of the graph between outputs and inputs is
// evaluated and, without retain_graph, released.
std::vector<Tensor> grad(std::span<const Tensor> outputs, std::span<const Tensor> inputs,
                         std::span<const Tensor> gradients = {}, BackwardOptions options = {});

struct GradcheckOptions {
  double step = 1e-6;
  double absolute = 1e-5;
  double relative = 1e-4;
};
struct GradcheckResult {
  bool ok = true;
  std::string message;  // the worst element: input, index, analytic and numeric value
};

// Compares the gradients of f at f64 `inputs` (those that require one) with central differences of
// a fixed random weighting of all outputs. Inputs must not overlap in memory, f not be empty.
GradcheckResult gradcheck(const std::function<std::vector<Tensor>(std::span<const Tensor>)>& f,
                          std::span<const Tensor> inputs, GradcheckOptions options = {});

}  // namespace epilogue

#pragma GCC visibility pop
