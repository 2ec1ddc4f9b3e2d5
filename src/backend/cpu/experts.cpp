// SPDX-License-Identifier: Apache-2.0
// y[t] = sum over j of weights[t, j] * expert index[t, j] of x[t], in one call.
//
//   sort the pairs (t, j) by expert: a slot for each, blocks of slots of one expert
//   blocks of many rows           a thread takes a block:    gather, gate and up, program, down
//   blocks of few rows            all threads share:         panels of gate and up, program;
//                                 after a barrier            panels of down
//   y[t] = sum over j of weights[t, j] * down's result at the pair's slot
//
// Few rows wait for the weights: each thread streams its own part of each active expert's, once,
// and pieces of equal bytes are handed out one at a time, so that no thread waits long. With many
// rows a block's hidden values stay in a thread's L2 and there is no barrier; the largest blocks
// are handed out first. Blocks depend on the indices alone, panels do not depend on each other and
// sums have a fixed order: no bit depends on the number of threads.
//
// Tokens come in groups whose results before the sum take kScratchFloats at most.
#include "core/experts.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>

#include "backend/cpu/chain/chain_bits.h"
#include "backend/cpu/chain/row_chain.h"
#include "backend/cpu/float_type.h"
#include "backend/cpu/kernel_lists.h"
#include "backend/cpu/simd/panels/operand.h"
#include "backend/cpu/simd/pointwise.h"
#include "backend/cpu/simd/scratch.h"
#include "base/ceil_div.h"
#include "base/machine.h"
#include "base/thread_pool.h"
#include "base/units.h"
#include "core/allocator.h"
#include "core/fused_call.h"
#include "epilogue/base/error.h"

namespace epilogue::cpu {

// The maker of kExperts: cpu_backend.cpp lists it.
std::unique_ptr<FusedKernel> make_experts(const FusedSpec& spec);

namespace {

using simd::FloatType;
using simd::PackedWeights;
using simd::PanelKernel;
using simd::PanelLayout;

// 128 MiB: with 8 of 128 experts of 2048 columns a group of tokens gives each expert 128 rows.
constexpr int64_t kScratchFloats = int64_t{32} << 20;
// Rows of a block, about: they and what becomes of them stay in L2 while panels pass.
constexpr int64_t kExpertRows = 96;
constexpr int64_t kExpertRowsOfTiles = 192;
// From so many rows on a block is one thread's, if that gives each thread so many blocks.
constexpr int64_t kBlockOfOneThread = 32;
constexpr int64_t kBlocksPerThread = 4;
// Pieces of panels for each thread: one that loses its core keeps the others waiting for one.
constexpr int64_t kPiecesPerThread = 12;
// Elements that a second thread must have to copy or to sum.
constexpr int64_t kExpertGrain = int64_t{1} << 15;
// What several threads must save.
constexpr double kLeastSavedNs = 1500;
constexpr size_t kCacheLine = 64;

// Of the caller, for all threads of a call; and of a thread, for a block that is its own.
thread_local simd::Scratch call_scratch;
thread_local simd::Scratch block_scratch;
thread_local simd::Scratch sum_scratch;

// Panels of one product of every expert, in one piece of memory: experts are smaller than a huge
// page, or not much larger. Pages of experts that no token chose are never touched.
class ExpertPanels {
 public:
  ExpertPanels(const ExpertsSpec& spec, size_t first, size_t count, const PanelLayout& layout)
      : layout_(layout), rounding_(rounding_of(spec.bits)), entries_(spec.experts.size()) {
    for (const ExpertsSpec::Expert& expert : spec.experts)
      weights_.push_back(std::span(expert.weights).subspan(first, count));
    expert_bytes_ = bytes_of_one(weights_[0], layout, rounding_);
    memory_ = allocate_large(expert_bytes_ * entries_.size());
  }
  ~ExpertPanels() { count_packed_bytes(-packed_bytes_.load()); }
  ExpertPanels(const ExpertPanels&) = delete;
  ExpertPanels& operator=(const ExpertPanels&) = delete;

