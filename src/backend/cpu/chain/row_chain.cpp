// SPDX-License-Identifier: Apache-2.0
// The loops of a row chain.
//
//   many rows: threads take blocks of rows    few rows: threads take panels of columns
//     for stages                                for stages
//       for chunks of k                           all threads: for panels (barrier at the end)
//         for panels of the weights                 for chunks of k: product of all rows
//           product of the block's rows             program, store
//           last chunk: program, store
//
// With many rows nothing is shared and there is no barrier; what a stage makes stays in the
// thread's L2. With few rows the weights' bytes are the cost: every thread streams its own part of
// them. Where a stage has fewer panels than there are threads, slices of the hidden columns keep
// them all at work instead (chain_split.h):
//
//   threads take a slice of the hidden columns, of all rows or of a group of them
//     panels of stage 1: product, program, store
//     all panels of stage 2: product over the slice's k
//   all threads: for panels of stage 2 (one barrier before it): sum of the slices, program, store
#include "backend/cpu/chain/row_chain.h"

#include <algorithm>
#include <cstring>

#include "backend/cpu/chain/chain_kernels.h"
#include "backend/cpu/chain/chain_plan.h"
#include "backend/cpu/chain/row_chain_stage.h"
#include "backend/cpu/chain/row_norm.h"
#include "backend/cpu/column_sums.h"
#include "backend/cpu/float_type.h"
#include "backend/cpu/simd/panels/packed_weights.h"
#include "backend/cpu/simd/reduce.h"
#include "backend/cpu/simd/scratch.h"
#include "base/thread_pool.h"
#include "epilogue/base/error.h"

namespace epilogue::cpu {
namespace {

using simd::FloatType;
using simd::PanelKernel;

constexpr int64_t kLineBytes = 64;
// Rows at such a distance compete for the same places of L1.
constexpr int64_t kAliasBytes = 4096;

// Rows before the first stage and between stages: of a thread's block, or of all threads (then the
// caller's).
thread_local simd::Scratch rows_scratch;
thread_local simd::Scratch quantised_scratch;  // the same as integers, after their scales
// Of the caller, for all threads: what slices of hidden columns give, and column sums.
thread_local simd::Scratch slices_scratch;
thread_local simd::Scratch column_sums_scratch;
thread_local std::vector<StageCall> call_stages;
thread_local std::vector<ColumnSums> call_sums;

// From row `row` on.
StageRows rows_from(const StageRows& rows, FloatType type, int64_t row) {
  const auto bytes = row * rows.stride * static_cast<int64_t>(size_of(type));
  return {static_cast<const char*>(rows.data) + bytes, rows.stride, rows.scales};
}

class CpuRowChain final : public RowChain {
 public:
  explicit CpuRowChain(const RowChainSpec& spec)
      : dtype_(spec.dtype),
        norm_(spec.norm),
        precision_(spec.int8_weights ? simd::Precision::i8 : simd::Precision::same),
        overlaps_(spec.overlaps) {
    if (!has_float_type(spec.dtype))
      throw Error("[row chain] expected f32, bf16 or f16, got " +
                  std::string(dtype_name(spec.dtype)));
    if (spec.stages.empty()) throw Error("[row chain] expected at least one stage, got none");
    for (const RowChainSpec::Stage& stage : spec.stages) outputs_ += stage.stores.size();
    for (const RowChainSpec::Stage& stage : spec.stages) {
      const bool is_last = &stage == &spec.stages.back();
      ChainStage next(stage, spec.dtype, is_last, outputs_);
      if (!stages_.empty() && stages_.back().flowing_columns() != next.k())
        throw Error("[row chain] expected a stage of " +
                    std::to_string(stages_.back().flowing_columns()) + " inputs, got " +
                    to_string(stage.weights[0]));
      stages_.push_back(std::move(next));
    }
    find_column_sums();
  }

  void run(int64_t rows, const MatrixView& x, std::span<const MatrixView> operands,
           std::span<const MatrixView> outputs) const override {
    if (outputs.size() != outputs_)
      throw Error("[row chain] expected " + std::to_string(outputs_) + " outputs, got " +
                  std::to_string(outputs.size()));
    const std::span<const ColumnSums> sums = clear_sums(rows);
    if (rows > 0) {
      const RowChainPlan& p = recall_plan(plan_key_, rows, [this](int64_t m) { return plan(m); });
      const Call call = {x, operands, outputs, sums, prepare(rows)};
      if (p.splits_rows) {
        for_blocks(p, [&](int64_t b) {
          const RowRange block = rows_of_block(rows, p.row_unit, p.blocks, b);
          run_stages(call, block.first, block.last - block.first, 1);
        });
      } else if (p.hidden_slices > 1) {
        run_slices(call, rows, p);
      } else {
        run_stages(call, 0, rows, p.threads);
      }
    }
    for (size_t o = 0; o < sums.size(); ++o)
      if (sum_columns_[o] > 0) sums[o].finish(outputs[o]);
  }

