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

#include "backend/cpu/chain/chain_bits.h"
#include "backend/cpu/chain/chain_plan.h"
#include "backend/cpu/chain/row_norm.h"
#include "backend/cpu/chain/tile_stage.h"
#include "backend/cpu/float_type.h"
#include "backend/cpu/simd/panels/pack_tiles.h"
#include "backend/cpu/simd/reduce.h"
#include "backend/cpu/simd/scratch.h"
#include "base/ceil_div.h"
#include "base/thread_pool.h"
#include "epilogue/base/error.h"

namespace epilogue::cpu {
namespace {

using simd::FloatType;
using simd::PackedWeights;
using simd::PanelKernel;
using simd::PanelLayout;

// One product: v = v0 (+ v1 (+ v2), the operands), f(v) or not; two: f(v0) v1. The result is
// stored.
ChainStage::Finish finish_of(const RowChainSpec::Stage& spec, int products) {
  const PointwiseProgram& program = spec.epilogue;
  if (spec.operands.size() > 2 || program.outputs.size() != 1 ||
      program.outputs[0] != (program.steps.empty() ? 0 : program.values() - 1))
    return {};
  const auto is_of = [](const PointwiseStep& step, int first, int second) {
    const auto [a, b, rest] = step.operands;
    return ((a == first && b == second) || (a == second && b == first)) &&
           step.has_default_parameters();
  };
  if (products == 2) {
    if (!spec.operands.empty() || program.steps.size() != 2) return {};
    const PointwiseStep& f = program.steps[0];
    const PointwiseStep& mul = program.steps[1];
    if (operand_count(f.fn) != 1 || f.operands[0] != 0 || !f.has_default_parameters() ||
        mul.fn != PointwiseFn::mul || !is_of(mul, program.inputs, 1))
      return {};
    return {true, false, false, f.fn, true};
  }
  ChainStage::Finish finish = {true, !spec.operands.empty(), spec.operands.size() == 2};
  int value = 0;
  size_t i = 0;
  for (; i < spec.operands.size(); ++i) {
    if (i == program.steps.size()) return {};
    const PointwiseStep& add = program.steps[i];
    if (add.fn != PointwiseFn::add || !is_of(add, value, static_cast<int>(i) + 1)) return {};
    value = program.inputs + static_cast<int>(i);
  }
  if (i < program.steps.size()) {
    const PointwiseStep& last = program.steps[i++];
    if (operand_count(last.fn) != 1 || last.operands[0] != value || !last.has_default_parameters())
      return {};
    finish.f = last.fn;
  }
  return i == program.steps.size() ? finish : ChainStage::Finish{};
}

}  // namespace

ChainStage::ChainStage(const RowChainSpec::Stage& spec, DType dtype, bool is_last, size_t outputs,
                       std::span<const Int4Weight> int4)
    : spec_(spec), int4_(int4.begin(), int4.end()), program_(spec.epilogue) {
  const auto fail = [](const std::string& what) { throw Error("[row chain] expected " + what); };
  if (spec.weights.empty() || spec.weights.size() > 2)
    fail("one or two weights, got " + std::to_string(spec.weights.size()));
  n_ = spec.weights[0].dim() == 2 ? spec.weights[0].size(0) : 0;
  for (const Tensor& w : spec.weights) {
    if (w.dim() != 2 || w.dtype() != dtype || w.size(0) != n() ||
        (!spec.stacked && w.size(1) != spec.weights[0].size(1)))
      fail("weights of one shape and dtype, got " + to_string(w));
    k_ = spec.stacked ? k_ + w.size(1) : w.size(1);
  }
  const auto inputs = products() + static_cast<int>(spec.operands.size());
  const size_t results = static_cast<size_t>(spec.flows) + spec.stores.size();
  if (spec.epilogue.inputs != inputs || spec.epilogue.outputs.size() != results)
    fail("a program of " + std::to_string(inputs) + " inputs and " + std::to_string(results) +
         " outputs, got " + to_string(spec.epilogue));
  if (program_.has_row_reductions())
    fail("a program that needs no whole rows, got " + to_string(spec.epilogue));
  for (size_t o = 0; o < static_cast<size_t>(std::max(spec.flows, 0)); ++o)
    if (program_.output(o).extent != Extent::element)
      fail("column sums among the stores, got " + to_string(spec.epilogue));
  if (spec.flows < 1 || (is_last && spec.flows != 1))
    fail("one result of the last stage, got " + std::to_string(spec.flows));
  for (const int o : spec.stores)
    if (o < 1 || static_cast<size_t>(o) >= outputs)
      fail("stores among outputs 1 to " + std::to_string(outputs - 1) + ", got " +
           std::to_string(o));
  finish_ = finish_of(spec, products());
}

FloatType ChainStage::weights_type() const { return float_type(spec_.weights[0].dtype()); }

const PackedWeights& ChainStage::packed(const PanelLayout& layout,
                                        const simd::Rounding& rounding) const {
  const auto* const known =
      packed_.find([&](const auto& panels) { return panels->layout().holds_weights_as(layout); });
  if (known != nullptr) return (*known)->current();
  const auto join = spec_.stacked ? simd::Join::depth : simd::Join::columns;
  return packed_.push(share_panels(spec_.weights, layout, join, rounding, int4_))->current();
}

namespace {

// Rows before the first stage and between stages: of a thread's block, or of all threads (then the
// caller's).
thread_local simd::Scratch rows_scratch;
thread_local simd::Scratch norm_scratch;
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
        rounding_(spec.int4.empty() ? rounding_of(spec.bits) : rounding_of(spec.int4)),
        integer_rows_(spec.bits.activations == ActivationBits::int8),
        overlaps_(spec.overlaps),
        side_by_side_(spec.side_by_side) {
    if (!has_float_type(spec.dtype))
      throw Error("[row chain] expected f32, bf16 or f16, got " +
                  std::string(dtype_name(spec.dtype)));
    if (spec.stages.empty()) throw Error("[row chain] expected at least one stage, got none");
    for (const RowChainSpec::Stage& stage : spec.stages) outputs_ += stage.stores.size();
    std::span<const Int4Weight> int4 = spec.int4;
    for (const RowChainSpec::Stage& stage : spec.stages) {
      const bool is_last = side_by_side_ || &stage == &spec.stages.back();
      const size_t mine = int4.empty() ? 0 : stage.weights.size();
      ChainStage next(stage, spec.dtype, is_last, outputs_, int4.first(mine));
      int4 = int4.subspan(mine);
      const int64_t inputs = stages_.empty() ? next.k()
                             : side_by_side_ ? stages_[0].k()
                                             : stages_.back().flowing_columns();
      if (next.k() != inputs)
        throw Error("[row chain] expected a stage of " + std::to_string(inputs) + " inputs, got " +
                    to_string(stage.weights[0]));
      if (side_by_side_ && !stage.stores.empty())
        throw Error("[row chain] expected stages side by side of one result each, got " +
                    std::to_string(1 + stage.stores.size()));
      stages_.push_back(std::move(next));
    }
    if (side_by_side_) outputs_ = stages_.size();
    remember_plans();
    find_column_sums();
  }

