// SPDX-License-Identifier: Apache-2.0
// One entry of the plan cache: a plan, and the guards that say for which calls it holds.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "epilogue/compile.h"
#include "graph/capture.h"
#include "ops/autocast.h"
#include "passes/pipeline.h"
#include "plan/plan.h"

namespace epilogue::plan {

class Entry {
 public:
  // Captures, runs the passes and plans. Throws Error as Compiled says.
  Entry(const graph::Function& function, std::span<const Tensor> in, const CompileOptions& options);

  // Whether the plan holds for these inputs, and for the parameters as they are now.
  bool accepts(std::span<const Tensor> in) const;
  // Throws Error where gradients are on and a parameter or input requires one.
  void require_no_gradients(std::span<const Tensor> in) const;

  Plan& plan() { return *plan_; }
  const Plan& plan() const { return *plan_; }
  const passes::PipelineResult& passes() const { return passes_; }
  const graph::Graph& captured() const { return captured_; }
  int64_t eager_kernels() const;
  double eager_moved_bytes() const;

 private:
  // A parameter's memory when it was captured: another one makes another plan.
  struct ParameterGuard {
    Tensor tensor;
    const void* data;
    DType dtype;
    Dims sizes;
    Dims strides;
    uint32_t version;
  };
  struct InputGuard {
    DType dtype;
    Dims sizes;
    Dims strides;
    int same_as;  // the first input that is the same tensor
  };
  void note_guards(std::span<const Tensor> in, bool weights_are_frozen);
  bool accepts_input(std::span<const Tensor> in, size_t i) const;

  graph::Graph captured_;
  passes::PipelineResult passes_;
  std::vector<ParameterGuard> parameters_;
  std::vector<InputGuard> inputs_;
  bool weights_are_frozen_ = false;
  AutocastState::Region autocast_;  // the casts of the region are part of the graph
  std::unique_ptr<Plan> plan_;
};

}  // namespace epilogue::plan