  static size_t bytes_of_one(std::span<const Tensor> weights, const PanelLayout& layout,
                             const simd::Rounding& rounding) {
    const size_t bytes = PackedWeights::bytes_of(layout, weights[0].size(1), weights[0].size(0),
                                                 static_cast<int>(weights.size()), rounding.groups);
    return (bytes + kCacheLine - 1) / kCacheLine * kCacheLine;
  }

  const PanelLayout& layout() const { return layout_; }

  // As the weights are now. Packs them at an expert's first call, and in place where they were
  // written since. Thread-safe.
  const PackedWeights& current(size_t expert) {
    Entry& entry = entries_[expert];
    if (entry.versions.load(std::memory_order_acquire) != versions(expert)) pack(expert);
    return *entry.panels;
  }

 private:
  struct Entry {
    std::atomic<uint64_t> versions{~uint64_t{0}};
    std::unique_ptr<PackedWeights> panels;
  };

  uint64_t versions(size_t expert) const {
    const std::span<const Tensor> w = weights_[expert];
    return uint64_t{w.back().version()} << 32 | w[0].version();
  }

  void pack(size_t expert) {
    const std::lock_guard<std::mutex> lock(packing_);
    Entry& entry = entries_[expert];
    const uint64_t now = versions(expert);
    if (entry.versions.load(std::memory_order_relaxed) == now) return;
    std::vector<simd::PackedPart> parts;
    for (const Tensor& w : weights_[expert])  // [n, k]: B is its transpose
      parts.push_back(
          {{w.data(), float_type(w.dtype()), w.strides()[1], w.strides()[0]}, w.size(1)});
    if (entry.panels != nullptr) {
      entry.panels->repack(parts);
    } else {
      entry.panels = std::make_unique<PackedWeights>(
          parts, weights_[expert][0].size(0), layout_, simd::Join::columns, rounding_,
          static_cast<char*>(memory_.get()) + expert * expert_bytes_);
      const auto bytes = static_cast<int64_t>(entry.panels->bytes());
      packed_bytes_ += bytes;
      count_packed_bytes(bytes);
    }
    entry.versions.store(now, std::memory_order_release);
  }

  const PanelLayout layout_;
  const simd::Rounding rounding_;
  std::vector<std::span<const Tensor>> weights_;  // by expert
  size_t expert_bytes_ = 0;
  LargeMemory memory_;
  std::vector<Entry> entries_;
  std::mutex packing_;
  std::atomic<int64_t> packed_bytes_{0};
};

// One of the two stages of all experts.
class ExpertStage {
 public:
  ExpertStage(const ExpertsSpec& spec, size_t first, size_t count, const PointwiseProgram& program,
              bool is_last)
      : stage_(stage_of(spec, first, count, program), spec.dtype, is_last, 1),
        rounding_(rounding_of(spec.bits)),
        integer_rows_(spec.bits.activations == ActivationBits::int8),
        first_(first),
        count_(count) {
    for (const ExpertsSpec::Expert& expert : spec.experts) {
      std::vector<MatrixView> views;
      for (const Tensor& b : std::span(expert.biases).subspan(first, count))
        if (b.defined()) views.push_back({b.data(), b.dtype(), 0, b.strides()[0]});
      biases_.push_back(std::move(views));
    }
  }

  const ChainStage& stage() const { return stage_; }
  const std::vector<MatrixView>& biases(size_t expert) const { return biases_[expert]; }

  // One layout for all numbers of rows, so that weights are packed once: that for few, which reads
  // bf16 as it is where the one for many would have it widened.
  const PanelKernel& kernel() const { return kernels().of(1); }
  // The kernel for a block of `rows`: of that layout, or that of few rows.
  const PanelKernel& kernel(int64_t rows) const {
    const PanelKernel& few = kernel();
    if (rounding_.to != simd::Precision::i4) return few;
    const PanelKernel& wanted = kernels().of(rows);
    return wanted.layout.holds_weights_as(few.layout) ? wanted : few;
  }
  const simd::Rounding& rounding() const { return rounding_; }

