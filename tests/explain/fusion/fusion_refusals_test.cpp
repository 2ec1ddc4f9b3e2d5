// SPDX-License-Identifier: Apache-2.0
// Chains that look like fusions and are none, or save nothing.
#include <gtest/gtest.h>

#include "epilogue/trace/fusion.h"
#include "explain/fusion/fusion_program.h"

namespace epilogue::trace::fusion_refusals_test {
namespace {

using testing::find;
using testing::kBFloat16;
using testing::Program;
using testing::scalar;
using testing::tensor;
using testing::tensor_list;

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
  const auto copies_around = [](std::vector<OpInput> inputs) {
    Program p;
    p.copy("elementwise", 60, {888, 3072});
    p.op("symm_mem::multimem_all_reduce_", 30, std::move(inputs));
    p.copy("elementwise", 60, {888, 3072});
    return p.find().fusions.size();
  };
  EXPECT_EQ(copies_around({tensor({888 * 3072}, kBFloat16)}), 0U);
  EXPECT_EQ(copies_around({tensor({888, 128}, kBFloat16), tensor({888, 3072}, kBFloat16)}), 0U);
  EXPECT_EQ(copies_around({tensor_list({tensor({888, 3072}, "")})}), 0U)
      << "lists of traces do not tell the dtype";
  EXPECT_EQ(copies_around({tensor({888 * 3072}, "float")}), 1U);
  EXPECT_EQ(copies_around({tensor({888, 128}, kBFloat16)}), 1U);
}

TEST(FusionRefusals, WhatAnOpInPlaceOverwroteNobodyReadsLater) {
  Program p;
  p.mm({4096, 256}, {256, 512});
  p.op("aten::add_", 60, {tensor({4096, 512}, kBFloat16), tensor({512}, kBFloat16)});
  p.op("aten::unknown_attention", 90, {tensor({4096, 8, 64}, kBFloat16)});
  p.mm({4096, 512}, {512, 512});  // reads what attention gave out, or add_; not the first product
  const FusionFindings found = p.find();
  const Fusion* epilogue = find(found, FusionKind::gemm_epilogue);
  ASSERT_NE(epilogue, nullptr);
  EXPECT_EQ(epilogue->ops, (std::vector<std::string>{"aten::mm", "aten::add_"}));
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
  const auto route = [](Program& p) { p.unary("aten::sigmoid", 50, {4096, 512}); };
  Program joined;
  joined.annotated("model", [&] {
    joined.annotated("MoE", [&] { route(joined); });
    joined.annotated("MoE", [&] { route(joined); });
  });
  EXPECT_NE(find(joined.find(), FusionKind::pointwise_chain), nullptr);
  Program apart;
  for (int i = 0; i < 2; ++i) apart.annotated("MoE", [&] { route(apart); });
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

}  // namespace
}  // namespace epilogue::trace::fusion_refusals_test
