// SPDX-License-Identifier: Apache-2.0
// Chains that look like fusions and are none, or save nothing.
#include "epilogue/trace/fusion.h"
#include "explain/fusion/fusion_program.h"
#include "support/test.h"

namespace epilogue::trace::fusion_refusals_test {

using namespace testing;

TEST(FusionRefusals, NoKernelCopiesBetweenHostAndDevice) {
  for (const char* copy : {"Memcpy HtoD (Pinned -> Device)", "Memcpy DtoH (Device -> Pageable)",
                           "CopyHostToDevice", "Memcpy PtoP (Device -> Device)", "Memcpy"}) {
    Program p;
    p.unary("aten::relu", 100, {8192, 3072});
    p.copy(copy, 50, {8192, 3072});
    p.unary("aten::tanh", 50, {8192, 3072});
    p.copy(copy, 50, {8192, 3072});
    const FusionFindings found = p.find();
    EXPECT_TRUE(found.fusions.empty()) << copy;
    EXPECT_NEAR(found.bandwidth_gb_per_s, 2 * 50.331648e6 / 100e3, 1e-6)
        << copy << " is none of the kernels whose bandwidth counts";
  }
  Program on_device;
  on_device.unary("aten::relu", 100, {8192, 3072});
  on_device.copy("Memcpy DtoD (Device -> Device)", 100, {8192, 3072});
  EXPECT_NE(find(on_device.find(), FusionKind::pointwise_chain), nullptr);
}

TEST(FusionRefusals, WhatAnUnknownOpMayHaveWrittenComesFromNobodyBeforeIt) {
  const auto ops_around = [](std::vector<OpInput> inputs) {
    Program p;
    p.unary("aten::relu", 60, {888, 3072});
    p.op("symm_mem::multimem_all_reduce_", 30, std::move(inputs));
    p.unary("aten::neg", 60, {888, 3072});
    return p.find().fusions.size();
  };
  EXPECT_EQ(ops_around({tensor({888 * 3072}, kBFloat16)}), 0U);
  EXPECT_EQ(ops_around({tensor({888, 128}, kBFloat16), tensor({888, 3072}, kBFloat16)}), 0U);
  EXPECT_EQ(ops_around({tensor_list({tensor({888, 3072}, "")})}), 0U)
      << "lists of traces do not tell the dtype";
  EXPECT_EQ(ops_around({tensor({888 * 3072}, "float")}), 1U);
  EXPECT_EQ(ops_around({tensor({888, 128}, kBFloat16)}), 0U)
      << "it may have made any tensor of bf16";
}

// Two tokens of a decoder: between the ops on logits a layer that the trace knows no shape of.
TEST(FusionRefusals, OpsOfTwoTokensAreNoChain) {
  Program p;
  for (int token = 0; token < 2; ++token) {
    p.op("custom::linear", 200, {tensor({4, 768}, kBFloat16), tensor({50257, 768}, kBFloat16)});
    p.unary("aten::div", 100, {4, 50257});
    p.unary("aten::_softmax", 100, {4, 50257});
    p.unary("aten::argmax", 100, {4, 50257});
    p.op("aten::sort", 300, {tensor({4, 50257}, kBFloat16)});
  }
  for (const Fusion& f : p.find().fusions)
    EXPECT_LE(std::count(f.ops.begin(), f.ops.end(), "aten::div"), 1) << f.ops.size();
}

TEST(FusionRefusals, ActivationsOfThreeLayersAreNoChain) {
  Program p;
  for (int layer = 0; layer < 3; ++layer) {
    p.op("custom::norm", 50, {tensor({512, 768}, kBFloat16)});
    p.op("custom::linear", 200, {tensor({512, 768}, kBFloat16), tensor({3072, 768}, kBFloat16)});
    p.unary("aten::gelu", 100, {512, 3072});
    p.op("custom::linear", 200, {tensor({512, 3072}, kBFloat16), tensor({768, 3072}, kBFloat16)});
  }
  EXPECT_TRUE(p.find().fusions.empty());
}

TEST(FusionRefusals, CopiesOfParametersAreNoChain) {
  Program p;
  for (int parameter = 0; parameter < 5; ++parameter) p.copy("elementwise", 60, {3072, 768});
  EXPECT_TRUE(p.find().fusions.empty());
}

// DistributedDataParallel divides each gradient into its place in the bucket: mul.out(grad, 1/n,
// view).
TEST(FusionRefusals, GradientsThatGoIntoABucketAreNoChain) {
  Program p;
  for (int gradient = 0; gradient < 8; ++gradient)
    p.op("aten::mul", 60,
         {tensor({3072, 768}, kBFloat16), tensor({}, "double"), tensor({3072, 768}, kBFloat16)});
  EXPECT_TRUE(p.find().fusions.empty());
}

TEST(FusionRefusals, APartOfAnotherTensorMayBeWhatIsRead) {
  const auto chains = [](std::vector<int64_t> whole, const char* sizes) {
    Program p;
    p.unary("aten::relu", 60, {4, 50257});
    p.part(std::move(whole), sizes);
    p.unary("aten::neg", 60, {4, 50257});
    return p.find().fusions.size();
  };
  EXPECT_EQ(chains({4, 10, 50257}, "[4, 50257]"), 0U) << "the logits of the last token";
  EXPECT_EQ(chains({4, 10, 768}, "[4, 768]"), 1U);
  EXPECT_EQ(chains({4, 50257}, "[4, 50257]"), 1U) << "all of it";
}

TEST(FusionRefusals, APartThatIsWrittenInBetweenChangesWhatIsRead) {
  const auto chains = [](std::vector<int64_t> filled) {
    Program p;
    p.unary("aten::relu", 60, {512, 3072});
    p.part({512, 3072}, "[512, 1024]");
    p.op("aten::fill_", 20, {tensor(std::move(filled), kBFloat16), scalar("0")});
    p.unary("aten::neg", 60, {512, 3072});
    return p.find().fusions.size();
  };
  EXPECT_EQ(chains({512, 1024}), 0U);
  EXPECT_EQ(chains({512, 7}), 1U) << "another tensor";
}

// silu(gate) * up: the slice that is up lies between, and the product reads both.
TEST(FusionRefusals, AReaderOfTwoTensorsReadsThePartAndTheResult) {
  Program p;
  p.unary("aten::silu", 60, {512, 3072});
  p.part({512, 6144}, "[512, 3072]");
  p.binary("aten::mul", 60, {512, 3072}, {512, 3072});
  const Fusion chain = fusion_of(p.find(), FusionKind::pointwise_chain);
  EXPECT_EQ(chain.ops, (std::vector<std::string>{"aten::silu", "aten::mul"}));
}

TEST(FusionRefusals, AProductWithASparseMatrixTakesNoEpilogue) {
  const auto fusions = [](bool is_sparse) {
    Program p;
    OpInput left = tensor({4096, 4096}, kBFloat16);
    if (is_sparse) left.strides.clear();
    p.op("aten::mm", 200, {left, tensor({4096, 512}, kBFloat16)});
    p.unary("aten::relu", 60, {4096, 512});
    return p.find().fusions.size();
  };
  EXPECT_EQ(fusions(false), 1U);
  EXPECT_EQ(fusions(true), 0U);
}

TEST(FusionRefusals, WhatAnOpInPlaceOverwroteNobodyReadsLater) {
  Program p;
  p.mm({4096, 256}, {256, 512});
  p.op("aten::add_", 60, {tensor({4096, 512}, kBFloat16), tensor({512}, kBFloat16)});
  p.op("aten::unknown_attention", 90, {tensor({4096, 8, 64}, kBFloat16)});
  p.mm({4096, 512}, {512, 512});  // reads what attention gave out, or add_; not the first product
  const Fusion epilogue = fusion_of(p.find(), FusionKind::gemm_epilogue);
  EXPECT_EQ(epilogue.ops, (std::vector<std::string>{"aten::mm", "aten::add_"}));
}

// Rotary embeddings of q and k: each half that was negated goes into a concatenation.
TEST(FusionRefusals, AListIsReadToo) {
  Program p;
  for (int i = 0; i < 2; ++i) {
    p.unary("aten::neg", 50, {16, 16, 559, 32});
    const OpInput half = tensor({16, 16, 559, 32}, "");
    p.op("aten::cat", 50, {tensor_list({half, half}), scalar("-1")});
  }
  EXPECT_TRUE(p.find().fusions.empty());
}

TEST(FusionRefusals, AComparisonDoesNotReadAnothersResult) {
  Program p;
  for (int i = 0; i < 2; ++i)
    p.op("aten::gt", 100, {tensor({135, 534, 800}, "double"), scalar("0.5")});
  EXPECT_TRUE(p.find().fusions.empty());
}

TEST(FusionRefusals, OutermostAnnotationsAreNotJoined) {
  const auto route = [](Program& p, const char* op) { p.unary(op, 50, {4096, 512}); };
  Program joined;
  joined.annotated("model", [&] {
    joined.annotated("MoE", [&] { route(joined, "aten::relu"); });
    joined.annotated("MoE", [&] { route(joined, "aten::sigmoid"); });
  });
  EXPECT_NE(find(joined.find(), FusionKind::pointwise_chain), nullptr);
  Program apart;
  for (const char* op : {"aten::relu", "aten::sigmoid"})
    apart.annotated("MoE", [&] { route(apart, op); });
  EXPECT_TRUE(apart.find().fusions.empty());
}

TEST(FusionRefusals, WhatSavesNextToNothingIsLeftOut) {
  Program p;
  p.mm({16, 512}, {512, 16}, 5);
  p.unary("aten::relu", 3, {16, 16});
  p.op("aten::unknown", 10, {});
  p.unary("aten::relu", 100, {8192, 3072});
  // 2 x 512 bytes at 1007 GB/s: a nanosecond of 8 us.
  EXPECT_TRUE(p.find().fusions.empty());
  // The host's 3 us of a dispatch are worth telling.
  const FusionFindings found = p.find({.is_host_bound = true});
  ASSERT_EQ(found.fusions.size(), 1U);
  EXPECT_NEAR(found.fusions[0].predicted_saving_us, 3, 1e-9);
}

TEST(FusionRefusals, WithoutAKnownBandwidthNoSavingIsClaimed) {
  Program p;
  p.mm({8192, 768}, {768, 3072});
  p.mm({8192, 768}, {768, 3072});
  const FusionFindings found = p.find();
  EXPECT_EQ(found.bandwidth_gb_per_s, 0);
  EXPECT_TRUE(found.fusions.empty());
}

TEST(FusionRefusals, HostileShapesDoNotOverflow) {
  Program p;
  p.unary("aten::relu", 10, {INT64_MAX, 2});
  p.unary("aten::tanh", 10, {INT64_MAX, 2});
  p.unary("aten::relu", 10, {INT64_MAX / 4, 3});
  EXPECT_NO_THROW(p.find());
}

}  // namespace epilogue::trace::fusion_refusals_test
