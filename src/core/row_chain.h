// SPDX-License-Identifier: Apache-2.0
// A row chain: products and pointwise programs that map rows to rows, run depth first over blocks
// of rows, so that what lies between them never leaves the cache.
//
//   x [m, k] -> (norm) -> stage 1: product(s) -> program -> stage 2: product(s) -> program -> out
//
// A stage with two weights is two products of the same rows (gate and up): its program gets both.
// A linear layer with its activation is a chain of one stage; a gated MLP with norm and residual
// one of two stages. A stage may also store what others need later: what a backward pass saves.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/pointwise_program.h"
#include "epilogue/fusion_choices.h"
#include "epilogue/tensor.h"

namespace epilogue {

// How rows lie where one stride does not say it: every `rows` rows, `stride` elements further on.
struct RowLevel {
  int64_t rows = 0;  // 0: there is no such level
  int64_t stride = 0;
  bool operator==(const RowLevel&) const = default;
};
inline constexpr size_t kRowLevels = 2;

// Element (i, j) lies at data + i * row_stride + j * col_stride; a stride of 0 broadcasts. Operands
// of programs may have levels, the inner one first: with rows r = i % levels[0].rows etc.,
//   i / levels[1].rows * levels[1].stride + (i % levels[1].rows) / levels[0].rows * ... + r *
//   row_stride
struct MatrixView {
  void* data = nullptr;
  DType dtype = DType::f32;
  int64_t row_stride = 0;
  int64_t col_stride = 0;
  std::array<RowLevel, kRowLevels> levels = {};
};

inline bool has_levels(const MatrixView& view) { return view.levels[0].rows > 0; }

// Rows that a backend runs at a time, where there are so many: the weights come from L3 once per
// block.
inline constexpr int64_t kRowChainBlockRows = 96;

struct RowChainSpec {
  struct Norm {
    epilogue::Norm kind = epilogue::Norm::none;
    double eps = 0;
    Tensor weight;  // undefined: none
    Tensor bias;
    // Of an RMS norm. Backends that know `product` alone throw Error on the others.
    epilogue::NormWeight weight_is = NormWeight::product;
  };
  struct Stage {
    std::vector<Tensor> weights;  // one or two [n, k], as nn.Linear holds them; any strides
    PointwiseProgram epilogue;    // inputs: one per product, then one per operand
    std::vector<int> operands;    // positions in the list that run() gets
    // Two weights are one product of rows twice as long: x1 w1^T + x2 w2^T with [x1 x2] the rows
    // (the gradient of a gated layer's input). Else they are two products of the same rows.
    bool stacked = false;
    // The program's first outputs flow on, side by side: the next stage's rows. The last stage's
    // one is output 0 of the chain.
    int flows = 1;
    // Positions among the chain's outputs of those that follow: what somebody reads later. Column
    // sums are outputs of one row.
    std::vector<int> stores;
  };
  DType dtype = DType::f32;  // of x and out; f32, bf16 or f16
  // Weights become 8-bit integers with one scale per output channel (the largest magnitude / 127):
  // half the bytes of bf16, where few rows wait for the weights.
  bool int8_weights = false;
  // A block's program may run while the next block's products do, where the processor has a unit
  // for these alone. The results are the same.
  bool overlaps = true;
  Norm norm;  // of x, before the first product
  std::vector<Stage> stages;
};

// Appends a stage to the chain and numbers what it reads and stores: its `operands` are the next of
// the list that run() gets, its `stores` the next of the chain's outputs.
RowChainSpec::Stage& add_stage(RowChainSpec& spec, std::vector<Tensor> weights,
                               PointwiseProgram epilogue, size_t operands, size_t stores = 0);

// How a chain runs where its own choice is not wanted. What may change the order of sums, and so
// the last bits of results, says so.
struct RowChainTuning {
  enum class Split : uint8_t { automatic, rows, columns, hidden };
  Split split = Split::automatic;  // another one may change bits
  int64_t block_rows = 0;  // of Split::rows; 0: the chain's own; another one may change bits
  int threads = 0;         // 1: the caller alone; 0: as many as pay
  bool widens = false;     // bf16 weights as f32: twice the bytes; may change bits
  bool prefetches = true;  // whether a panel is fetched while the one before it is used
  bool operator==(const RowChainTuning&) const = default;
};

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
  // to their stage's [rows, n]. outputs[0] is the last stage's result. Outputs may overlap neither
  // x, operands nor each other, except that an operand may be an output of its stage.
  virtual void run(int64_t rows, const MatrixView& x, std::span<const MatrixView> operands,
                   std::span<const MatrixView> outputs) const = 0;
  virtual RowChainPlan plan(int64_t rows) const = 0;
  // For the calls that follow. False where the backend knows no such choice: nothing changes.
  virtual bool tune(const RowChainTuning& /*tuning*/) { return false; }
  // Kernels that one call starts.
  virtual int64_t launches() const { return 1; }
  // How the stages are computed and why, where there was a choice; else empty.
  virtual std::string choices() const { return ""; }
  virtual std::string kernel_name() const = 0;
};

}  // namespace epilogue