  ExpertPanels& panels(const ExpertsSpec& spec, const PanelLayout& layout) const {
    const auto fits = [&](const auto& p) { return layout.holds_weights_as(p->layout()); };
    if (const auto* known = panels_.find(fits)) return **known;
    const std::lock_guard<std::mutex> lock(*adding_);
    if (const auto* known = panels_.find(fits)) return **known;
    return *panels_.push(std::make_unique<ExpertPanels>(spec, first_, count_, layout));
  }

  int64_t packed_bytes(const ExpertsSpec& spec) const {
    const std::span<const Tensor> weights =
        std::span(spec.experts[0].weights).subspan(first_, count_);
    return static_cast<int64_t>(ExpertPanels::bytes_of_one(weights, kernel().layout, rounding_) *
                                spec.experts.size());
  }

 private:
  ChainKernels kernels() const { return {stage_.weights_type(), rounding_, integer_rows_}; }
  static RowChainSpec::Stage stage_of(const ExpertsSpec& spec, size_t first, size_t count,
                                      const PointwiseProgram& program) {
    RowChainSpec::Stage stage;
    const ExpertsSpec::Expert& expert = spec.experts[0];
    for (size_t i = first; i < first + count; ++i) {
      stage.weights.push_back(expert.weights[i]);
      if (expert.biases[i].defined())
        stage.operands.push_back(static_cast<int>(stage.operands.size()));
    }
    stage.epilogue = program;
    return stage;
  }

  ChainStage stage_;
  simd::Rounding rounding_;
  bool integer_rows_;
  size_t first_;
  size_t count_;
  std::vector<std::vector<MatrixView>> biases_;  // by expert: those that are there
  std::unique_ptr<std::mutex> adding_ = std::make_unique<std::mutex>();
  mutable AppendList<std::unique_ptr<ExpertPanels>> panels_;  // one for each layout in use
};

// Pairs of a token and a choice, sorted by expert; those of one expert by token.
struct Routing {
  std::vector<int64_t> first;  // slot of each expert's first pair, and the end
  std::vector<int64_t> token;  // by slot
  std::vector<int64_t> slot;   // by token * choices + choice; -1: no expert

  int64_t slots() const { return first.back(); }
};

int64_t index_of(const MatrixView& view, int64_t row) {
  return static_cast<const int64_t*>(view.data)[row * view.row_stride];
}

void sort_by_expert(std::span<const MatrixView> index, int64_t begin, int64_t tokens,
                    int64_t experts, Routing& r) {
  const auto choices = static_cast<int64_t>(index.size());
  r.first.assign(static_cast<size_t>(experts) + 2, 0);
  for (int64_t t = 0; t < tokens; ++t)
    for (const MatrixView& view : index) {
      const int64_t e = index_of(view, begin + t);
      if (e < 0 || e > experts)
        throw Error("[fused_experts] expected indices of experts from 0 to " +
                    std::to_string(experts - 1) + ", or " + std::to_string(experts) +
                    " for none, got " + std::to_string(e));
      ++r.first[static_cast<size_t>(e) + 1];
    }
  for (size_t e = 1; e < r.first.size(); ++e) r.first[e] += r.first[e - 1];
  r.first.pop_back();  // what chose no expert
  r.token.resize(static_cast<size_t>(r.slots()));
  r.slot.resize(static_cast<size_t>(tokens * choices));
  thread_local std::vector<int64_t> next;
  next.assign(r.first.begin(), r.first.end());
  for (int64_t t = 0; t < tokens; ++t)
    for (int64_t j = 0; j < choices; ++j) {
      const int64_t e = index_of(index[static_cast<size_t>(j)], begin + t);
      const int64_t slot = e == experts ? -1 : next[static_cast<size_t>(e)]++;
      r.slot[static_cast<size_t>(t * choices + j)] = slot;
      if (slot >= 0) r.token[static_cast<size_t>(slot)] = t;
    }
}

// Rows of one expert, in slots [slot, slot + rows).
struct ExpertBlock {
  int64_t slot = 0;
  int64_t rows = 0;
  StageCall hidden;  // the two stages
  StageCall result;
  // Where threads share the block: its rows, and their hidden values.
  StageRows from;
  StageFlow flow;
};

// What a thread takes at a time of a shared block: panels [first, last) of a stage.
struct Piece {
  const ExpertBlock* block;
  int64_t first;
  int64_t last;
};

// In memory of the calling thread, from call to call.
struct CallState {
  Routing routing;
  std::vector<ExpertBlock> blocks;
  std::vector<ExpertBlock*> whole;   // by one thread each
  std::vector<ExpertBlock*> shared;  // by all threads
  std::vector<Piece> hidden, result;
};
thread_local CallState call_state;

// body(i) for i in [0, count), in that order as far as there are threads.
template <class Body>
void hand_out(int64_t count, int threads, const Body& body) {
  if (threads == 1 || count <= 1) {
    for (int64_t i = 0; i < count; ++i) body(i);
    return;
  }
  std::atomic<int64_t> next{0};
  parallel_for(std::min<int64_t>(threads, count), 1, [&](int64_t begin, int64_t end) {
    for (int64_t thread = begin; thread < end; ++thread)
      for (int64_t i = 0; (i = next.fetch_add(1, std::memory_order_relaxed)) < count;) body(i);
  });
}

class CpuExperts final : public ExpertsKernel {
 public:
  explicit CpuExperts(const ExpertsSpec& spec)
      : s_(spec),
        hidden_(s_, 0, s_.experts[0].weights.size() - 1, s_.hidden, false),
        result_(s_, s_.experts[0].weights.size() - 1, 1, s_.result, true) {
    if (!has_float_type(spec.dtype))
      throw Error("[fused_experts] expected f32, bf16 or f16, got " +
                  std::string(dtype_name(spec.dtype)));
  }

