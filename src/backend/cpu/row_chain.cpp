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
// them.
#include "backend/cpu/row_chain.h"

#include <algorithm>
#include <cstring>

#include "backend/cpu/float_type.h"
#include "backend/cpu/row_norm.h"
#include "backend/cpu/simd/packed_gemm.h"
#include "backend/cpu/simd/scratch.h"
#include "backend/cpu/simd/targets.h"
#include "backend/cpu/tile_program.h"
#include "base/cpu_features.h"
#include "base/thread_pool.h"
#include "epilogue/base/error.h"

namespace epilogue::cpu {
namespace {

using simd::FloatType;
using simd::PanelArgs;
using simd::PanelType;

// Depth of a chunk of k: with 64 columns 128 KiB (bf16) or 256 KiB (f32) of weights stay in L2
// while a block of rows passes.
constexpr int64_t kChunkK = 1024;
// Products that one f32 sum takes in before it is added to the others: shorter sums round less.
constexpr int64_t kSumDepth = 256;
// With few rows memory is the limit, and eager's products sum in as many lanes as a vector has;
// about the square root of k is best, for the sums of chunks add up one by one.
constexpr int64_t kFewRows = 8;
constexpr int64_t kFewRowsSumDepth = 48;
// Rows of a block: eight micro-kernels; its sums, 64 columns of f32, fill a third of L1.
constexpr int64_t kBlockRows = 48;
// A program's buffers stay within L1.
constexpr int64_t kTileBytes = 20 << 10;
// Fewer rows than this per thread, and threads share the columns instead.
constexpr int64_t kMinRowsPerThread = 12;

const char* offset(const void* p, int64_t elements, FloatType type) {
  return static_cast<const char*>(p) + elements * static_cast<int64_t>(size_of(type));
}
char* offset(void* p, int64_t elements, FloatType type) {
  return static_cast<char*>(p) + elements * static_cast<int64_t>(size_of(type));
}

// One stage with its weights as panels.
class Stage {
 public:
  Stage(const RowChainSpec::Stage& spec) : spec_(spec), program_(spec.epilogue) {}

  int64_t k() const { return spec_.weights[0].size(1); }
  int64_t n() const { return spec_.weights[0].size(0); }
  int parts() const { return static_cast<int>(spec_.weights.size()); }
  const std::vector<int>& operands() const { return spec_.operands; }
  const TileProgram& program() const { return program_; }
  FloatType weights_type() const { return float_type(spec_.weights[0].dtype()); }

  // Packs where nothing is packed yet, a weight was written, or another kind of panel is wanted.
  const simd::PackedWeights& packed(PanelType type) {
    std::vector<int64_t> versions;
    for (const Tensor& w : spec_.weights) versions.push_back(static_cast<int64_t>(w.version()));
    auto& slot = packed_[static_cast<size_t>(type)];
    const int64_t width = simd::packed_kernels().width;
    if (slot == nullptr || versions != versions_ || width != width_) {
      if (versions != versions_ || width != width_)
        for (auto& each : packed_) each.reset();
      std::vector<simd::GemmOperand> parts;
      for (const Tensor& w : spec_.weights)  // [n, k]: B is its transpose
        parts.push_back({w.data(), float_type(w.dtype()), w.strides()[1], w.strides()[0]});
      slot = std::make_unique<simd::PackedWeights>(parts, k(), n(), type);
      versions_ = std::move(versions);
      width_ = width;
    }
    return *slot;
  }