  RowChainPlan plan(int64_t rows) const override {
    return plan_chain(rows, shape(rows), tuning_, num_threads(), machine_rates());
  }

  bool tune(const KernelTuning& tuning) override {
    tuning_ = tuning;
    plan_key_ = next_plan_key();
    return true;
  }

  std::string kernel_name() const override {
    std::string name = std::string("epi_") + kernels().level_name() + "_row_chain_" +
                       std::string(dtype_name(dtype_)) +
                       (precision_ == simd::Precision::i8 ? "_i8" : "");
    if (norm_.kind != Norm::none) name += norm_.kind == Norm::rms ? "_rms" : "_layer_norm";
    for (const ChainStage& s : stages_)
      name += "_" + std::to_string(s.k()) + "x" + std::to_string(s.n()) +
              (s.products() == 2 ? "x2" : "");
    return name;
  }

 private:
  // One run(): its arguments, and what its threads share.
  struct Call {
    const MatrixView& x;
    std::span<const MatrixView> operands;
    std::span<const MatrixView> outputs;
    std::span<const ColumnSums> sums;  // by output; empty where there is none
    std::span<const StageCall> stages;
  };

  void find_column_sums() {
    sum_columns_.assign(outputs_, 0);
    for (const ChainStage& stage : stages_) {
      const RowChainSpec::Stage& spec = stage.spec();
      for (size_t i = 0; i < spec.stores.size(); ++i)
        if (stage.program().output(static_cast<size_t>(spec.flows) + i).extent == Extent::column)
          sum_columns_[static_cast<size_t>(spec.stores[i])] = stage.n();
    }
    has_sums_ =
        std::any_of(sum_columns_.begin(), sum_columns_.end(), [](int64_t n) { return n > 0; });
  }

  // In memory of this thread.
  std::span<const ColumnSums> clear_sums(int64_t rows) const {
    call_sums.clear();
    if (!has_sums_) return {};
    int64_t floats = 0;
    for (const int64_t n : sum_columns_) floats += ColumnSums::floats(rows, n);
    float* memory = column_sums_scratch.get(static_cast<size_t>(floats));
    for (const int64_t n : sum_columns_) {
      call_sums.emplace_back(memory, rows, n);
      memory += ColumnSums::floats(rows, n);
    }
    return call_sums;
  }

  ChainShape shape(int64_t rows) const {
    const PanelKernel& many = kernels().of_many_rows();
    const int64_t width = many.layout.width;
    const auto bytes = static_cast<int64_t>(dtype_bytes(dtype_));
    ChainShape shape;
    int64_t weights = 0;
    for (size_t i = 0; i < stages_.size(); ++i) {
      const ChainStage& s = stages_[i];
      weights += s.k() * s.n() * s.products();
      const int64_t each = width / s.products();
      shape.stages.push_back(
          {(s.n() + each - 1) / each, width, s.k(), bytes, dtype_ == DType::bf16});
      // What flows on is of the type that the next kernel reads; the last result is computed in
      // f32.
      const FloatType flows =
          i + 1 < stages_.size() ? kernels().of(stages_[i + 1], rows).layout.rows : FloatType::f32;
      shape.widest_row_bytes = std::max(shape.widest_row_bytes,
                                        s.flowing_columns() * static_cast<int64_t>(size_of(flows)));
    }
    // Integer rows have one scale for all of a row.
    shape.may_slice = stages_.size() == 2 && stages_[0].spec().flows == 1 &&
                      stages_[1].products() == 1 && precision_ == simd::Precision::same;
    shape.may_group = !has_sums_;
    shape.block_rows = likely_block_rows(many.has_tiles, weights, weights * bytes);
    // Column sums are of kColumnSumRows rows each.
    shape.row_unit = has_sums_ ? kColumnSumRows : ChainKernels::row_unit();
    shape.tile_rows = has_sums_ ? kColumnSumRows : many.mr;
    shape.result_columns = stages_.back().n();
    return shape;
  }

  ChainKernels kernels() const { return {float_type(dtype_), precision_, tuning_.widens}; }

  template <class Body>
  static void for_blocks(const RowChainPlan& p, Body&& body) {
    if (p.threads > 1) return parallel_blocks(p.blocks, body);
    for (int64_t b = 0; b < p.blocks; ++b) body(b);
  }

  // What the stages of one call have in common for all threads. In memory of this thread.
  std::span<const StageCall> prepare(int64_t rows) const {
    call_stages.clear();
    for (const ChainStage& stage : stages_) {
      const PanelKernel& kernel = kernels().of(stage, rows);
      call_stages.push_back({&stage, &stage.packed(kernel.layout, precision_), &kernel,
                             kernel.layout.padded(stage.k()), overlaps_ ? kernel.overlap_rows : 0,
                             tuning_.prefetches});
    }
    return call_stages;
  }

