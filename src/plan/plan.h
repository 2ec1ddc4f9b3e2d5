// SPDX-License-Identifier: Apache-2.0
// Plan: a graph made ready to run. It does not change when it runs: what a call works in is a frame
// (plan_frame.h), of which each call that is under way has its own.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "base/slot_pool.h"

#include "core/fused_call.h"
#include "graph/fused_node.h"
#include "plan/memory_plan.h"

namespace epilogue::plan {

class Frame;

class Plan {
 public:
  struct Options {
    bool free_rows = false;  // the leading sizes may differ from call to call
    graph::KernelOptions kernels = {};
    // Results beyond these are a frame's memory, theirs until the next run.
    size_t handed_out = SIZE_MAX;
  };
  // A node with its kernel. Its frame holds views of `slots`' data, in this order.
  struct Step {
    const graph::Node* node;
    std::unique_ptr<FusedKernel> kernel;  // null: an op, as eager runs it
    Dims elements;                        // that the kernel works on
    std::vector<int> slots;               // values: operands, then results
    std::vector<MatrixView> views;
    FusedOps ops;
  };

  Plan(graph::Graph graph, const Options& options);
  ~Plan();
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;

  // Inputs with the sizes (but for free rows), strides and dtypes of the graph's. After the first
  // call only the results are allocated. Safe from several threads; each call that is under way has
  // memory of its own for what lies between kernels, which the plan keeps.
  void run(std::span<const Tensor> in, std::span<Tensor> out) const;
  // The same into memory of the caller: of the results' sizes and dtypes, contiguous, apart from
  // the inputs and from each other.
  void run_into(std::span<const Tensor> in, std::span<const Tensor> out) const;

  // How its kernels run from now on. False where none can be told. Not beside run().
  bool tune(const KernelTuning& tuning);

  // Whether a tensor lies in the memory that the plan keeps. Not beside run().
  bool owns(const Tensor& t) const;

  const graph::Graph& graph() const { return graph_; }
  const std::vector<Step>& steps() const { return steps_; }
  bool has_free_rows() const { return free_rows_; }
  bool has_op_steps() const { return has_op_steps_; }
  // The values whose memory is handed out, in ascending order.
  const std::vector<int>& results() const { return results_; }
  // Whether run() may give up its handle of output `i`: its memory is handed out, and no later
  // output is the same value.
  bool gives_away(size_t i) const { return gives_away_[i]; }
  // Which input of a call a value is; -1: none.
  int input_of(int value) const { return input_of_[static_cast<size_t>(value)]; }
  size_t handed_out() const { return handed_out_; }
  int64_t captured_rows() const { return captured_rows_; }
  // At the captured number of rows.
  const MemoryPlan& memory() const { return memory_; }
  // That a call holds between its kernels, at the number of rows that came last.
  int64_t held_bytes() const { return held_bytes_.load(std::memory_order_relaxed); }
  int64_t kernels() const;
  double moved_bytes() const;     // at the captured sizes
  int64_t scratch_bytes() const;  // that its kernels work in beside memory(), at these sizes
  // One line per step: how its kernel cuts the work. At the captured number of rows.
  std::string describe_kernels() const;

 private:
  void add_kernel(Step& step, const graph::KernelOptions& options);

  graph::Graph graph_;
  bool free_rows_;
  size_t handed_out_;
  bool has_op_steps_ = false;
  std::vector<Step> steps_;
  std::vector<int> results_;
  std::vector<int> input_of_;     // by value
  std::vector<char> gives_away_;  // by output
  int64_t captured_rows_ = 0;
  MemoryPlan memory_;
  friend class Frame;
  mutable std::atomic<int64_t> held_bytes_{0};
  mutable SlotPool<Frame> frames_;
};

}  // namespace epilogue::plan