 private:
  RowChainSpec::Stage spec_;
  TileProgram program_;
  std::array<std::unique_ptr<simd::PackedWeights>, simd::kPanelTypes> packed_;
  std::vector<int64_t> versions_;
  int64_t width_ = 0;
};

thread_local simd::Scratch rows_scratch;    // a block's rows, before the first and between stages
thread_local simd::Scratch sums_scratch;    // products, and the programs' buffers
thread_local simd::Scratch shared_scratch;  // few rows: rows of all threads, the caller's memory

// Rows as a stage's kernel wants them.
struct Rows {
  const void* data;
  int64_t stride;
};

// Everything of one stage in one call.
struct StageRun {
  const Stage* stage;
  const simd::PackedWeights* weights;
  simd::PanelKernel kernel;
  std::vector<MatrixView> operands;
  MatrixView out;  // of all rows of the call, or of the block
  int64_t even_k;  // what the kernel reads of a row
};

int64_t padded(int64_t k) { return (k + 1) / 2 * 2; }

class Executor {
 public:
  explicit Executor(const simd::PointwiseKernels& kernels) : kernels_(kernels) {}

  // Rows [row, row + m) of the call through panels [first, last). `a` are these rows.
  void run(const StageRun& s, const Rows& a, int64_t row, int64_t m, int64_t first, int64_t last) {
    const int64_t width = s.weights->columns_per_panel() * s.weights->parts();
    const int64_t chunks = (s.even_k + kChunkK - 1) / kChunkK;
    const bool is_f32 = simd::rows_type(s.weights->type()) == FloatType::f32;
    const int64_t depth = is_f32 && m <= kFewRows ? kFewRowsSumDepth : kSumDepth;
    const int64_t kept = chunks == 1 ? 1 : last - first;  // panels whose sums wait for more of k
    const int64_t buffers = s.stage->program().buffers() * tile_floats(s);
    float* const memory = sums_scratch.get(static_cast<size_t>(kept * m * width + buffers));
    float* const tiles = memory + kept * m * width;
    for (int64_t k = 0; k < s.even_k; k += kChunkK)
      for (int64_t panel = first; panel < last; ++panel) {
        float* const sums = memory + (chunks == 1 ? 0 : panel - first) * m * width;
        const int64_t end = std::min(k + kChunkK, s.even_k);
        for (int64_t from = k; from < end; from += depth)
          multiply(s, a, m, panel, from, std::min(from + depth, end), sums);
        if (end == s.even_k) finish(s, sums, row, m, panel, tiles);
      }
  }

 private:
  // sums (+)= rows x panel over k in [from, end).
  static void multiply(const StageRun& s, const Rows& a, int64_t m, int64_t panel, int64_t from,
                       int64_t end, float* sums) {
    PanelArgs args;
    args.m = m;
    args.k = end - from;
    args.a = offset(a.data, from, simd::rows_type(s.weights->type()));
    args.a_stride = a.stride;
    args.panel = s.weights->panel(panel, from);
    args.sums[0] = sums;
    args.sums[1] = sums + m * s.weights->columns_per_panel();
    args.accumulate = from > 0;
    s.kernel(args);
  }

  // Rows of a tile times its columns, in floats: as many rows as leave all buffers in L1.
  static int64_t tile_rows(const StageRun& s) {
    const int64_t each = s.weights->columns_per_panel() * int64_t{sizeof(float)};
    return std::clamp<int64_t>(kTileBytes / (s.stage->program().buffers() * each), 1, kBlockRows);
  }
  static int64_t tile_floats(const StageRun& s) {
    return tile_rows(s) * s.weights->columns_per_panel();
  }