  void run(int64_t rows, const MatrixView& x, std::span<const MatrixView> operands,
           std::span<const MatrixView> outputs) const override {
    if (outputs.size() != outputs_)
      throw Error("[row chain] expected " + std::to_string(outputs_) + " outputs, got " +
                  std::to_string(outputs.size()));
    const std::span<const ColumnSums> sums = clear_sums(rows);
    if (rows > 0) {
      const Call call = {x, prepare(rows, operands, outputs, sums)};
      if (side_by_side_) {
        run_side_by_side(call, rows);
      } else {
        run_as(recalled_plan(0, rows), call, rows);
      }
    }
    for (size_t o = 0; o < sums.size(); ++o)
      if (sum_columns_[o] > 0) sums[o].finish(outputs[o]);
  }

  // Of stages side by side, the first one's.
  RowChainPlan plan(int64_t rows) const override { return plan_of(0, rows); }

  bool tune(const KernelTuning& tuning) override {
    tuning_ = tuning;
    remember_plans();
    return true;
  }

  std::string kernel_name() const override {
    std::string name = std::string("epi_") + kernels().level_name() + "_row_chain_" +
                       std::string(dtype_name(dtype_)) + bits_name(rounding_, integer_rows_);
    if (norm_.kind != Norm::none) name += norm_.kind == Norm::rms ? "_rms" : "_layer_norm";
    if (side_by_side_) name += "_side_by_side";
    for (const ChainStage& s : stages_)
      name += "_" + std::to_string(s.k()) + "x" + std::to_string(s.n()) +
              (s.products() == 2 ? "x2" : "");
    return name;
  }

