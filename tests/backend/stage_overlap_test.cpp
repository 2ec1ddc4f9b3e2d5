// SPDX-License-Identifier: Apache-2.0
// A chain's stage on tiles: programs between the next block's products give bit for bit what they
// give after their own. The tile unit is one in plain code: any machine with panels of AVX-512.
#include "backend/cpu/chain/row_chain.h"
#include "backend/cpu/simd/panels/bf16_pairs.h"
#include "backend/cpu/simd/panels/pack.h"
#include "backend/kernel_testing.h"
#include "backend/simd/panels/plain_tile_unit.h"
#include "epilogue/ops.h"
#include "support/test.h"

namespace epilogue::testing::stage_overlap_test {

using cpu::ReadyRows;
using cpu::StageOverlap;
using simd::PanelArgs;

template <int kParts>
void plain_tiles(const PanelArgs& args) {
  simd::TileProduct<simd::PlainUnit>(args, kParts).run();
}

// Two products, gelu(gate) * up + residual; the second result is the gate.
RowChainSpec::Stage gated_stage(const Tensor& gate, const Tensor& up) {
  RowChainSpec::Stage stage;
  stage.weights = {gate, up};
  stage.operands = {0};
  stage.stores = {1};
  stage.epilogue.inputs = 3;
  stage.epilogue.steps = {
      {PointwiseFn::gelu_tanh, 0}, {PointwiseFn::mul, 3, 1}, {PointwiseFn::add, 4, 2}};
  stage.epilogue.outputs = {5, 0};
  return stage;
}

class StageOverlapTest : public ::testing::Test {
 protected:
  static inline const simd::PanelKernel kKernel = {.layout = simd::bf16_pairs_layout(simd::kTileK),
                                                   .one = plain_tiles<1>,
                                                   .two = plain_tiles<2>};
  void SetUp() override {
    if (simd::pack_kernels().width != simd::kTilesWidth) GTEST_SKIP() << "needs panels of AVX-512";
    manual_seed(3);
  }

  // The stage over all rows, its two results.
  static std::vector<Tensor> run(const cpu::ChainStage& stage, const simd::PackedWeights& weights,
                                 const Tensor& x, const Tensor& residual, int64_t overlap_rows) {
    const int64_t rows = x.size(0);
    const std::vector<Tensor> out = {empty({rows, weights.n()}, DType::bf16),
                                     empty({rows, weights.n()}, DType::bf16)};
    const MatrixView operands[] = {matrix(residual)};
    const MatrixView outputs[] = {matrix(out[0]), matrix(out[1])};
    cpu::StageCall call;
    call.stage = &stage;
    call.weights = &weights;
    call.kernel = &kKernel;
    call.padded_k = kKernel.layout.padded(weights.k());
    call.overlap_rows = overlap_rows;
    call.operands = operands;
    call.outputs = outputs;
    cpu::run_stage(call, {}, {.data = x.data(), .stride = x.size(1)}, 0, rows, 0, weights.panels());
    return out;
  }
};

bool same_bits(const Tensor& a, const Tensor& b) {
  return std::memcmp(a.data(), b.data(), static_cast<size_t>(a.bytes())) == 0;
}

// One block of rows and several, whole and cut; one panel and several; k in one chunk and in two.
TEST_F(StageOverlapTest, GivesTheBitsOfOneAfterTheOther) {
  for (const int64_t n : {7, 32, 90})
    for (const int64_t k : {32, 1024 + 64}) {
      const Tensor gate = randn({n, k}, DType::bf16);
      const Tensor up = randn({n, k}, DType::bf16);
      const cpu::ChainStage stage(gated_stage(gate, up), DType::bf16, true, 2);
      const std::vector<simd::PackedPart> parts = {{{gate.data(), simd::FloatType::bf16, 1, k}, k},
                                                   {{up.data(), simd::FloatType::bf16, 1, k}, k}};
      const simd::PackedWeights weights(parts, n, kKernel.layout);
      for (const int64_t rows : {5, 32, 33, 70, 192}) {
        const Tensor x = randn({rows, k}, DType::bf16);
        const Tensor residual = randn({rows, n}, DType::bf16);
        const std::vector<Tensor> after = run(stage, weights, x, residual, 0);
        const std::vector<Tensor> beside = run(stage, weights, x, residual, 5);
        for (size_t o = 0; o < 2; ++o)
          EXPECT_TRUE(same_bits(after[o], beside[o]))
              << rows << " x " << k << " x " << n << ", result " << o;
      }
    }
}

// Pieces of 8 rows of 32 columns: those of a block are asked for during the next one, across
// panels, and the last ones at the end.
TEST(StageOverlapPieces, FollowTheProductsByOneBlock) {
  std::vector<float> memory(static_cast<size_t>(StageOverlap::floats(32, 2)));
  std::vector<ReadyRows> seen;
  StageOverlap overlap(memory.data(), 32, 2, 48, [&](const ReadyRows& r) { seen.push_back(r); });
  overlap.begin_panel(0);
  const auto first = overlap.begin(0, 32);
  EXPECT_EQ(overlap.pieces(), 0);
  const auto second = overlap.begin(32, 10);
  EXPECT_EQ(overlap.pieces(), 4);
  overlap.do_piece();
  ASSERT_EQ(seen.size(), 1U);
  EXPECT_EQ(seen[0].rows, 8);
  EXPECT_EQ(seen[0].sums, first);
  overlap.begin_panel(1);
  const auto third = overlap.begin(0, 32);  // finishes the first block, whose memory it takes
  EXPECT_EQ(third, first);
  EXPECT_NE(third, second);
  ASSERT_EQ(seen.size(), 4U);
  EXPECT_EQ(seen[3].row, 24);
  EXPECT_EQ(overlap.pieces(), 2);
  overlap.end();
  ASSERT_EQ(seen.size(), 10U);
  EXPECT_EQ(seen[5].row, 40);
  EXPECT_EQ(seen[5].rows, 2);
  EXPECT_EQ(seen[5].sums[1], second[1] + 8 * 32);
  EXPECT_EQ(seen[6].panel, 1);
  EXPECT_EQ(std::accumulate(seen.begin(), seen.end(), int64_t{0},
                            [](int64_t sum, const ReadyRows& r) { return sum + r.rows; }),
            74);
}

}  // namespace epilogue::testing::stage_overlap_test
