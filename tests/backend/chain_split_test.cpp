// SPDX-License-Identifier: Apache-2.0
// How threads share a row chain: the choice, and that every way gives the same answer.
#include "backend/cpu/chain/chain_split.h"

#include "backend/cpu/chain/chain_plan.h"

#include "backend/kernel_testing.h"
#include "base/cpu_features.h"
#include "core/backend.h"
#include "epilogue/runtime.h"
#include "ops/op_testing.h"
#include "ops/table_support.h"

namespace epilogue::testing::chain_split_test {

using cpu::ChainSplit;
using cpu::StageSize;
using Kind = ChainSplit::Kind;

// The GeGLU MLP of 768 x 3072 in bf16: 96 panels of 32 + 32 columns, then 12 of 64.
constexpr StageSize kMlp[] = {{96, 64, 768, 2}, {12, 64, 3072, 2}};

TEST(ChainSplit, ManyRowsAreSplitAmongThreads) {
  EXPECT_EQ(choose_split(400, kMlp, 2, true, true).kind, Kind::rows);
  EXPECT_EQ(choose_split(1, kMlp, 1, true, true).kind, Kind::rows);
}

// Each of two threads would read all weights for its 17 rows; shared, each reads half of them.
TEST(ChainSplit, SomeRowsShareTheWeights) {
  for (const int64_t rows : {24, 33, 64, 96})
    EXPECT_NE(choose_split(rows, kMlp, 2, true, true).kind, Kind::rows) << rows;
  // Weights that stay in each core's L2 are read often for nothing.
  constexpr StageSize kSmall[] = {{8, 64, 64, 4}, {1, 64, 256, 4}};
  EXPECT_EQ(choose_split(64, kSmall, 2, true, true).kind, Kind::rows);
}

// 12 panels for 4 threads are equal shares: 16 rows of slices would only add 48 thousand sums.
TEST(ChainSplit, PanelsForAllThreadsAreSplitAmongThem) {
  EXPECT_EQ(choose_split(16, kMlp, 4, true, true).kind, Kind::columns);
}

// The two slices of one row are 1536 sums, added up by one thread: cheaper than a second barrier.
TEST(ChainSplit, SlicesOfOneRowSaveABarrier) {
  const ChainSplit split = choose_split(1, kMlp, 2, true, true);
  EXPECT_EQ(split.kind, Kind::hidden);
  EXPECT_EQ(split.slices, 2);
}

// 12 panels leave 20 of 32 threads without work.
TEST(ChainSplit, HiddenColumnsAreSlicedWhereAStageHasFewerPanelsThanThreads) {
  const ChainSplit split = choose_split(16, kMlp, 32, true, true);
  EXPECT_EQ(split.kind, Kind::hidden);
  EXPECT_EQ(split.row_groups, 1);
  EXPECT_EQ(split.slices, 32);
}

// 128 threads and 96 panels: 96 slices would leave a quarter of the threads without work.
TEST(ChainSplit, RowsAndHiddenColumnsAreSplitWhereThreadsAreMany) {
  const ChainSplit split = choose_split(96, kMlp, 128, true, true);
  EXPECT_EQ(split.kind, Kind::hidden);
  EXPECT_GT(split.row_groups, 1);
  EXPECT_LE(split.row_groups * split.slices, 128);
  EXPECT_EQ(choose_split(96, kMlp, 128, true, false).row_groups, 1);
}

TEST(ChainSplit, WhatCannotBeSlicedIsSplitByColumns) {
  EXPECT_EQ(choose_split(16, kMlp, 32, false, true).kind, Kind::columns);
  const StageSize three[] = {kMlp[0], kMlp[1], kMlp[1]};
  EXPECT_EQ(choose_split(16, three, 32, true, true).kind, Kind::columns);
}

// 32 columns of 64: a microsecond of work. A thread that must be woken takes longer.
TEST(ChainThreads, SmallWorkStaysWithTheCaller) {
  constexpr StageSize kSmall[] = {{1, 64, 64, 4}, {1, 64, 64, 4}};
  const ChainSplit split = choose_split(8, kSmall, 2, true, true);
  EXPECT_EQ(choose_threads(8, kSmall, split, 2, kFallbackRates), 1);
  EXPECT_EQ(choose_threads(1024, kSmall, {}, 2, kFallbackRates), 2);
}

TEST(ChainThreads, HandingWorkOverIsCounted) {
  const ChainSplit split = choose_split(1, kMlp, 2, true, true);
  EXPECT_EQ(choose_threads(1, kMlp, split, 2, kFallbackRates), 2);
  MachineRates slow = kFallbackRates;
  slow.handoff_ns = 1e6;
  EXPECT_EQ(choose_threads(1, kMlp, split, 2, slow), 1);
  EXPECT_EQ(choose_threads(1, kMlp, split, 1, kFallbackRates), 1);
}

// Where threads together read less than one of them alone, one reads.
TEST(ChainThreads, BandwidthThatThreadsShareIsCounted) {
  constexpr StageSize kLarge[] = {{896, 64, 4096, 4}, {128, 64, 14336, 4}};
  const ChainSplit split = choose_split(1, kLarge, 2, true, true);
  MachineRates rates = kFallbackRates;
  EXPECT_EQ(choose_threads(1, kLarge, split, 2, rates), 2);
  rates.stream_bytes_per_ns_all = 0.9 * rates.stream_bytes_per_ns;
  EXPECT_EQ(choose_threads(1, kLarge, split, 2, rates), 1);
}

TEST(ChainPlan, BlocksEndWhereTilesOfRowsDo) {
  for (const int64_t unit : {1, 6, 32})
    for (const int64_t rows : {1, 5, 6, 7, 64, 171, 1024})
      for (int64_t blocks = 1; blocks <= 12; ++blocks) {
        int64_t next = 0;
        for (int64_t b = 0; b < blocks; ++b) {
          const cpu::RowRange r = cpu::rows_of_block(rows, unit, blocks, b);
          ASSERT_EQ(r.first, next);
          ASSERT_GE(r.last, r.first);
          ASSERT_TRUE(r.last == rows || r.last % unit == 0);
          next = r.last;
        }
        ASSERT_EQ(next, rows) << unit << ", " << blocks;
      }
}

cpu::ChainShape mlp_shape() {
  cpu::ChainShape shape;
  shape.stages.assign(std::begin(kMlp), std::end(kMlp));
  shape.may_slice = true;
  shape.block_rows = 96;
  shape.row_unit = 32;
  shape.tile_rows = 6;
  shape.widest_row_bytes = 3072 * 2;
  shape.result_columns = 768;
  return shape;
}

TEST(ChainPlan, SharesAreEqualAndBlocksNoLargerThanWanted) {
  const RowChainPlan p = plan_chain(1024, mlp_shape(), {}, 2, kFallbackRates);
  EXPECT_TRUE(p.splits_rows);
  EXPECT_EQ(p.blocks, 12);
  EXPECT_LE(p.block_rows, 96);
  EXPECT_EQ(p.block_rows % 6, 0);
  EXPECT_EQ(p.threads, 2);
  EXPECT_EQ(p.scratch_bytes, 2 * p.block_rows * 3072 * 2);
}

TEST(ChainPlan, BlocksHaveMoreRowsWhereTheirWeightsAreFewOrComeFromMemory) {
  const auto rows = [](bool has_tiles, int64_t weights) {
    return cpu::likely_block_rows(has_tiles, weights, 4 * weights);
  };
  EXPECT_EQ(rows(false, 768 * 3072), kKernelBlockRows);
  EXPECT_EQ(rows(true, 768 * 3072), 2 * kKernelBlockRows);
  EXPECT_EQ(rows(false, 64 * 64), 4 * kKernelBlockRows);
  EXPECT_EQ(rows(true, 64 * 64), 8 * kKernelBlockRows);
  EXPECT_GT(rows(false, 4096 * 14336), kKernelBlockRows);
}

// 480 rows are 15 units of 32, which two threads cannot share equally, and 80 tiles of 6.
TEST(ChainPlan, SharesOfManyTilesEndAtOne) {
  const RowChainPlan many =
      plan_chain(480, mlp_shape(), {.split = KernelTuning::Split::rows}, 2, kFallbackRates);
  EXPECT_EQ(many.row_unit, 6);
  ASSERT_EQ(many.blocks, 6);
  int64_t longest = 0;
  for (int64_t first = 0; first < 6; first += 3) {
    const int64_t begin = cpu::rows_of_block(480, many.row_unit, 6, first).first;
    longest = std::max(longest, cpu::rows_of_block(480, many.row_unit, 6, first + 2).last - begin);
  }
  EXPECT_EQ(longest, 240);
  const RowChainPlan few =
      plan_chain(64, mlp_shape(), {.split = KernelTuning::Split::rows}, 2, kFallbackRates);
  EXPECT_EQ(few.row_unit, 32);
  EXPECT_EQ(few.block_rows, 32);
}

// Weights from memory pass once for so many rows, of which every thread takes columns.
TEST(ChainPlan, RowsShareWeightsThatComeFromMemory) {
  cpu::ChainShape shape = mlp_shape();
  shape.shared_rows = 512;
  const auto plan = [&shape](int64_t rows, int threads) {
    return plan_chain(rows, shape, {}, threads, kFallbackRates);
  };
  const RowChainPlan all = plan(512, 2);
  EXPECT_FALSE(all.splits_rows);
  EXPECT_EQ(all.blocks, 1);
  EXPECT_EQ(all.threads, 2);
  const RowChainPlan some = plan(1200, 2);
  EXPECT_FALSE(some.splits_rows);
  EXPECT_EQ(some.hidden_slices, 1);
  EXPECT_EQ(some.blocks, 3);
  EXPECT_LE(some.block_rows, 512);
  EXPECT_EQ(some.block_rows % some.row_unit, 0);
  EXPECT_EQ(some.scratch_bytes, some.block_rows * 3072 * 2) << "one group after the other";
  EXPECT_TRUE(plan(1200, 1).splits_rows) << "nobody to share with";
}

// Tiles do the arithmetic in a fraction of the weights' way: threads better read half of them each.
TEST(ChainSplit, TilesMakeTheWeightsWayTheCost) {
  StageSize tiles[] = {kMlp[0], kMlp[1]};
  EXPECT_EQ(choose_split(256, kMlp, 2, true, true).kind, Kind::rows);
  for (StageSize& s : tiles) s.is_bf16 = s.has_tiles = true;
  EXPECT_EQ(choose_split(256, tiles, 2, true, true).kind, Kind::hidden);
  EXPECT_EQ(choose_split(512, tiles, 2, true, true).kind, Kind::rows);
}

// The rates decide how many threads run what is cut the same way: bits do not depend on them.
TEST(ChainPlan, RatesChangeThreadsAndNothingElse) {
  MachineRates slow = kFallbackRates;
  slow.handoff_ns = 1e9;
  for (const int64_t rows : {1, 8, 40, 1024}) {
    const RowChainPlan fast = plan_chain(rows, mlp_shape(), {}, 2, kFallbackRates);
    const RowChainPlan alone = plan_chain(rows, mlp_shape(), {}, 2, slow);
    EXPECT_EQ(alone.threads, 1) << rows;
    EXPECT_EQ(fast.threads, 2) << rows;
    EXPECT_EQ(fast.blocks, alone.blocks);
    EXPECT_EQ(fast.block_rows, alone.block_rows);
    EXPECT_EQ(fast.splits_rows, alone.splits_rows);
    EXPECT_EQ(fast.hidden_slices, alone.hidden_slices);
  }
}

TEST(ChainPlan, IsTuned) {
  using Split = KernelTuning::Split;
  cpu::ChainShape shape = mlp_shape();
  shape.row_unit = shape.tile_rows;
  const auto plan = [&shape](const KernelTuning& tuning) {
    return plan_chain(100, shape, tuning, 2, kFallbackRates);
  };
  EXPECT_EQ(plan({.threads = 1}).threads, 1);
  EXPECT_FALSE(plan({.split = Split::columns}).splits_rows);
  EXPECT_EQ(plan({.split = Split::hidden}).hidden_slices, 2);
  EXPECT_TRUE(plan({.split = Split::rows}).splits_rows);
  EXPECT_EQ(plan({.split = Split::rows, .block_rows = 12}).block_rows, 12);
  EXPECT_LE(plan({.split = Split::rows, .block_rows = 500}).block_rows, 54) << "equal shares";
  EXPECT_EQ(plan({.split = Split::columns}).blocks, 1);
  EXPECT_EQ(plan({.split = Split::columns, .block_rows = 30}).blocks, 4);
}

// y = (relu(x a^T) * (x b^T)) c^T + x, the hidden activation stored on the way.
struct GatedMlp {
  int64_t rows, k, hidden;
  DType dtype;
  Norm norm = Norm::none;
  Tensor x = make_tensor({rows, k}, dtype, Layout::contiguous);
  Tensor a = make_tensor({hidden, k}, dtype, Layout::contiguous, -0.3, 0.3);
  Tensor b = make_tensor({hidden, k}, dtype, Layout::transposed, -0.3, 0.3);
  Tensor c = make_tensor({k, hidden}, dtype, Layout::contiguous, -0.3, 0.3);
  Tensor y = full({rows, k}, -7, dtype);
  Tensor h = full({rows, hidden}, -7, dtype);