 private:
  // One run(): its rows, and what its threads share.
  struct Call {
    const MatrixView& x;
    std::span<const StageCall> stages;
  };

  // The stages that one plan is of: all, or the one of those side by side.
  std::span<const ChainStage> planned_stages(size_t i) const {
    return side_by_side_ ? std::span(stages_).subspan(i, 1) : std::span(stages_);
  }
  RowChainPlan plan_of(size_t i, int64_t rows) const {
    return plan_chain(rows, shape(planned_stages(i), rows), tuning_, num_threads(),
                      machine_rates());
  }
  const RowChainPlan& recalled_plan(size_t i, int64_t rows) const {
    return recall_plan(plan_keys_[i], rows, [this, i](int64_t m) { return plan_of(i, m); });
  }
  void remember_plans() {
    plan_keys_.clear();
    for (size_t i = 0; i < (side_by_side_ ? stages_.size() : 1); ++i)
      plan_keys_.push_back(next_plan_key());
  }

  void run_as(const RowChainPlan& p, const Call& call, int64_t rows) const {
    if (p.hidden_slices > 1) return run_slices(call, rows, p);
    const auto run_block = [&](int64_t b, int threads) {
      const RowRange block = rows_of_block(rows, p.row_unit, p.blocks, b);
      run_stages(call, block.first, block.last - block.first, threads);
    };
    if (p.splits_rows) return for_blocks(p, [&](int64_t b) { run_block(b, 1); });
    for (int64_t b = 0; b < p.blocks; ++b) run_block(b, p.threads);
  }

  // Stages run together where each is cut as it would be alone: no bit depends on the others.
  void run_side_by_side(const Call& call, int64_t rows) const {
    for (size_t first = 0; first < stages_.size();) {
      RowChainPlan p = recalled_plan(first, rows);
      size_t last = first + 1;
      for (; last < stages_.size(); ++last) {
        const RowChainPlan& next = recalled_plan(last, rows);
        if (call.stages[last].tiles != call.stages[first].tiles ||
            next.splits_rows != p.splits_rows || next.blocks != p.blocks ||
            next.row_unit != p.row_unit)
          break;
        p.threads = std::max(p.threads, next.threads);
      }
      run_as(p, {call.x, call.stages.subspan(first, last - first)}, rows);
      first = last;
    }
  }

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

