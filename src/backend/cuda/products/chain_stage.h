// SPDX-License-Identifier: Apache-2.0
// One stage of a row chain: product(s) of the rows, then a pointwise program. There are several
// ways to do it; which is fastest depends on the shape and is measured once per shape.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/cuda/kernels/gated_sm90.h"
#include "backend/cuda/products/gemm.h"
#include "core/program_kernel.h"
#include "core/row_chain.h"

namespace epilogue::cuda {

// Throws Error where weights, program and dtype do not fit together.
void require_stage_fits(const RowChainSpec::Stage& stage, DType dtype);

struct StageCall;

class ChainStage {
 public:
  explicit ChainStage(const RowChainSpec::Stage& stage);

  int64_t k() const { return spec_.weights[0].size(1); }
  int64_t n() const { return spec_.weights[0].size(0); }
  int parts() const { return static_cast<int>(spec_.weights.size()); }
  const std::vector<int>& operands() const { return spec_.operands; }

  // x [rows, k] -> out [rows, n]; `products` has room for parts * rows rows of n columns.
  void run(int64_t rows, const MatrixView& x, std::span<const MatrixView> operands,
           const MatrixView& products, const MatrixView& out);

  // Of the last shape that ran: how many kernels, and what was chosen with the times of all
  // candidates. Before the first run: the least number of kernels, and "not measured yet".
  int64_t launches() const;
  std::string choices() const;

 private:
  struct Way {
    const char* name;
    int64_t launches;
    void (ChainStage::*run)(const StageCall&);
  };
  struct Choice {
    Way way;
    std::string report;
  };

  std::vector<Way> ways(const StageCall& call) const;
  const Choice& choose(const StageCall& call);

  void run_epilogue(const StageCall& call);   // one product that does the program
  void run_products(const StageCall& call);   // a product per weight, then the program
  void run_batched(const StageCall& call);    // both weights in one launch, then the program
  void run_gated_one(const StageCall& call);  // the Hopper kernel
  void run_gated_two(const StageCall& call);  // the same in clusters of two
  void run_gated(const StageCall& call, GatedCluster cluster);
  void run_program(const StageCall& call, std::span<const MatrixView> products);
  GemmCall product(const StageCall& call, const Tensor& weight, const MatrixView& out) const;
  GatedCall gated(const StageCall& call) const;
  bool can_batch() const;

  RowChainSpec::Stage spec_;
  std::unique_ptr<ProgramKernel> program_;  // null: nothing to do
  // By rows, rounded up to a power of two, and how many ways can run the call: where views or their
  // alignment differ, others can.
  std::map<std::pair<uint64_t, size_t>, Choice> choices_;
  const Choice* last_ = nullptr;
};

}  // namespace epilogue::cuda