  void run(int64_t tokens, std::span<const MatrixView> operands,
           std::span<const MatrixView> results) const override {
    const size_t choices = (operands.size() - 1) / 2;
    const Call call = {operands[0], operands.subspan(1, choices),
                       operands.subspan(1 + choices, choices), results[0]};
    // Every index, before anything is written.
    CallState& state = call_state;
    const int64_t group = group_of(static_cast<int64_t>(choices));
    if (tokens > group)
      for (int64_t begin = 0; begin < tokens; begin += group)
        sort_by_expert(call.index, begin, std::min(group, tokens - begin), experts(),
                       state.routing);
    for (int64_t begin = 0; begin < tokens; begin += group)
      run_group(call, begin, std::min(group, tokens - begin), state);
  }

  KernelInfo info(int64_t rows, std::string_view ops) const override {
    KernelInfo info;
    info.name = fused_kernel_name(prefix() + bits_name(hidden_.rounding(), has_integer_rows()),
                                  "experts", ops, s_.dtype);
    info.grid = {experts(), 1, 1};
    info.block = {std::min(rows, most_rows()), n_hidden(), n_result()};
    info.threads = num_threads();
    return info;
  }

  std::string describe(int64_t /*rows*/) const override {
    return prefix() + bits_name(hidden_.rounding(), has_integer_rows()) + "_experts, " +
           std::to_string(experts()) + " of " + std::to_string(k()) + " x " +
           std::to_string(n_hidden()) + " x " + std::to_string(n_result()) + ", " +
           format_bytes(static_cast<double>(packed_bytes())) + " of packed weights";
  }

  int64_t packed_bytes() const override {
    return hidden_.packed_bytes(s_) + result_.packed_bytes(s_);
  }

 private:
  struct Call {
    const MatrixView& x;
    std::span<const MatrixView> index;
    std::span<const MatrixView> weights;
    const MatrixView& y;
  };

  int64_t experts() const { return static_cast<int64_t>(s_.experts.size()); }
  int64_t k() const { return hidden_.stage().k(); }
  int64_t n_hidden() const { return hidden_.stage().n(); }
  int64_t n_result() const { return result_.stage().n(); }

  bool has_integer_rows() const { return s_.bits.activations == ActivationBits::int8; }

  std::string prefix() const {
    return "epi_" + ChainKernels{float_type(s_.dtype), {}}.level_name();
  }