  ChainShape shape(std::span<const ChainStage> stages, int64_t rows) const {
    const PanelKernel& many = kernels().of_many_rows();
    const int64_t width = many.layout.width;
    const auto bytes = static_cast<int64_t>(dtype_bytes(dtype_));
    ChainShape shape;
    int64_t weights = 0;
    const PanelKernel& kernel = kernels().of(rows);
    for (const ChainStage& s : stages) {
      weights += s.k() * s.n() * s.products();
      shape.stages.push_back({ceil_div(s.n(), width / s.products()), width, s.k(), bytes,
                              dtype_ == DType::bf16, tiles_pay(s, kernel)});
      // What flows on is of the type that the next kernel reads; the last result is computed in
      // f32.
      const FloatType flows = &s == &stages.back() ? FloatType::f32 : kernel.layout.rows;
      shape.widest_row_bytes = std::max(shape.widest_row_bytes,
                                        s.flowing_columns() * static_cast<int64_t>(size_of(flows)));
    }
    // Integer rows have one scale for all of a row.
    shape.may_slice = stages.size() == 2 && stages[0].spec().flows == 1 &&
                      stages[1].products() == 1 && rounding_.to == simd::Precision::same;
    shape.may_group = !has_sums_;
    // Two bytes each, as tiles count k.
    const int64_t tile_words = stages[0].k() * many.layout.row_bytes / 2;
    const bool has_groups = many.layout.has_groups;
    const int64_t weight_bytes = has_groups ? weights / 2 : weights * many.layout.weight_bytes;
    shape.block_rows = many.tiles != nullptr
                           ? simd::tile_block_rows(tile_words)
                           : likely_block_rows(many.has_tiles, weights, weights * bytes);
    // Column sums are of kColumnSumRows rows each.
    shape.row_unit = has_sums_ ? kColumnSumRows : ChainKernels::row_unit();
    shape.tile_rows = has_sums_ ? kColumnSumRows : many.mr;
    if (many.tiles != nullptr)
      shape.shared_rows = simd::shared_tile_rows(tile_words, weight_bytes, has_groups);
    shape.result_columns = stages.back().n();
    return shape;
  }

  ChainKernels kernels() const {
    return {float_type(dtype_), rounding_, integer_rows_, tuning_.widens};
  }

  template <class Body>
  static void for_blocks(const RowChainPlan& p, Body&& body) {
    if (p.threads > 1) return parallel_blocks(p.blocks, body);
    for (int64_t b = 0; b < p.blocks; ++b) body(b);
  }

  // A product by itself that is this small takes less time than it takes to tile its rows.
  bool tiles_pay(const ChainStage& stage, const PanelKernel& kernel) const {
    constexpr int64_t kLeastWeights = 128 << 10;
    const bool is_alone = stages_.size() == 1 || side_by_side_;
    return kernel.tiles != nullptr && (integer_rows_ || !is_alone || stage.products() > 1 ||
                                       stage.k() * stage.n() >= kLeastWeights);
  }

  // Of a stage, or of those side by side, which read the same strips.
  int64_t columns_of_rows(const ChainStage& stage) const {
    if (!side_by_side_) return stage.n() * stage.products();
    int64_t columns = 0;
    for (const ChainStage& s : stages_) columns += s.n() * s.products();
    return columns;
  }

  // What the stages of one call have in common for all threads. In memory of this thread.
  std::span<const StageCall> prepare(int64_t rows, std::span<const MatrixView> operands,
                                     std::span<const MatrixView> outputs,
                                     std::span<const ColumnSums> sums) const {
    call_stages.clear();
    const PanelKernel& kernel = kernels().of(rows);
    for (const ChainStage& stage : stages_) {
      const PackedWeights& weights = stage.packed(kernel.layout, rounding_);
      const auto mine = side_by_side_ ? outputs.subspan(call_stages.size(), 1) : outputs;
      call_stages.push_back({&stage, &weights, &kernel, weights.padded_k(),
                             overlaps_ ? kernel.overlap_rows : 0, tuning_.prefetches,
                             tiles_pay(stage, kernel), strips_pay(kernel, columns_of_rows(stage)),
                             false, nullptr, operands, mine, sums});
    }
    if (rows < simd::kLeastTileRows) return call_stages;  // what follows is for tiles
    for (StageCall& call : call_stages)
      if (side_by_side_ || &call == &call_stages.back())
        call.is_large = simd::exceeds_caches(rows * call.stage->n() *
                                             static_cast<int64_t>(dtype_bytes(dtype_)));
    // After the last stage the next block of rows begins anew.
    for (size_t i = 0; i < call_stages.size(); ++i)
      call_stages[i].next = call_stages[(i + 1) % call_stages.size()].weights->panel(0, 0);
    return call_stages;
  }