  // The program over one panel's sums, and the store.
  void finish(const StageRun& s, float* sums, int64_t row, int64_t m, int64_t panel,
              float* tiles) const {
    const int64_t each = s.weights->columns_per_panel();
    const int64_t column = panel * each;
    const int64_t columns = std::min(each, s.weights->n() - column);
    const TileProgram& program = s.stage->program();
    if (program.is_empty())
      return store(s.out, sums + program.output_buffer(0) * m * each, each, row, m, column,
                   columns);
    const int64_t most = tile_rows(s);
    const int64_t stride = tile_floats(s);
    const int parts = s.weights->parts();
    for (int64_t i = 0; i < m; i += most) {
      const int64_t rows = std::min(most, m - i);
      for (int part = 0; part < parts; ++part)
        std::memcpy(tiles + part * stride, sums + (part * m + i) * each,
                    static_cast<size_t>(rows * each) * sizeof(float));
      for (size_t o = 0; o < s.operands.size(); ++o)
        load(s.operands[o], row + i, rows, column, columns, each,
             tiles + (parts + static_cast<int64_t>(o)) * stride);
      program.run(tiles, stride, static_cast<size_t>(rows * each), kernels_);
      store(s.out, tiles + program.output_buffer(0) * stride, each, row + i, rows, column, columns);
    }
  }

  // A part of an operand as f32 [rows][each]. What lies beyond `columns` is left as it is: nobody
  // stores it.
  static void load(const MatrixView& view, int64_t row, int64_t rows, int64_t column,
                   int64_t columns, int64_t each, float* out) {
    const FloatType type = float_type(view.dtype);
    const char* const from =
        offset(view.data, row * view.row_stride + column * view.col_stride, type);
    const auto n = static_cast<size_t>(columns);
    for (int64_t i = 0; i < rows; ++i) {
      float* const to = out + i * each;
      if (view.row_stride == 0 && i > 0) {
        std::memcpy(to, out, n * sizeof(float));
      } else if (view.col_stride == 1) {
        simd::to_f32(type, offset(from, i * view.row_stride, type), to, n);
      } else {
        for (int64_t j = 0; j < columns; ++j)
          simd::to_f32(type, offset(from, i * view.row_stride + j * view.col_stride, type), to + j,
                       1);
      }
    }
  }

  static void store(const MatrixView& out, const float* values, int64_t each, int64_t row,
                    int64_t rows, int64_t column, int64_t columns) {
    const FloatType type = float_type(out.dtype);
    for (int64_t i = 0; i < rows; ++i)
      simd::from_f32(type, values + i * each,
                     offset(out.data, (row + i) * out.row_stride + column, type),
                     static_cast<size_t>(columns));
  }

  const simd::PointwiseKernels& kernels_;
};

class CpuRowChain final : public RowChain {
 public:
  explicit CpuRowChain(const RowChainSpec& spec) : dtype_(spec.dtype), norm_(spec.norm) {
    if (!has_float_type(spec.dtype))
      throw Error("[row chain] expected f32, bf16 or f16, got " +
                  std::string(dtype_name(spec.dtype)));
    if (spec.stages.empty()) throw Error("[row chain] expected at least one stage, got none");
    for (const RowChainSpec::Stage& stage : spec.stages) {
      check(stage);
      if (!stages_.empty() && stages_.back().n() != stage.weights[0].size(1))
        throw Error("[row chain] expected a stage of " + std::to_string(stages_.back().n()) +
                    " inputs, got " + to_string(stage.weights[0]));
      stages_.emplace_back(stage);
    }
  }

  void run(int64_t rows, const MatrixView& x, std::span<const MatrixView> operands,
           const MatrixView& out) override {
    if (rows == 0 || stages_.back().n() == 0) return;
    const RowChainPlan p = plan(rows);
    prepare(rows, operands, out);
    if (p.splits_rows) {
      parallel_for(p.blocks, 1, [&](int64_t begin, int64_t end) {
        for (int64_t b = begin; b < end; ++b)
          run_block(x, b * p.block_rows, std::min(p.block_rows, rows - b * p.block_rows));
      });
    } else {
      run_columns(x, rows, p);
    }
  }