  // Tokens of a group: their pairs' results are what a call keeps.
  int64_t group_of(int64_t choices) const {
    return std::max<int64_t>(1, kScratchFloats / std::max<int64_t>(1, n_result() * choices));
  }

  int64_t most_rows() const {
    return hidden_.kernel().has_tiles ? kExpertRowsOfTiles : kExpertRows;
  }

  StageCall call_of(const ExpertStage& stage, const PanelKernel& kernel, ExpertPanels& panels,
                    size_t expert) const {
    StageCall call;
    call.stage = &stage.stage();
    call.weights = &panels.current(expert);
    call.kernel = &kernel;
    call.padded_k = call.weights->padded_k();
    call.overlap_rows = kernel.overlap_rows;
    call.tiles = kernel.tiles != nullptr;
    call.operands = stage.biases(expert);
    return call;
  }

  // Blocks of all experts that tokens chose. Packs their weights where nobody did.
  void make_blocks(const Routing& routing, std::vector<ExpertBlock>& blocks) const {
    blocks.clear();
    ExpertPanels& hidden_panels = hidden_.panels(s_, hidden_.kernel().layout);
    ExpertPanels& result_panels = result_.panels(s_, result_.kernel().layout);
    for (size_t e = 0; e + 1 < routing.first.size(); ++e) {
      const int64_t rows = routing.first[e + 1] - routing.first[e];
      if (rows == 0) continue;
      // Blocks of an expert differ by few rows: one kernel serves all.
      const PanelKernel& hidden = hidden_.kernel(std::min(rows, most_rows()));
      const PanelKernel& result = result_.kernel(std::min(rows, most_rows()));
      ExpertBlock block;
      block.hidden = call_of(hidden_, hidden, hidden_panels, e);
      block.result = call_of(result_, result, result_panels, e);
      const int64_t each = even_piece(rows, most_rows(), hidden.mr);
      for (int64_t row = 0; row < rows; row += each) {
        block.slot = routing.first[e] + row;
        block.rows = std::min(each, rows - row);
        blocks.push_back(block);
      }
    }
  }

  // Of one panel of a stage, on one core: arithmetic, or the weights' way.
  static double panel_ns(const StageCall& call, int64_t rows, const MachineRates& rates) {
    const PanelLayout& layout = call.weights->layout();
    const auto weights = static_cast<double>(layout.width * call.padded_k);
    const bool is_bf16 = layout.rows == FloatType::bf16;
    const double flops_per_ns = is_bf16 ? rates.bf16_flops_per_ns : rates.f32_flops_per_ns;
    const auto bytes = static_cast<double>(call.weights->panel_bytes(call.padded_k));
    return std::max(bytes / rates.stream_bytes_per_ns,
                    2 * weights * static_cast<double>(rows) / flops_per_ns);
  }
  static double stage_ns(const StageCall& call, int64_t rows, const MachineRates& rates) {
    return static_cast<double>(call.weights->panels()) * panel_ns(call, rows, rates);
  }

  // All, or one where handing work over would cost more than it saves.
  static int threads_for(std::span<const ExpertBlock> blocks, const MachineRates& rates) {
    double alone = 0;
    for (const ExpertBlock& b : blocks)
      alone += stage_ns(b.hidden, b.rows, rates) + stage_ns(b.result, b.rows, rates);
    const int threads = num_threads();
    const double together = alone / threads + 3 * rates.handoff_ns + kLeastSavedNs;
    return together < alone ? threads : 1;
  }

  // Pieces of a stage of the blocks that threads share, of about equal time.
  static void cut(std::span<ExpertBlock* const> blocks, StageCall ExpertBlock::*stage, int threads,
                  const MachineRates& rates, std::vector<Piece>& pieces) {
    pieces.clear();
    double all = 0;
    for (const ExpertBlock* b : blocks) all += stage_ns(b->*stage, b->rows, rates);
    const double wanted = all / static_cast<double>(threads * kPiecesPerThread);
    for (const ExpertBlock* b : blocks) {
      const int64_t panels = (b->*stage).weights->panels();
      const auto count = std::clamp<int64_t>(
          static_cast<int64_t>(stage_ns(b->*stage, b->rows, rates) / wanted + 0.5), 1, panels);
      for (int64_t i = 0; i < count; ++i)
        pieces.push_back({b, panels * i / count, panels * (i + 1) / count});
    }
  }