  // x's rows as the first stage wants them: normalised, in its type; where they lie if that is so.
  StageRows first_rows(const Call& call, int64_t row, int64_t m, float* scratch,
                       int threads = 1) const {
    const MatrixView& x = call.x;
    const StageCall& first = call.stages[0];
    const FloatType have = float_type(x.dtype);
    const FloatType want = rows_type(first);
    const int64_t k = stages_[0].k();
    const char* const from =
        static_cast<const char*>(x.data) + row * x.row_stride * static_cast<int64_t>(size_of(have));
    const bool is_ready = norm_.kind == Norm::none && have == want;
    const StageRows rows = rows_at(first, m, scratch);
    if (rows.tiles.data != nullptr) {
      const auto tile_rows = [&](int64_t begin, int64_t end) {
        if (is_ready) {
          const void* const these = simd::advance(from, have, begin * x.row_stride);
          simd::pack_tile_rows({these, have, x.row_stride, 1}, end - begin, k, rows.tiles, begin);
          return;
        }
        // Some rows at a time, in L1.
        constexpr int64_t kSome = 8;
        float* const some = norm_scratch.get(static_cast<size_t>(kSome * first.padded_k));
        for (int64_t i = begin; i < end; i += kSome) {
          const int64_t count = std::min(kSome, end - i);
          normalise_rows(norm_, {simd::advance(from, have, i * x.row_stride), have, x.row_stride},
                         count, k, {some, want, first.padded_k});
          for (int64_t j = 0; j < count; ++j)
            set_row(first, rows, i + j, want, simd::advance(some, want, j * first.padded_k));
        }
      };
      constexpr int64_t kElementsPerThread = 32 << 10;
      if (threads == 1 || m * k < 2 * kElementsPerThread) {
        tile_rows(0, m);
      } else {
        parallel_for(m, std::max<int64_t>(simd::kTileBlock, kElementsPerThread / k), tile_rows);
      }
      return rows;
    }
    if (is_ready && k == first.padded_k) return {from, x.row_stride};
    normalise_rows(norm_, {from, have, x.row_stride}, m, k, {scratch, want, rows_stride(first)});
    return rows;
  }

  // Panels of stages that read the same rows: all of them in one order.
  static int64_t panels_of(std::span<const StageCall> stages) {
    int64_t panels = 0;
    for (const StageCall& stage : stages) panels += stage.weights->panels();
    return panels;
  }

  // Pieces of their panels: as many as threads, or some more that are not small. A thread that
  // loses its core then keeps the others waiting for one piece, not for half of the weights.
  static int64_t pieces_of_panels(std::span<const StageCall> stages, int64_t m, int threads) {
    constexpr int64_t kPieceBytes = 256 << 10;
    constexpr int64_t kMostPerThread = 8;
    const int64_t panels = panels_of(stages);
    const int64_t bytes = panels * stages[0].weights->panel_bytes(stages[0].padded_k);
    int64_t pieces = std::clamp<int64_t>(bytes / kPieceBytes, threads, kMostPerThread * threads);
    // Tile products may read all rows again for each piece.
    if (reads_tiles(stages[0], m)) {
      int64_t blocks = 0;
      for (const StageCall& stage : stages) blocks += tile_blocks_of(stage);
      const int64_t chunks = blocks / simd::kTileChunk;
      pieces = std::max<int64_t>(threads, std::min(pieces, chunks / threads * threads));
    }
    return std::min(pieces, panels);
  }