  std::unique_ptr<RowChain> chain() const {
    RowChainSpec spec;
    spec.dtype = dtype;
    spec.norm.kind = norm;
    spec.norm.eps = 1e-5;
    spec.stages.push_back({{a, b},
                           {2, {{PointwiseFn::relu, 0}, {PointwiseFn::mul, 2, 1}}, {3, 3}},
                           {},
                           false,
                           1,
                           {1}});
    spec.stages.push_back({{c}, {2, {{PointwiseFn::add, 0, 1}}, {2}}, {0}});
    return cpu_backend().make_row_chain(spec);
  }
  RowChainPlan run(const KernelTuning& tuning = {}) const {
    const auto made = chain();
    made->tune(tuning);
    const MatrixView operands[] = {matrix(x)};
    const MatrixView outputs[] = {matrix(y), matrix(h)};
    made->run(rows, matrix(x), operands, outputs);
    return made->plan(rows);
  }
};

// All splits of odd sizes give what one thread gives, whose sums are cut otherwise; again the same
// bits.
TEST(RowChain, SlicesOfHiddenColumnsGiveTheAnswerOfOneThread) {
  const test::IsaScope isa;
  const test::ThreadScope scope;
  int sliced = 0;
  int grouped = 0;
  for (const Isa level : available_isas()) {
    set_active_isa(level);
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
      for (const int64_t rows : {1, 7, 16, 90})
        for (const int64_t hidden : {1, 515}) {
          const Norm norm = rows == 7 ? Norm::rms : Norm::none;
          const GatedMlp mlp{rows, 40, hidden, dtype, norm};
          set_num_threads(1);
          mlp.run();
          const Tensor want = clone(mlp.y);
          const Tensor want_h = clone(mlp.h);
          for (const int threads : {2, 3, 8}) {
            set_num_threads(threads);
            const RowChainPlan plan = mlp.run();
            sliced += plan.hidden_slices > 1;
            grouped += plan.hidden_slices > 1 && plan.blocks > 1;
            const std::string what = std::to_string(rows) + " rows, hidden " +
                                     std::to_string(hidden) + ", " + std::to_string(threads) +
                                     " threads, " + std::string(dtype_name(dtype));
            expect_close(mlp.h, want_h, 1e-5, what);
            expect_close(mlp.y, want, 1e-6 * static_cast<double>(hidden), what);
            const std::vector<double> once = mlp.y.to_vector();
            mlp.run();
            ASSERT_EQ(mlp.y.to_vector(), once) << what;
          }
        }
  }
  EXPECT_GT(sliced, 20);
  EXPECT_GT(grouped, 0);
}

// Groups of rows of which all threads take columns, x's rows prepared by all of them.
TEST(RowChain, GroupsOfRowsThatShareColumnsGiveTheAnswerOfOneThread) {
  const test::IsaScope isa;
  const test::ThreadScope scope;
  for (const Isa level : available_isas()) {
    set_active_isa(level);
    for (const Norm norm : {Norm::none, Norm::rms})
      for (const auto& [rows, k, hidden] : {std::array<int64_t, 3>{90, 40, 515}, {301, 1030, 70}}) {
        const GatedMlp mlp{rows, k, hidden, DType::bf16, norm};
        set_num_threads(1);
        mlp.run();
        const Tensor want = clone(mlp.y);
        const Tensor want_h = clone(mlp.h);
        set_num_threads(3);
        const RowChainPlan plan =
            mlp.run({.split = KernelTuning::Split::columns, .block_rows = rows / 2});
        EXPECT_FALSE(plan.splits_rows);
        EXPECT_GE(plan.blocks, 2);
        const std::string what = std::to_string(rows) + " rows on " + std::string(isa_name(level));
        expect_close(mlp.h, want_h, 1e-5, what);
        expect_close(mlp.y, want, 1e-6 * static_cast<double>(hidden), what);
      }
  }
}

// A slice's NaN reaches the rows that it is in, and no others.
TEST(RowChain, NanInAHiddenColumnStaysInItsRow) {
  const test::ThreadScope scope;
  set_num_threads(4);
  GatedMlp mlp{6, 40, 256, DType::f32};
  mlp.x.data_as<float>()[2 * 40 + 5] = std::numeric_limits<float>::quiet_NaN();
  ASSERT_GT(mlp.run().hidden_slices, 1);
  const std::vector<double> y = mlp.y.to_vector();
  for (size_t i = 0; i < y.size(); ++i) EXPECT_EQ(std::isnan(y[i]), i / 40 == 2) << i;
}

}  // namespace epilogue::testing::chain_split_test