  // Which blocks are one thread's, the largest first, and which are shared.
  static void share_out(std::vector<ExpertBlock>& blocks, int threads, CallState& state) {
    state.whole.clear();
    state.shared.clear();
    const auto is_large = [](const ExpertBlock& b) { return b.rows >= kBlockOfOneThread; };
    const bool has_wholes = std::ranges::count_if(blocks, is_large) >= kBlocksPerThread * threads;
    for (ExpertBlock& b : blocks)
      (has_wholes && is_large(b) ? state.whole : state.shared).push_back(&b);
    std::ranges::stable_sort(state.whole, std::greater<>(), &ExpertBlock::rows);
  }

  void run_group(const Call& call, int64_t begin, int64_t tokens, CallState& state) const {
    sort_by_expert(call.index, begin, tokens, experts(), state.routing);
    make_blocks(state.routing, state.blocks);
    const MachineRates rates = machine_rates();
    const int threads = threads_for(state.blocks, rates);
    share_out(state.blocks, threads, state);

    int64_t floats = state.routing.slots() * n_result();
    for (const ExpertBlock* b : state.shared)
      floats += rows_floats(b->hidden, b->rows) + rows_floats(b->result, b->rows);
    float* const pairs = call_scratch.get(static_cast<size_t>(floats));
    const MatrixView out{pairs, DType::f32, n_result(), 1};
    for (ExpertBlock& b : state.blocks) b.result.outputs = {&out, 1};

    const Rows rows{call.x, begin, state.routing.token};
    place(rows, state.shared, pairs + state.routing.slots() * n_result());
    cut(state.shared, &ExpertBlock::hidden, threads, rates, state.hidden);
    const auto wholes = static_cast<int64_t>(state.whole.size());
    hand_out(wholes + static_cast<int64_t>(state.hidden.size()), threads, [&](int64_t i) {
      if (i < wholes) return run_whole(rows, *state.whole[static_cast<size_t>(i)]);
      const Piece& p = state.hidden[static_cast<size_t>(i - wholes)];
      const ExpertBlock& b = *p.block;
      run_panels(b.hidden, b.flow, b.from, b.slot, b.rows, p.first, p.last);
    });
    cut(state.shared, &ExpertBlock::result, threads, rates, state.result);
    hand_out(static_cast<int64_t>(state.result.size()), threads, [&](int64_t i) {
      const Piece& p = state.result[static_cast<size_t>(i)];
      const ExpertBlock& b = *p.block;
      run_panels(b.result, {}, b.flow.read(), b.slot, b.rows, p.first, p.last);
    });
    sum_pairs(call, begin, tokens, state.routing, pairs);
  }

  // x's rows by slot.
  struct Rows {
    const MatrixView& x;
    int64_t begin;  // token 0 of the group
    const std::vector<int64_t>& token;

    const char* at(int64_t slot) const {
      const int64_t row = begin + token[static_cast<size_t>(slot)];
      return static_cast<const char*>(x.data) +
             row * x.row_stride * static_cast<int64_t>(dtype_bytes(x.dtype));
    }
  };

  // A block's rows as its kernel reads them.
  static void gather(const Rows& rows, const ExpertBlock& b, const StageRows& to) {
    const FloatType type = float_type(rows.x.dtype);
    for (int64_t i = 0; i < b.rows; ++i) set_row(b.hidden, to, i, type, rows.at(b.slot + i));
  }

