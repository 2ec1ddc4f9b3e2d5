// SPDX-License-Identifier: Apache-2.0
// A row chain: products and pointwise programs that map rows to rows, run depth first over blocks
// of rows, so that what lies between them never leaves the cache.
//
//   x [m, k] -> (norm) -> stage 1: product(s) -> program -> stage 2: product(s) -> program -> out
//
// A stage with two weights is two products of the same rows (gate and up): its program gets both.
// Stages side by side all read x, and each makes a result of its own (q, k and v).
// A linear layer with its activation is a chain of one stage; a gated MLP with norm and residual
// one of two stages. A stage may also store what others need later: what a backward pass saves.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/fused_kernel.h"
#include "core/pointwise_program.h"
#include "epilogue/fusion_choices.h"
#include "epilogue/int4_weight.h"
#include "epilogue/tensor.h"

namespace epilogue {

// One stage. `Weight` is a tensor here, a value in a chain that is a graph's node (fused/chain.h);
// what operands and stores are is said there.
template <class Weight>
struct RowChainStage {
  std::vector<Weight> weights;  // one or two [n, k], as nn.Linear holds them; any strides
  PointwiseProgram epilogue;    // inputs: one per product, then one per operand
  std::vector<int> operands;
  // Two weights are one product of rows twice as long: x1 w1^T + x2 w2^T with [x1 x2] the rows (the
  // gradient of a gated layer's input). Else they are two products of the same rows.
  bool stacked = false;
  // The program's first outputs flow on, side by side: the next stage's rows. The last stage's one
  // is output 0 of the chain.
  int flows = 1;
  // The outputs that follow: what somebody reads later. Column sums are outputs of one row.
  std::vector<int> stores;

  int products() const { return stacked ? 1 : static_cast<int>(weights.size()); }
};

struct RowChainSpec {
  struct Norm {
    epilogue::Norm kind = epilogue::Norm::none;
    double eps = 0;
    Tensor weight;  // undefined: none
    Tensor bias;
    // Of an RMS norm. Backends that know `product` alone throw Error on the others.
    epilogue::NormWeight weight_is = NormWeight::product;
  };
  // Operands are positions in the list that run() gets, stores positions among the chain's outputs.
  using Stage = RowChainStage<Tensor>;
  DType dtype = DType::f32;  // of x and out; f32, bf16 or f16
  // Fewer bytes where few rows wait for the weights, integer products where many rows wait for the
  // multipliers. Throws Error on a choice that there is none of.
  Quantisation bits = {};
  // Weights that are rounded already, as `bits` says but for its `group`, by stage, whose values
  // are not read then. Those of 8 bits: group 0, steps u8 [n, k], scales f32 [n]. Empty: none.
  std::vector<Int4Weight> int4 = {};
  // A block's program may run while the next block's products do, where the processor has a unit
  // for these alone. The results are the same.
  bool overlaps = true;
  // Output i is stage i's, which has no other. All have the same k.
  bool side_by_side = false;
  Norm norm;  // of x, before the first product
  std::vector<Stage> stages;
};

// Appends a stage to the chain and numbers what it reads and stores: its `operands` are the next of
// the list that run() gets, its `stores` the next of the chain's outputs.
RowChainSpec::Stage& add_stage(RowChainSpec& spec, std::vector<Tensor> weights,
                               PointwiseProgram epilogue, size_t operands, size_t stores = 0);

// How one call was cut, for explanations and traces.
struct RowChainPlan {
  int64_t block_rows = 0;  // at most
  int64_t row_unit = 1;    // blocks of rows, but for the last, end at a multiple of it
  int64_t blocks = 0;
  int threads = 1;
  bool splits_rows = true;  // else columns: too few rows for all threads
  // Above 1: not a stage's columns but those between two stages are split, into so many slices of
  // each block of rows, and what the slices give is summed once.
  int64_t hidden_slices = 1;
  int64_t scratch_bytes = 0;
};

// Prepared once; weights are packed at the first run, and again when their version changes. All but
// tune() are safe from several threads at once; weights are written while no call reads them.
class RowChain {
 public:
  virtual ~RowChain() = default;
  // x [rows, k] and outputs [rows, n of their stage] with unit column strides; operands broadcast
  // to their stage's [rows, n]. outputs[0] is the last stage's result, or outputs[i] that of stage
  // i of those side by side. Outputs may overlap neither x, operands nor each other, except that an
  // operand may be an output of its stage.
  virtual void run(int64_t rows, const MatrixView& x, std::span<const MatrixView> operands,
                   std::span<const MatrixView> outputs) const = 0;
  virtual RowChainPlan plan(int64_t rows) const = 0;
  // For the calls that follow. False where the backend knows no such choice: nothing changes.
  virtual bool tune(const KernelTuning& /*tuning*/) { return false; }
  // Kernels that one call starts.
  virtual int64_t launches() const { return 1; }
  // How the stages are computed and why, where there was a choice; else empty.
  virtual std::string choices() const { return ""; }
  virtual std::string kernel_name() const = 0;
};

}  // namespace epilogue