  // The type and the stride of the rows before a stage, in memory of ours.
  static FloatType rows_type(const StageCall& stage) { return stage.weights->layout().rows; }
  static int64_t rows_stride(const StageCall& stage) {
    const auto bytes = static_cast<int64_t>(size_of(rows_type(stage)));
    const int64_t stride = stage.padded_k;
    return stride * bytes % kAliasBytes == 0 ? stride + kLineBytes / bytes : stride;
  }
  static int64_t rows_floats(const StageCall& stage, int64_t m) {
    const int64_t bytes = rows_stride(stage) * m * static_cast<int64_t>(size_of(rows_type(stage)));
    return (bytes + kLineBytes - 1) / kLineBytes * (kLineBytes / int64_t{sizeof(float)});
  }

  // x's rows as the first stage wants them: normalised, in its type; where they lie if that is so.
  StageRows first_rows(const Call& call, int64_t row, int64_t m, float* scratch) const {
    const MatrixView& x = call.x;
    const StageCall& first = call.stages[0];
    const FloatType have = float_type(x.dtype);
    const FloatType want = rows_type(first);
    const int64_t k = stages_[0].k();
    const char* const from =
        static_cast<const char*>(x.data) + row * x.row_stride * static_cast<int64_t>(size_of(have));
    if (norm_.kind == Norm::none && have == want && k == first.padded_k)
      return {from, x.row_stride};
    normalise_rows(norm_, {from, have, x.row_stride}, m, k, {scratch, want, rows_stride(first)});
    return {scratch, rows_stride(first)};
  }

  // What a stage stores for the next one: [m][rows_stride(next)] at `memory`.
  static MatrixView flow(const ChainStage& stage, const StageCall& next, int64_t m, float* memory) {
    const FloatType type = rows_type(next);
    const int64_t stride = rows_stride(next);
    // Padding: weights are zero there, and 0 times garbage may be NaN.
    const int64_t columns = stage.flowing_columns();
    const auto bytes = static_cast<int64_t>(size_of(type));
    if (next.padded_k > columns)
      for (int64_t r = 0; r < m; ++r)
        std::memset(reinterpret_cast<char*>(memory) + (r * stride + columns) * bytes, 0,
                    static_cast<size_t>((next.padded_k - columns) * bytes));
    return {memory, type == FloatType::bf16 ? DType::bf16 : DType::f32, stride, 1};
  }

  // Rows as a stage's kernel reads them.
  static StageRows kernel_rows(const StageCall& stage, const StageRows& rows, int64_t m) {
    const simd::PanelLayout& layout = stage.weights->layout();
    if (layout.quantise_rows == nullptr) return rows;
    const int64_t stride = stage.padded_k;
    const int64_t floats = m + (stride * m * layout.row_bytes + 3) / int64_t{sizeof(float)};
    float* const scales = quantised_scratch.get(static_cast<size_t>(floats));
    float* const out = scales + m;
    layout.quantise_rows(static_cast<const float*>(rows.data), rows.stride, m, stage.stage->k(),
                         stride, out, stride, scales);
    return {out, stride, scales};
  }

  // Pieces of a stage's panels: as many as threads, or some more that are not small. A thread that
  // loses its core then keeps the others waiting for one piece, not for half of the weights.
  static int64_t pieces_of_panels(const StageCall& stage, int threads) {
    constexpr int64_t kPieceBytes = 256 << 10;
    constexpr int64_t kMostPerThread = 8;
    const int64_t panels = stage.weights->panels();
    const simd::PanelLayout& layout = stage.weights->layout();
    const int64_t bytes = panels * layout.width * stage.padded_k * layout.weight_bytes;
    const int64_t pieces =
        std::clamp<int64_t>(bytes / kPieceBytes, threads, kMostPerThread * threads);
    return std::min(pieces, panels);
  }

  // Rows [row, row + m) through all stages, each on `threads` threads.
  void run_stages(const Call& call, int64_t row, int64_t m, int threads) const {
    // Two areas in turn: a stage reads one and writes the other.
    std::array<int64_t, 2> floats{};
    for (size_t i = 0; i < stages_.size(); ++i)
      floats[i % 2] = std::max(floats[i % 2], rows_floats(call.stages[i], m));
    float* const memory = rows_scratch.get(static_cast<size_t>(floats[0] + floats[1]));
    const std::array<float*, 2> area = {memory, memory + floats[0]};
    StageRows a = first_rows(call, row, m, area[0]);
    for (size_t i = 0; i < stages_.size(); ++i) {
      StageTargets targets = {{}, call.operands, call.outputs, call.sums};
      const bool is_last = i + 1 == stages_.size();
      const StageCall& stage = call.stages[i];
      if (!is_last) targets.flow = flow(stages_[i], call.stages[i + 1], m, area[(i + 1) % 2]);
      const int64_t panels = stage.weights->panels();
      const StageRows read = kernel_rows(stage, a, m);
      const auto body = [&](int64_t first, int64_t last) {
        run_stage(stage, targets, read, row, m, first, last);
      };
      if (threads == 1) {
        body(0, panels);
      } else {
        const int64_t pieces = pieces_of_panels(stage, threads);
        parallel_blocks(pieces, [&](int64_t piece) {
          body(panels * piece / pieces, panels * (piece + 1) / pieces);
        });
      }
      if (!is_last) a = {targets.flow.data, targets.flow.row_stride};
    }
  }