  RowChainPlan plan(int64_t rows) const override {
    RowChainPlan p;
    const int64_t threads = num_threads();
    p.splits_rows = rows >= threads * kMinRowsPerThread || threads == 1;
    if (p.splits_rows) {
      // Equal shares: 64 rows for 2 threads are 2 x 32, not 48 and 16.
      const int64_t share = (rows + threads - 1) / threads;
      const int64_t blocks = (share + kBlockRows - 1) / kBlockRows * threads;
      p.block_rows = std::max<int64_t>(1, (rows + blocks - 1) / blocks);
    } else {
      p.block_rows = rows;
    }
    p.blocks = (rows + p.block_rows - 1) / p.block_rows;
    p.threads = static_cast<int>(p.splits_rows ? std::min(p.blocks, threads) : threads);
    for (const Stage& stage : stages_)
      p.scratch_bytes = std::max(p.scratch_bytes, stage.n() * p.block_rows * 4);
    p.scratch_bytes *= p.splits_rows ? p.threads : 1;
    return p;
  }

  std::string kernel_name() const override {
    std::string name = std::string("epi_") + target_name(simd::active_target()) + "_row_chain_" +
                       std::string(dtype_name(dtype_));
    if (norm_.kind != NormKind::none) name += norm_.kind == NormKind::rms ? "_rms" : "_layer_norm";
    for (const Stage& s : stages_)
      name +=
          "_" + std::to_string(s.k()) + "x" + std::to_string(s.n()) + (s.parts() == 2 ? "x2" : "");
    return name;
  }

 private:
  void check(const RowChainSpec::Stage& stage) const {
    if (stage.weights.empty() || stage.weights.size() > 2)
      throw Error("[row chain] expected one or two weights, got " +
                  std::to_string(stage.weights.size()));
    for (const Tensor& w : stage.weights)
      if (w.dim() != 2 || w.dtype() != dtype_ || !(w.sizes() == stage.weights[0].sizes()))
        throw Error("[row chain] expected weights of one shape and dtype, got " + to_string(w));
    const auto inputs = static_cast<int>(stage.weights.size() + stage.operands.size());
    if (stage.epilogue.inputs != inputs || stage.epilogue.outputs.size() != 1)
      throw Error("[row chain] expected a program of " + std::to_string(inputs) +
                  " inputs and one output, got " + to_string(stage.epilogue));
  }

  // What the stages of one call have in common for all threads.
  void prepare(int64_t rows, std::span<const MatrixView> operands, const MatrixView& out) {
    const simd::PackedKernels kernels = simd::packed_kernels();
    runs_.resize(stages_.size());
    for (size_t i = 0; i < stages_.size(); ++i) {
      Stage& stage = stages_[i];
      const PanelType type = simd::choose_panel_type(stage.weights_type(), rows);
      StageRun& run = runs_[i];
      run.stage = &stage;
      run.weights = &stage.packed(type);
      const auto index = static_cast<size_t>(type);
      run.kernel = stage.parts() == 2 ? kernels.two[index] : kernels.one[index];
      run.operands.clear();
      for (const int o : stage.operands()) run.operands.push_back(operands[static_cast<size_t>(o)]);
      run.even_k = type == PanelType::bf16_pairs ? padded(stage.k()) : stage.k();
      run.out = out;
    }
  }

  // Floats that the rows before stage i take, one block.
  int64_t rows_floats(size_t i, int64_t m) const {
    const int64_t k = padded(stages_[i].k());
    return runs_[i].weights->type() == PanelType::bf16_pairs ? (k * m + 1) / 2 : k * m;
  }

  // x's rows as the first stage wants them: normalised, in its type; where they lie if that is so.
  Rows first_rows(const MatrixView& x, int64_t row, int64_t m, float* scratch) const {
    const FloatType have = float_type(x.dtype);
    const FloatType want = simd::rows_type(runs_[0].weights->type());
    const int64_t k = stages_[0].k();
    const char* from = offset(x.data, row * x.row_stride, have);
    if (norm_.kind == NormKind::none && have == want && k == runs_[0].even_k)
      return {from, x.row_stride};
    const int64_t stride = padded(k);
    normalise_rows(norm_, {from, have, x.row_stride}, m, k, {scratch, want, stride});
    return {scratch, stride};
  }

