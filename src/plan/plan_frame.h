// SPDX-License-Identifier: Apache-2.0
// What one call of a plan works in: addresses, memory between kernels, recordings of launches.
#pragma once

#include <span>
#include <vector>

#include "plan/plan.h"
#include "plan/replay.h"

namespace epilogue::plan {

// Of one plan, for one call at a time; the next call finds everything allocated.
class Frame {
 public:
  // `plan` must outlive it.
  explicit Frame(const Plan& plan);
  Frame(const Frame&) = delete;
  Frame& operator=(const Frame&) = delete;

  // As Plan's.
  void run(std::span<const Tensor> in, std::span<Tensor> out);
  void run_into(std::span<const Tensor> in, std::span<const Tensor> out);
  bool owns(const Tensor& t) const;

 private:
  struct Release;
  void place(int64_t rows);
  void refresh_casts();
  void bind(std::span<const Tensor> in, std::span<const Tensor> into);
  void bind_result(int value, Tensor to);
  const Tensor& tensor_of(int value) const;
  void run_steps();
  bool may_replay() const;
  void run_fused_step(size_t index);
  void run_op_step(const graph::Node& node);
  void compute();
  void release_handles();
  FusedKernelNotes notes_of(const Plan::Step& step, int64_t rows) const;
  Dims sizes_of(int value) const;
  Dims at_rows(const Dims& captured) const;
  int64_t bytes_of(int value) const;
  void* data_of(int value) const { return pointers_[static_cast<size_t>(value)]; }

  const Plan& plan_;
  const graph::Graph& graph_;
  std::vector<std::vector<MatrixView>> views_;  // by step; data is set at every call
  MemoryPlan memory_;
  Tensor arena_;
  int64_t rows_ = -1;  // that memory_ is for
  Dims leading_;       // sizes of this call's input 0
  std::vector<void*> pointers_;
  std::span<const Tensor> in_;   // of the call
  std::vector<Tensor> tensors_;  // results; where ops run, all values but inputs
  std::vector<Tensor> op_in_;
  Replays replays_;
};

}  // namespace epilogue::plan