  // Two stages, p.blocks groups of rows times p.hidden_slices.
  void run_slices(const Call& call, int64_t rows, const RowChainPlan& p) const {
    const StageCall& first = call.stages[0];
    const StageCall& second = call.stages[1];
    const int64_t each = second.weights->columns_per_panel();
    const int64_t panel_floats = rows * each;
    const int64_t slice_floats = second.weights->panels() * panel_floats;
    float* const slices = slices_scratch.get(static_cast<size_t>(p.hidden_slices * slice_floats));
    float* const memory =
        rows_scratch.get(static_cast<size_t>(rows_floats(first, rows) + rows_floats(second, rows)));
    const StageRows x = first_rows(call, 0, rows, memory);
    const MatrixView hidden = flow(stages_[0], second, rows, memory + rows_floats(first, rows));
    const int64_t panels = first.weights->panels();
    const int64_t hidden_each = first.weights->columns_per_panel();
    const auto body = [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t row = i / p.hidden_slices * p.block_rows;
        const int64_t m = std::min(p.block_rows, rows - row);
        const int64_t slice = i % p.hidden_slices;
        const int64_t begin_panel = panels * slice / p.hidden_slices;
        const int64_t end_panel = panels * (slice + 1) / p.hidden_slices;
        const StageRows mine = rows_from({hidden.data, hidden.row_stride}, rows_type(second), row);
        StageTargets targets = {hidden, call.operands, call.outputs, call.sums};
        targets.flow.data = const_cast<void*>(mine.data);
        run_stage(first, targets, rows_from(x, rows_type(first), row), row, m, begin_panel,
                  end_panel);
        multiply_slice(second, mine, m, begin_panel * hidden_each,
                       end_panel == panels ? second.padded_k : end_panel * hidden_each,
                       slices + slice * slice_floats + row * each, panel_floats);
      }
    };
    if (p.threads == 1) {
      body(0, p.blocks * p.hidden_slices);
    } else {
      parallel_for(p.blocks * p.hidden_slices, 1, body);
    }
    sum_slices(call, rows, p, slices);
  }

  // The slices' sums in their order, then the last stage's program.
  void sum_slices(const Call& call, int64_t rows, const RowChainPlan& p, float* slices) const {
    const StageCall& second = call.stages[1];
    const int64_t each = second.weights->columns_per_panel();
    const int64_t panels = second.weights->panels();
    const int64_t worth = panels * rows * each * p.hidden_slices / kSliceSumsPerThread;
    const int64_t adding = std::clamp<int64_t>(worth, 1, p.threads);
    // Pieces of rows where there are fewer panels than threads.
    const int64_t wanted = has_sums_ ? 1 : (adding + panels - 1) / panels;
    const int64_t piece = (rows + wanted - 1) / wanted;
    const int64_t pieces = (rows + piece - 1) / piece;
    const int64_t grain = std::max<int64_t>(1, panels * pieces / adding);
    const StageTargets targets = {{}, call.operands, call.outputs, call.sums};
    parallel_for(panels * pieces, grain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t row = i % pieces * piece;
        const int64_t m = std::min(piece, rows - row);
        float* const sums = slices + (i / pieces * rows + row) * each;
        for (int64_t s = 1; s < p.hidden_slices; ++s)
          simd::row_kernels().accumulate(sums + s * panels * rows * each, sums,
                                         static_cast<size_t>(m * each));
        finish_panel(second, targets, row, m, i / pieces, sums);
      }
    });
  }

  DType dtype_;
  RowChainSpec::Norm norm_;
  simd::Precision precision_;
  bool overlaps_;
  KernelTuning tuning_;
  uint64_t plan_key_ = next_plan_key();
  std::vector<ChainStage> stages_;
  size_t outputs_ = 1;
  std::vector<int64_t> sum_columns_;  // by output; 0: no column sum
  bool has_sums_ = false;
};

}  // namespace

std::unique_ptr<RowChain> make_row_chain(const RowChainSpec& spec) {
  return std::make_unique<CpuRowChain>(spec);
}

}  // namespace epilogue::cpu
