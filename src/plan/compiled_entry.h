// SPDX-License-Identifier: Apache-2.0
// One entry of the plan cache: a plan, and the guards that say for which calls it holds.
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/append_list.h"
#include "base/thread_stripe.h"
#include "core/known_weight.h"
#include "core/watched_state.h"
#include "epilogue/compile.h"
#include "ops/autocast.h"
#include "passes/pipeline.h"
#include "plan/candidates.h"
#include "plan/captured.h"
#include "plan/choice_store.h"
#include "plan/plan.h"

namespace epilogue::plan {

// A call with such inputs.
using Capture = std::function<Captured(std::span<const Tensor>)>;

class Entry {
 public:
  // Captures, runs the passes and plans. `keeps_gradients`: those of a step that runs forward and
  // backward at once stay in the plan's memory, theirs until the next run. Throws Error as Compiled
  // says.
  Entry(const Capture& capture, std::span<const Tensor> in, const CompileOptions& options,
        bool keeps_gradients = false);
  Entry(const Entry&) = delete;
  Entry& operator=(const Entry&) = delete;

  // Whether the plan holds for these inputs, for the parameters and modules as they are now, and
  // for whether ops are recorded. Where rows are free the function is captured once more for each
  // new number of them: it may do other ops. Throws what it throws. Thread-safe.
  bool accepts(std::span<const Tensor> in) const;

  // Says that it was used, and when that was: ticks() of base/clock.h, to some 10 us.
  void mark_used() const;
  int64_t last_used() const { return last_used_.load(std::memory_order_relaxed); }

  const Plan& plan() const { return *plan_; }
  // Null unless it runs later; then plan() is the forward pass, whose results are the function's
  // and what is saved. The autograd graph shares it.
  const std::shared_ptr<Plan>& backward_plan() const { return backward_plan_; }
  // The inputs of the call that it reads, by index.
  const std::vector<int>& backward_inputs() const { return backward_inputs_; }

  // The candidate that the plan is, and what others took, where they were measured.
  const Candidate& candidate() const { return candidate_; }
  const Choice& measured() const { return measured_; }
  bool is_asked_for() const { return !options_.choice.empty(); }
  bool trains() const { return has_backward(); }

  bool keeps_gradients() const { return keeps_gradients_; }
  // Results that get memory of their own.
  size_t handed_out() const { return keeps_gradients_ ? captured_.forward_results : SIZE_MAX; }

  // How many results the function has.
  size_t results() const {
    return has_backward() ? captured_.forward_results : captured().outputs.size();
  }
  // Of both plans together.
  int64_t kernels() const;
  int64_t intermediate_bytes() const;
  int64_t scratch_bytes() const;
  double moved_bytes() const;
  const passes::PipelineResult& passes() const { return passes_; }
  const graph::Graph& captured() const { return captured_.graph; }
  const std::vector<Leaf>& leaves() const { return captured_.leaves; }
  int64_t eager_kernels() const;
  double eager_moved_bytes() const;

 private:
  using Regions = decltype(AutocastState::regions);
  // A parameter's memory when it was captured: another one makes another plan.
  struct ParameterGuard {
    KnownWeight weight;
    bool requires_grad;
  };
  struct InputGuard {
    DType dtype;
    Device device;
    Dims sizes;
    Dims strides;
    int same_as;  // the first input that is the same tensor
    bool requires_grad;
  };
  // Whether the plan is the function's for a first input of these sizes.
  struct Fit {
    Dims sizes;
    bool fits;
  };
  // What a candidate makes of the captured call.
  struct Built {
    passes::PipelineResult passes;
    std::unique_ptr<Plan> plan;
    std::shared_ptr<Plan> backward_plan;
    std::vector<int> backward_inputs;
  };
  Built build(const Candidate& candidate, std::span<const Tensor> in) const;
  Candidate choose(std::span<const Tensor> in);
  bool may_measure() const;
  Choice measure(std::span<const Tensor> in) const;
  void note_guards(std::span<const Tensor> in);
  bool fits_rows(std::span<const Tensor> in) const;
  bool remember_fit(const Dims& sizes, bool fits) const;
  bool accepts_input(std::span<const Tensor> in, size_t i) const;
  bool has_backward() const { return captured_.forward_results > 0; }
  // Whether it counts who requires a gradient.
  bool guards_gradients() const { return has_backward() || captured_.grad_mode.value_or(false); }

  Capture capture_;
  CompileOptions options_;
  bool keeps_gradients_;
  WatchedState watched_;  // what the captured function's modules hold
  Captured captured_;
  Candidate candidate_;
  Choice measured_;
  passes::PipelineResult passes_;
  std::vector<ParameterGuard> parameters_;
  std::vector<InputGuard> inputs_;
  // By a hash of the sizes.
  static constexpr size_t kFitLists = 64;
  mutable std::array<AppendList<Fit>, kFitLists> fits_;
  mutable std::atomic<size_t> fits_known_{0};
  alignas(kStripeBytes) mutable std::atomic<int64_t> last_used_{
      0};                            // apart from what calls only read
  std::optional<Regions> autocast_;  // their casts are part of the graph
  std::unique_ptr<Plan> plan_;
  std::shared_ptr<Plan> backward_plan_;
  std::vector<int> backward_inputs_;
};

}  // namespace epilogue::plan