  // Where stage i of a block stores: the next stage's rows, or the result.
  static MatrixView rows_view(float* memory, PanelType next, int64_t n) {
    const bool bf16 = next == PanelType::bf16_pairs;
    return {memory, bf16 ? DType::bf16 : DType::f32, padded(n), 1};
  }

  void run_block(const MatrixView& x, int64_t row, int64_t m) const {
    Executor executor(simd::pointwise_kernels());
    // Two areas in turn: a stage reads one and writes the other.
    std::array<int64_t, 2> floats{};
    for (size_t i = 0; i < stages_.size(); ++i)
      floats[i % 2] = std::max(floats[i % 2], (rows_floats(i, m) + 15) / 16 * 16);
    float* const memory = rows_scratch.get(static_cast<size_t>(floats[0] + floats[1]));
    const std::array<float*, 2> area = {memory, memory + floats[0]};
    Rows a = first_rows(x, row, m, area[0]);
    for (size_t i = 0; i < stages_.size(); ++i) {
      StageRun run = runs_[i];
      const bool last = i + 1 == stages_.size();
      if (!last) {
        // Stored by the block's own rows: row 0 of the area is row `row` of the call.
        run.out = rows_view(area[(i + 1) % 2], runs_[i + 1].weights->type(), stages_[i].n());
        clear_padding(run.out, m, stages_[i].n());
        shift_rows(run, -row);
      }
      executor.run(run, a, row, m, 0, run.weights->panels());
      if (!last) a = {area[(i + 1) % 2], padded(stages_[i].n())};
    }
  }

  // run.out counts from row 0 of the call; a block's area counts from the block's first row.
  static void shift_rows(StageRun& run, int64_t rows) {
    run.out.data = offset(run.out.data, rows * run.out.row_stride, float_type(run.out.dtype));
  }

  // The column that makes k even: weights are zero there, and 0 times garbage may be NaN.
  static void clear_padding(const MatrixView& view, int64_t m, int64_t n) {
    if (padded(n) == n) return;
    const FloatType type = float_type(view.dtype);
    for (int64_t i = 0; i < m; ++i)
      std::memset(offset(view.data, i * view.row_stride + n, type), 0, size_of(type));
  }

  void run_columns(const MatrixView& x, int64_t rows, const RowChainPlan& p) const {
    std::array<int64_t, 2> floats{};
    for (size_t i = 0; i < stages_.size(); ++i)
      floats[i % 2] = std::max(floats[i % 2], (rows_floats(i, rows) + 15) / 16 * 16);
    float* const memory = shared_scratch.get(static_cast<size_t>(floats[0] + floats[1]));
    const std::array<float*, 2> area = {memory, memory + floats[0]};
    Rows a = first_rows(x, 0, rows, area[0]);
    for (size_t i = 0; i < stages_.size(); ++i) {
      StageRun run = runs_[i];
      const bool last = i + 1 == stages_.size();
      if (!last) {
        run.out = rows_view(area[(i + 1) % 2], runs_[i + 1].weights->type(), stages_[i].n());
        clear_padding(run.out, rows, stages_[i].n());
      }
      const int64_t panels = run.weights->panels();
      parallel_for(panels, (panels + p.threads - 1) / p.threads, [&](int64_t begin, int64_t end) {
        Executor(simd::pointwise_kernels()).run(run, a, 0, rows, begin, end);
      });
      if (!last) a = {area[(i + 1) % 2], padded(stages_[i].n())};
    }
  }

  DType dtype_;
  RowChainSpec::Norm norm_;
  std::vector<Stage> stages_;
  std::vector<StageRun> runs_;
};

}  // namespace

std::unique_ptr<RowChain> make_row_chain(const RowChainSpec& spec) {
  return std::make_unique<CpuRowChain>(spec);
}

}  // namespace epilogue::cpu
