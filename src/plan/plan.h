// SPDX-License-Identifier: Apache-2.0
// Plan: a graph made ready to run, as steps over memory that it keeps.
#pragma once

#include <memory>
#include <vector>

#include "core/fused_call.h"
#include "core/program_kernel.h"
#include "core/row_chain.h"
#include "graph/graph.h"
#include "plan/memory_plan.h"
#include "plan/replay.h"

namespace epilogue::plan {

class Plan {
 public:
  struct Options {
    bool free_rows = false;     // the leading sizes may differ from call to call (see free_rows.h)
    bool int8_weights = false;  // of row chains
    // Results beyond these are the plan's own memory, theirs until the next run.
    size_t handed_out = SIZE_MAX;
  };
  Plan(graph::Graph graph, const Options& options);
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;

  // Inputs with the sizes (but for free rows), strides and dtypes of the graph's. After the first
  // call only the results are allocated.
  void run(std::span<const Tensor> in, std::span<Tensor> out);

  // How its row chains run from now on. False where none can be told.
  bool tune(const RowChainTuning& tuning);

  // Whether a tensor lies in the memory that the plan keeps.
  bool owns(const Tensor& t) const;

  const graph::Graph& graph() const { return graph_; }
  bool has_free_rows() const { return free_rows_; }
  const MemoryPlan& memory() const { return memory_; }
  int64_t kernels() const;
  double moved_bytes() const;     // at the captured sizes
  int64_t scratch_bytes() const;  // that its kernels work in beside memory(), at these sizes
  // One line per step: how its kernel cuts the work. At the captured number of rows.
  std::string describe_kernels() const;

 private:
  // A node with its kernel; views in the order of `slots`, whose data is set at every call.
  struct Step {
    const graph::Node* node;
    std::unique_ptr<RowChain> chain;
    std::unique_ptr<ProgramKernel> program;
    std::vector<int> slots;  // values; a chain's x first, the results last
    std::vector<MatrixView> views;
    FusedOps ops;
  };

  void add_chain(Step& step, const graph::Node& node);
  void add_program(Step& step, const graph::Node& node);
  void add_view(Step& step, int value, const Dims& broadcast_to);
  Dims elements_of(const graph::Node& node) const;
  void place(int64_t rows);
  void refresh_casts();
  void bind(std::span<const Tensor> in);
  void run_steps();
  bool may_replay() const;
  void run_fused_step(Step& step);
  void run_op_step(const graph::Node& node);
  void release_handles();
  Dims sizes_of(int value) const;
  Dims at_rows(const Dims& captured) const;
  int64_t bytes_of(int value) const;
  void* data_of(int value) const { return pointers_[static_cast<size_t>(value)]; }

  graph::Graph graph_;
  bool free_rows_;
  bool int8_weights_;
  size_t handed_out_;
  bool has_op_steps_ = false;
  std::vector<Step> steps_;
  std::vector<bool> is_result_;  // values whose memory is handed out
  int64_t captured_rows_ = 0;

  MemoryPlan memory_;
  Tensor arena_;
  int64_t rows_ = -1;  // that memory_ is for
  Dims leading_;       // sizes of this call's input 0
  std::vector<void*> pointers_;
  std::vector<Tensor> tensors_;  // inputs, results; where ops run, all values
  std::vector<Tensor> op_in_;
  Replays replays_;
};

}  // namespace epilogue::plan