  // Rows [row, row + m) through stages that read the same rows, on `threads` threads. `to`: of a
  // stage that makes the next one's rows.
  static void run_panels(std::span<const StageCall> stages, const StageFlow& to,
                         const StageRows& read, int64_t row, int64_t m, int threads) {
    const int64_t panels = panels_of(stages);
    const auto body = [&](int64_t first, int64_t last) {
      for (const StageCall& stage : stages) {
        const int64_t mine = stage.weights->panels();
        if (first < mine && last > 0)
          run_stage(stage, to, read, row, m, std::max<int64_t>(first, 0), std::min(last, mine));
        first -= mine;
        last -= mine;
      }
    };
    if (threads == 1) return body(0, panels);
    const int64_t pieces = pieces_of_panels(stages, m, threads);
    parallel_blocks(pieces, [&](int64_t piece) {
      body(panels * piece / pieces, panels * (piece + 1) / pieces);
    });
  }

  // Rows [row, row + m) through all stages, each on `threads` threads.
  void run_stages(const Call& call, int64_t row, int64_t m, int threads) const {
    if (side_by_side_) {
      const StageCall& first = call.stages[0];
      float* const memory = rows_scratch.get(static_cast<size_t>(rows_floats(first, m)));
      const StageRows rows = first_rows(call, row, m, memory, threads);
      return run_panels(call.stages, {}, rows_for_kernel(first, rows, m, threads), row, m, threads);
    }
    // Two areas in turn: a stage reads one and writes the other.
    std::array<int64_t, 2> floats{};
    for (size_t i = 0; i < stages_.size(); ++i)
      floats[i % 2] = std::max(floats[i % 2], rows_floats(call.stages[i], m));
    float* const memory = rows_scratch.get(static_cast<size_t>(floats[0] + floats[1]));
    const std::array<float*, 2> area = {memory, memory + floats[0]};
    StageRows a = first_rows(call, row, m, area[0], threads);
    for (size_t i = 0; i < stages_.size(); ++i) {
      const bool is_last = i + 1 == stages_.size();
      const StageCall& stage = call.stages[i];
      const StageFlow to =
          is_last ? StageFlow() : stage_flow(stage, call.stages[i + 1], m, area[(i + 1) % 2]);
      run_panels(call.stages.subspan(i, 1), to, rows_for_kernel(stage, a, m, threads), row, m,
                 threads);
      if (!is_last) a = to.read();
    }
  }

  // Two stages, p.blocks groups of rows times p.hidden_slices.
  void run_slices(const Call& call, int64_t rows, const RowChainPlan& p) const {
    const StageCall& first = call.stages[0];
    const StageCall& second = call.stages[1];
    if (reads_tiles(first, p.block_rows)) return run_tile_slices(call, rows, p);
    const int64_t each = second.weights->columns_per_panel();
    const int64_t panel_floats = rows * each;
    const int64_t slice_floats = second.weights->panels() * panel_floats;
    float* const slices = slices_scratch.get(static_cast<size_t>(p.hidden_slices * slice_floats));
    float* const memory =
        rows_scratch.get(static_cast<size_t>(rows_floats(first, rows) + rows_floats(second, rows)));
    const StageRows x = first_rows(call, 0, rows, memory);
    const MatrixView hidden =
        stage_flow(first, second, rows, memory + rows_floats(first, rows)).rows;
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
        StageFlow to{hidden};
        to.rows.data = const_cast<void*>(mine.data);
        run_stage(first, to, rows_from(x, rows_type(first), row), row, m, begin_panel, end_panel);
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

  // The same with tiled rows, of which each slice has its own.
  void run_tile_slices(const Call& call, int64_t rows, const RowChainPlan& p) const {
    const StageCall& first = call.stages[0];
    const StageCall& second = call.stages[1];
    const int64_t slice_floats = tile_sums_floats(second, p.block_rows);
    float* const slices =
        slices_scratch.get(static_cast<size_t>(p.blocks * p.hidden_slices * slice_floats));
    const int64_t panels = first.weights->panels();
    const int64_t each = first.weights->columns_per_panel();
    const auto slice = [&](int64_t i) {
      const int64_t row = i / p.hidden_slices * p.block_rows;
      const int64_t m = std::min(p.block_rows, rows - row);
      const int64_t begin = panels * (i % p.hidden_slices) / p.hidden_slices;
      const int64_t end = panels * (i % p.hidden_slices + 1) / p.hidden_slices;
      const int64_t k = end == panels ? second.padded_k : end * each;
      const int64_t x_floats = rows_floats(first, m);
      const int64_t hidden_floats =
          simd::TiledRows::bytes_of(m, (k - begin * each) / simd::kTileK) / int64_t{sizeof(float)};
      float* const memory = rows_scratch.get(static_cast<size_t>(x_floats + hidden_floats));
      StageFlow hidden;
      hidden.tiles = tiled_rows(m, k - begin * each, memory + x_floats);
      hidden.column = begin * each;
      hidden.tiles.clear_from(std::min(first.stage->n(), k) - hidden.column);
      StageCall hidden_stage = first;
      hidden_stage.next = second.weights->tiles(hidden.column).data;
      run_stage(hidden_stage, hidden, first_rows(call, row, m, memory), row, m, begin, end);
      multiply_tile_slice(second, hidden.tiles, hidden.column, slices + i * slice_floats);
    };
    const int64_t count = p.blocks * p.hidden_slices;
    if (p.threads == 1) {
      for (int64_t i = 0; i < count; ++i) slice(i);
    } else {
      parallel_for(count, 1, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) slice(i);
      });
    }
    sum_tile_slices(call, rows, p, slices);
  }

