// SPDX-License-Identifier: Apache-2.0
// Fusions found on small programs, with savings worked out by hand.
#include "epilogue/trace/fusion.h"

#include "explain/fusion/fusion_program.h"
#include "support/test.h"

namespace epilogue::trace::fusion_test {

using namespace testing;

// T = 8192 x 3072 bf16 = 50,331,648 bytes.
void geglu(Program& p) {
  p.mm({8192, 768}, {768, 3072});
  p.unary("aten::gelu", 100, {64, 128, 3072});  // 2 T in 100 us: the bandwidth
  p.mm({8192, 768}, {768, 3072});
  p.binary("aten::mul", 130, {64, 128, 3072}, {64, 128, 3072});  // 3 T
  p.mm({8192, 3072}, {3072, 768});
}

TEST(Fusion, GegluIsOneChainAcrossTheUpProjection) {
  Program p;
  geglu(p);
  const FusionFindings found = p.find();
  EXPECT_TRUE(found.has_shapes);
  EXPECT_NEAR(found.bandwidth_gb_per_s, 2 * 50.331648e6 / 100e3, 1e-6);
  const Fusion chain = fusion_of(found, FusionKind::pointwise_chain);
  EXPECT_EQ(chain.ops, (std::vector<std::string>{"aten::gelu", "aten::mul"}));
  EXPECT_EQ(chain.count, 1);
  EXPECT_EQ(chain.kernels_now, 2);
  EXPECT_EQ(chain.kernels_after, 1);
  EXPECT_DOUBLE_EQ(chain.bytes_now, 5 * 50331648.0);
  EXPECT_DOUBLE_EQ(chain.bytes_after, 3 * 50331648.0);
  // gelu no longer writes T, at the bandwidth of T per 50 us; mul no longer reads T of its 3 T, at
  // what they cost it: 130 / 3 us.
  EXPECT_NEAR(chain.device_saving_us, 50 + 130.0 / 3, 1e-9);
  EXPECT_EQ(chain.confidence, Confidence::high);
  EXPECT_EQ(chain.shape, "[64, 128, 3072] c10::BFloat16");
}

TEST(Fusion, ItsProductsTakeItAsTheirEpilogue) {
  Program p;
  geglu(p);
  const FusionFindings found = p.find();
  const Fusion& epilogue = test::found(find(found, FusionKind::gemm_epilogue));
  EXPECT_EQ(epilogue.ops,
            (std::vector<std::string>{"aten::mm", "aten::gelu", "aten::mm", "aten::mul"}));
  // Both products and the chain move 5 T. One of the two products takes the epilogue and is neither
  // written nor read again; the other one is, and the result is written: 3 T.
  EXPECT_DOUBLE_EQ(epilogue.bytes_now, 5 * 50331648.0);
  EXPECT_DOUBLE_EQ(epilogue.bytes_after, 3 * 50331648.0);
  EXPECT_NEAR(epilogue.device_saving_us, 100, 1e-9);  // 2 T
  EXPECT_EQ(epilogue.kernels_now, 3);
  EXPECT_EQ(epilogue.kernels_after, 2);
}

TEST(Fusion, AnEpilogueSavesNoMoreThanItsChainTakes) {
  Program p;
  p.unary("aten::relu", 100, {8192, 3072});  // 2 T in 100 us: the bandwidth
  p.mm({8192, 768}, {768, 3072});
  p.unary("aten::relu", 60, {8192, 3072});  // in 60 us: out of a cache
  const Fusion epilogue = fusion_of(p.find(), FusionKind::gemm_epilogue);
  EXPECT_DOUBLE_EQ(epilogue.bytes_now, 3 * 50331648.0);
  EXPECT_DOUBLE_EQ(epilogue.bytes_after, 50331648.0);
  EXPECT_NEAR(epilogue.device_saving_us, 60, 1e-9);
}

TEST(Fusion, GateAndUpReadTheSameInput) {
  Program p;
  geglu(p);
  const Fusion* merged = nullptr;
  const FusionFindings found = p.find();
  merged = find(found, FusionKind::merged_gemms);
  ASSERT_NE(merged, nullptr);
  EXPECT_EQ(merged->ops, (std::vector<std::string>{"aten::mm", "aten::mm"}));
  // Each reads x and its weights and writes T; merged they read x once.
  constexpr double x = 8192 * 768 * 2;
  EXPECT_DOUBLE_EQ(merged->bytes_now, 2 * (x + 768 * 3072 * 2 + 50331648.0));
  EXPECT_DOUBLE_EQ(merged->bytes_after, merged->bytes_now - x);
  EXPECT_EQ(merged->kernels_now, 2);
  EXPECT_EQ(merged->kernels_after, 1);
  EXPECT_NEAR(merged->device_saving_us, 12.5, 1e-9);  // T / 4
}

TEST(Fusion, FillsAndCopiesAreNoKernels) {
  Program p;
  for (int i = 0; i < 2; ++i) {
    p.mm({8192, 768}, {768, 3072});
    p.beside("Memset (Device)", 1);  // cuBLAS clears its workspace
  }
  p.binary("aten::add", 100, {8192, 3072}, {8192, 3072});
  p.copy("Memcpy DtoD (Device -> Device)", 100, {8192, 3072});
  const FusionFindings found = p.find();
  const Fusion merged = fusion_of(found, FusionKind::merged_gemms);
  EXPECT_EQ(merged.kernels_now, 2);
  EXPECT_EQ(merged.kernels_after, 1);
  const Fusion chain = fusion_of(found, FusionKind::pointwise_chain);
  EXPECT_EQ(chain.ops, (std::vector<std::string>{"aten::add", "aten::copy_"}));
  EXPECT_EQ(chain.kernels_now, 1);
  EXPECT_EQ(chain.kernels_after, 1);
  const Fusion epilogue = fusion_of(found, FusionKind::gemm_epilogue);
  EXPECT_EQ(epilogue.kernels_now, 3);
  EXPECT_EQ(epilogue.kernels_after, 2);
}

TEST(Fusion, AMergedProductSplitsItsSumAsItsPartsDid) {
  Program p;
  for (int i = 0; i < 2; ++i) {
    p.mm({512, 4096}, {4096, 64});
    p.beside("void cublasLt::splitKreduce_kernel<32, 16, int, float>(float*)", 3);
  }
  p.unary("aten::relu", 100, {8192, 3072});
  const Fusion merged = fusion_of(p.find(), FusionKind::merged_gemms);
  EXPECT_EQ(merged.kernels_now, 4);
  EXPECT_EQ(merged.kernels_after, 2);
}

TEST(Fusion, StepsAreCountedNotJoined) {
  Program p;
  for (int s = 0; s < 3; ++s) p.annotated("ProfilerStep#" + std::to_string(s), [&] { geglu(p); });
  const Fusion chain = fusion_of(p.find(), FusionKind::pointwise_chain);
  EXPECT_EQ(chain.count, 3);
  EXPECT_EQ(chain.ops.size(), 2U);
  EXPECT_EQ(chain.kernels_now, 6);
  // The faster of the two ops is the bandwidth now: 2 T at 3 T per 130 us, three times.
  EXPECT_NEAR(chain.device_saving_us, 260, 1e-9);
}

TEST(Fusion, AProductBetweenThatNeedsTheFirstOpSplitsAChain) {
  Program p;
  p.unary("aten::relu", 50, {512, 512});
  p.mm({512, 512}, {512, 512});           // reads relu's output
  p.unary("aten::tanh", 50, {512, 512});  // reads the product
  const FusionFindings found = p.find();
  EXPECT_EQ(find(found, FusionKind::pointwise_chain), nullptr);
  const Fusion epilogue = fusion_of(found, FusionKind::gemm_epilogue);
  EXPECT_EQ(epilogue.ops, (std::vector<std::string>{"aten::mm", "aten::tanh"}));
}

TEST(Fusion, AnOutputThatIsReadLaterIsStillWritten) {
  Program p;
  p.binary("aten::add", 60, {4096, 1024}, {4096, 1024});  // the residual stream
  p.unary("aten::relu", 40, {4096, 1024});
  p.op("aten::unknown", 10, {});
  p.binary("aten::mul", 60, {4096, 1024}, {4096, 1024});
  const Fusion chain = fusion_of(p.find(), FusionKind::pointwise_chain);
  // add -> relu -> mul; mul's other input may be add's output again.
  EXPECT_EQ(chain.ops, (std::vector<std::string>{"aten::add", "aten::relu", "aten::mul"}));
  constexpr double t = 4096 * 1024 * 2;
  EXPECT_DOUBLE_EQ(chain.bytes_now, (3 + 2 + 3) * t);
  // Both are at hand in the kernel: it reads add's two inputs and writes mul's output.
  EXPECT_DOUBLE_EQ(chain.bytes_after, 3 * t);
  p.mm({4096, 1024}, {1024, 64});
  p.mm({4096, 1024}, {1024, 64});  // may read what add, relu or mul gave out: all are written
  EXPECT_DOUBLE_EQ(fusion_of(p.find(), FusionKind::pointwise_chain).bytes_after, 5 * t);
}

TEST(Fusion, ANormReadsItsInputOnceAndWritesNoSquares) {
  Program p;
  p.mm({4096, 1024}, {1024, 1024});
  p.unary("aten::pow", 50, {4096, 1024});
  p.op("aten::mean", 30,
       {testing::tensor({4096, 1024}, testing::kBFloat16), testing::scalar("[-1]")});
  p.unary("aten::rsqrt", 5, {4096, 1});
  p.binary("aten::mul", 60, {4096, 1024}, {4096, 1});
  const Fusion chain = fusion_of(p.find(), FusionKind::pointwise_chain);
  EXPECT_EQ(chain.ops,
            (std::vector<std::string>{"aten::pow", "aten::mean", "aten::rsqrt", "aten::mul"}));
  EXPECT_DOUBLE_EQ(chain.bytes_after, 2 * 4096 * 1024 * 2);
}

TEST(Fusion, AHostBoundRunSavesTheHostsTime) {
  Program p;
  geglu(p);
  const Fusion chain = fusion_of(p.find({.is_host_bound = true, .profiler_ns_per_op = 4000}),
                                 FusionKind::pointwise_chain);
  // All but the slower op, less what recording it cost: 100 - 4.
  EXPECT_NEAR(chain.predicted_saving_us, 96, 1e-9);
}

TEST(Fusion, WithoutShapesRunsOfElementwiseOpsAreALowGuess) {
  Program p;
  p.op("aten::mul", 30, {});
  p.op("aten::add", 20, {});
  p.op("aten::mm", 90, {});
  p.op("aten::relu", 10, {});
  const FusionFindings found = p.find();
  EXPECT_FALSE(found.has_shapes);
  ASSERT_EQ(found.fusions.size(), 1U);
  EXPECT_EQ(found.fusions[0].ops, (std::vector<std::string>{"aten::mul", "aten::add"}));
  EXPECT_NEAR(found.fusions[0].device_saving_us, 20, 1e-9);
  EXPECT_EQ(found.fusions[0].confidence, Confidence::low);
}

TEST(Fusion, WithoutDeviceWorkTheOpsOwnTimeCounts) {
  Program p;
  p.has_kernels = false;
  geglu(p);
  const Fusion chain = fusion_of(p.find(), FusionKind::pointwise_chain);
  EXPECT_EQ(chain.kernels_now, 0);
  EXPECT_TRUE(chain.kernels.empty());
  // mul reads 2 T and writes T into memory that it did not read, 4 T in 130 us. The kernel writes
  // where a product lay: 3 T. A fused gelu of bf16 takes 1.8 times as long, less its 3 T.
  const double three_t_us = 130 * 3 / 4.0;
  EXPECT_NEAR(chain.predicted_saving_us, 230 - (three_t_us + 1.8 * 100 - three_t_us), 1e-9);
}

TEST(Fusion, ChainsOfCopiesAreAGuess) {
  Program p;
  p.op("aten::copy_", 40, {testing::tensor({4096, 1024}, kBFloat16), testing::tensor({4096, 1024})},
       "elementwise");
  p.copy("elementwise", 40, {4096, 1024});
  p.unary("aten::relu", 40, {4096, 1024});
  EXPECT_EQ(fusion_of(p.find(), FusionKind::pointwise_chain).confidence, Confidence::low);
}

TEST(Fusion, AnEmptyTraceHasNone) {
  Program p;
  const FusionFindings found = p.find();
  EXPECT_TRUE(found.fusions.empty());
  EXPECT_EQ(found.bandwidth_gb_per_s, 0);
}

}  // namespace epilogue::trace::fusion_test