  // Where shared blocks keep what threads share; gathers their rows. One row is read where it lies.
  void place(const Rows& rows, std::span<ExpertBlock* const> blocks, float* memory) const {
    if (blocks.empty()) return;
    int64_t gathered = 0;
    for (ExpertBlock* b : blocks) {
      b->from = rows_at(b->hidden, b->rows, memory);
      memory += rows_floats(b->hidden, b->rows);
      b->flow = stage_flow(b->hidden, b->result, b->rows, memory);
      memory += rows_floats(b->result, b->rows);
      if (b->rows == 1 && float_type(rows.x.dtype) == rows_type(b->hidden) &&
          (b->hidden.padded_k == k() || b->hidden.kernel->layout.quantise_rows != nullptr)) {
        b->from = {rows.at(b->slot), k()};
      } else {
        gathered += b->rows;
      }
    }
    const auto count = static_cast<int64_t>(blocks.size());
    const int64_t grain = kExpertGrain * count / std::max<int64_t>(1, gathered * k());
    parallel_for(count, std::max<int64_t>(1, grain), [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) {
        const ExpertBlock& b = *blocks[static_cast<size_t>(i)];
        if (b.from.data != rows.at(b.slot)) gather(rows, b, b.from);
      }
    });
  }

  // Each piece of a shared block packs the rows for itself.
  static void run_panels(const StageCall& stage, const StageFlow& flow, const StageRows& rows,
                         int64_t slot, int64_t m, int64_t first, int64_t last) {
    StageCall piece = stage;
    piece.strips = strips_pay(*stage.kernel, (last - first) * stage.kernel->layout.width);
    run_stage(piece, flow, rows_for_kernel(piece, rows, m), slot, m, first, last);
  }

  // Both stages, by one thread.
  void run_whole(const Rows& rows, const ExpertBlock& b) const {
    const int64_t before = rows_floats(b.hidden, b.rows);
    float* const memory =
        block_scratch.get(static_cast<size_t>(before + rows_floats(b.result, b.rows)));
    const StageFlow flow = stage_flow(b.hidden, b.result, b.rows, memory + before);
    const StageRows from = rows_at(b.hidden, b.rows, memory);
    gather(rows, b, from);
    run_panels(b.hidden, flow, from, b.slot, b.rows, 0, b.hidden.weights->panels());
    run_panels(b.result, {}, flow.read(), b.slot, b.rows, 0, b.result.weights->panels());
  }

  void sum_pairs(const Call& call, int64_t begin, int64_t tokens, const Routing& routing,
                 const float* pairs) const {
    const auto n = static_cast<size_t>(n_result());
    const auto choices = static_cast<int64_t>(call.index.size());
    const FloatType type = float_type(call.y.dtype);
    const simd::PointwiseKernels& kernels = simd::pointwise_kernels();
    const int64_t each = std::max<int64_t>(1, n_result() * choices);
    parallel_for(tokens, ceil_div(kExpertGrain, each), [&](int64_t first, int64_t last) {
      float* const wide = sum_scratch.get(n);
      for (int64_t t = first; t < last; ++t) {
        void* const y = simd::advance(call.y.data, type, (begin + t) * call.y.row_stride);
        float* const sum = type == FloatType::f32 ? static_cast<float*>(y) : wide;
        bool is_first = true;
        for (int64_t j = 0; j < choices; ++j) {
          const int64_t slot = routing.slot[static_cast<size_t>(t * choices + j)];
          if (slot < 0) continue;
          const float weight = weight_of(call.weights[static_cast<size_t>(j)], begin + t);
          const float* const pair = pairs + slot * n_result();
          (is_first ? kernels.scale(pair, weight, sum, n) : kernels.axpy(weight, pair, sum, n));
          is_first = false;
        }
        if (is_first) std::fill_n(sum, n, 0.0F);
        if (type != FloatType::f32) simd::from_f32(type, sum, y, n);
      }
    });
  }

  static float weight_of(const MatrixView& view, int64_t row) {
    const FloatType type = float_type(view.dtype);
    float weight = 0;
    simd::to_f32(type, simd::advance(view.data, type, row * view.row_stride), &weight, 1);
    return weight;
  }

  ExpertsSpec s_;
  ExpertStage hidden_;
  ExpertStage result_;
};

}  // namespace

std::unique_ptr<FusedKernel> make_experts(const FusedSpec& spec) {
  return std::make_unique<CpuExperts>(dynamic_cast<const ExpertsSpec&>(spec));
}

}  // namespace epilogue::cpu