  // The slices' sums in their order, then the last stage's program: blocks of columns of a group of
  // rows at a time.
  void sum_tile_slices(const Call& call, int64_t rows, const RowChainPlan& p, float* slices) const {
    const StageCall& second = call.stages[1];
    const int64_t slice_floats = tile_sums_floats(second, p.block_rows);
    const int64_t blocks = tile_blocks_of(second);
    const int64_t worth = p.blocks * p.hidden_slices * slice_floats / kSliceSumsPerThread;
    const int64_t adding = std::clamp<int64_t>(worth, 1, p.threads);
    const int64_t grain = std::max<int64_t>(1, p.blocks * blocks / adding);
    parallel_for(p.blocks * blocks, grain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t group = i / blocks;
        const int64_t row = group * p.block_rows;
        const int64_t m = std::min(p.block_rows, rows - row);
        const int64_t block_floats = simd::TiledRows::panels_of(m) * simd::kBlockSums;
        float* const sums =
            slices + group * p.hidden_slices * slice_floats + i % blocks * block_floats;
        for (int64_t s = 1; s < p.hidden_slices; ++s)
          simd::row_kernels().accumulate(sums + s * slice_floats, sums,
                                         static_cast<size_t>(block_floats));
        finish_tile_block(second, row, m, i % blocks, sums);
      }
    });
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
    parallel_for(panels * pieces, grain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t row = i % pieces * piece;
        const int64_t m = std::min(piece, rows - row);
        float* const sums = slices + (i / pieces * rows + row) * each;
        for (int64_t s = 1; s < p.hidden_slices; ++s)
          simd::row_kernels().accumulate(sums + s * panels * rows * each, sums,
                                         static_cast<size_t>(m * each));
        finish_panel(second, row, m, i / pieces, sums);
      }
    });
  }

  DType dtype_;
  RowChainSpec::Norm norm_;
  simd::Rounding rounding_;
  bool integer_rows_;
  bool overlaps_;
  bool side_by_side_;
  KernelTuning tuning_;
  std::vector<ChainStage> stages_;
  std::vector<uint64_t> plan_keys_;  // one, or one for each stage of those side by side
  size_t outputs_ = 1;
  std::vector<int64_t> sum_columns_;  // by output; 0: no column sum
  bool has_sums_ = false;
};

}  // namespace

std::unique_ptr<RowChain> make_row_chain(const RowChainSpec& spec) {
  return std::make_unique<CpuRowChain>(spec);
}

}  // namespace epilogue::cpu
