// SPDX-License-Identifier: Apache-2.0
// Fusions in traces without device work: an op's own calls are part of it.
#include "epilogue/trace/fusion.h"

#include "support/test.h"
#include "trace/trace_builder.h"

namespace epilogue::trace::cpu_fusion_test {

using namespace testing;

FusionFindings found(const TraceBuilder& b) { return find_fusions(b.trace, link(b.trace)); }

// nn.Linear with a bias as PyTorch's CPU traces have it: addmm copies the bias itself.
int64_t linear_gelu(TraceBuilder& b, int64_t at) {
  b.op("aten::linear", at, at + 110 * kUs);
  b.op("aten::t", at + kUs, at + 2 * kUs);
  b.op("aten::addmm", at + 5 * kUs, at + 105 * kUs);
  b.inputs({tensor({512}), tensor({256, 512}), tensor({512, 512}), scalar("1"), scalar("1")});
  b.op("aten::expand", at + 6 * kUs, at + 7 * kUs);
  b.op("aten::copy_", at + 8 * kUs, at + 20 * kUs);
  b.inputs({tensor({256, 512}), tensor({256, 512}), scalar("False")});
  b.op("aten::gelu", at + 110 * kUs, at + 150 * kUs);
  b.inputs({tensor({256, 512}), scalar("none")});
  return at + 150 * kUs;
}

TEST(CpuFusion, AProductThatCopiesItsBiasIsWork) {
  TraceBuilder b;
  int64_t at = 0;
  for (int layer = 0; layer < 3; ++layer) at = linear_gelu(b, at);
  for (const Fusion& f : found(b).fusions) {
    EXPECT_NE(f.kind, FusionKind::pointwise_chain) << "no chain runs through a product";
    EXPECT_EQ(f.ops, (std::vector<std::string>{"aten::addmm", "aten::gelu"}));
    EXPECT_EQ(f.count, 3);
  }
  EXPECT_EQ(found(b).fusions.size(), 1U);
}

TEST(CpuFusion, TheCastWithinAnOpIsPartOfIt) {
  TraceBuilder b;
  b.op("aten::relu", 0, 20 * kUs);
  b.inputs({tensor({256, 512})});
  b.op("aten::div", 20 * kUs, 60 * kUs);
  b.inputs({tensor({256, 512}), tensor({})});
  b.op("aten::to", 21 * kUs, 30 * kUs);
  b.op("aten::_to_copy", 22 * kUs, 29 * kUs);
  b.op("aten::copy_", 23 * kUs, 28 * kUs);
  b.inputs({tensor({}), tensor({}, "double")});
  const FusionFindings f = found(b);
  ASSERT_EQ(f.fusions.size(), 1U);
  EXPECT_EQ(f.fusions[0].ops, (std::vector<std::string>{"aten::relu", "aten::div"}));
  EXPECT_DOUBLE_EQ(f.fusions[0].time_us, 60);
}

TEST(CpuFusion, AnOpThatCallsOtherWorkLeavesItToThem) {
  TraceBuilder b;
  b.op("aten::softmax", 0, 50 * kUs);
  b.inputs({tensor({256, 512})});
  b.op("aten::_softmax", 5 * kUs, 45 * kUs);
  b.inputs({tensor({256, 512})});
  b.op("aten::mul", 50 * kUs, 90 * kUs);
  b.inputs({tensor({256, 512}), tensor({256, 512})});
  const FusionFindings f = found(b);
  ASSERT_EQ(f.fusions.size(), 1U);
  EXPECT_EQ(f.fusions[0].ops, (std::vector<std::string>{"aten::_softmax", "aten::mul"}));
}

TEST(CpuFusion, ALoopOverTensorsOfOneShapeIsNoChainThroughAllOfThem) {
  TraceBuilder b;
  int64_t at = 0;
  for (int tensors = 0; tensors < 5; ++tensors)
    for (const char* name : {"aten::add", "aten::mul", "aten::clamp_min"}) {
      b.op(name, at, at + 20 * kUs);
      b.inputs({tensor({256, 512})});
      at += 20 * kUs;
    }
  const FusionFindings f = found(b);
  ASSERT_EQ(f.fusions.size(), 1U);
  EXPECT_EQ(f.fusions[0].ops,
            (std::vector<std::string>{"aten::add", "aten::mul", "aten::clamp_min"}));
  EXPECT_EQ(f.fusions[0].count, 5);
  TraceBuilder same;  // a loop over tensors: nobody applies an op to its own result six times
  for (int64_t i = 0; i < 6; ++i) {
    same.op("aten::sin", i * 20 * kUs, (i + 1) * 20 * kUs);
    same.inputs({tensor({256, 512})});
  }
  EXPECT_TRUE(found(same).fusions.empty());
}

TEST(CpuFusion, NoGpuLibraryIsNamed) {
  TraceBuilder b;
  linear_gelu(b, 0);
  const FusionFindings f = found(b);
  ASSERT_EQ(f.fusions.size(), 1U);
  EXPECT_LACKS(f.fusions[0].assumption, "cuBLASLt");
  EXPECT_HAS(f.fusions[0].assumption, "oneDNN");
}

// Eager's dropout draws a mask, scales it and multiplies. Inductor draws within its kernel, which
// takes longer than eager's draw.
TEST(CpuFusion, WhatReadsRandomNumbersPromisesNoSaving) {
  const auto fusions = [](const char* mask) {
    TraceBuilder b;
    b.op("aten::gelu", 0, 100 * kUs);
    b.inputs({tensor({256, 4096}), scalar("none")});
    b.op(mask, 100 * kUs, 300 * kUs);
    b.inputs({tensor({256, 4096}), scalar("0.9"), scalar("")});
    b.op("aten::div_", 300 * kUs, 350 * kUs);
    b.inputs({tensor({256, 4096}), tensor({}, "double")});
    b.op("aten::mul", 350 * kUs, 450 * kUs);
    b.inputs({tensor({256, 4096}), tensor({256, 4096})});
    return found(b).fusions.size();
  };
  EXPECT_EQ(fusions("aten::bernoulli_"), 0U);
  EXPECT_EQ(fusions("aten::relu_"), 1U) << "a mask that is not drawn";
  TraceBuilder native;
  native.op("aten::_softmax", 0, 100 * kUs);
  native.inputs({tensor({256, 512})});
  native.op("aten::native_dropout", 100 * kUs, 200 * kUs);
  native.inputs({tensor({256, 512}), scalar("0.1"), scalar("True")});
  EXPECT_TRUE(found(native).fusions.empty());
}

// Inductor runs a scan and the softmax before it as one loop without vectors.
TEST(CpuFusion, AScanIsAKernelOfItsOwnAndSpoilsWhatMakesItsInput) {
  const auto fusions = [](bool is_made) {
    TraceBuilder b;
    if (is_made) {
      b.op("aten::_softmax", 0, 100 * kUs);
      b.inputs({tensor({256, 4096})});
    }
    b.op("aten::cumsum", 100 * kUs, 300 * kUs);
    b.inputs({tensor({256, 4096}), scalar("-1"), scalar("")});
    b.op("aten::sub", 300 * kUs, 400 * kUs);
    b.inputs({tensor({256, 4096}), tensor({256, 4096})});
    b.op("aten::gt", 400 * kUs, 500 * kUs);
    b.inputs({tensor({256, 4096}), scalar("0.9")});
    return found(b).fusions;
  };
  EXPECT_TRUE(fusions(true).empty());
  const std::vector<Fusion> alone = fusions(false);
  ASSERT_EQ(alone.size(), 1U);
  EXPECT_EQ(alone[0].ops, (std::vector<std::string>{"aten::sub", "aten::gt"}));
}

TEST(CpuFusion, MemoryIsNotTakenToBeAsSlowAsArithmetic) {
  TraceBuilder b;
  linear_gelu(b, 0);
  b.trace.events.back().dur_ns = 15'000 * kUs;  // a gelu of 70 MB/s, and nothing simpler
  const FusionFindings f = found(b);
  ASSERT_EQ(f.fusions.size(), 1U);
  EXPECT_LT(f.fusions[0].device_saving_us, 250) << "1 MiB at 5 GB/s";
}

TEST(CpuFusion, AProductKeepsTheActivationThatItCalls) {
  TraceBuilder b;
  b.op("aten::_addmm_activation", 0, 200 * kUs);
  b.inputs({tensor({512}), tensor({256, 512}), tensor({512, 512})});
  b.op("aten::copy_", 5 * kUs, 20 * kUs);
  b.inputs({tensor({256, 512}), tensor({256, 512}), scalar("False")});
  b.op("aten::gelu_", 150 * kUs, 190 * kUs);
  b.inputs({tensor({256, 512}), scalar("none")});
  EXPECT_TRUE(found(b).fusions.empty()) << "the product lies between copy_ and gelu_";
}

TEST(CpuFusion, AnOpThatWorksBetweenItsCallsIsNoChain) {
  const auto run = [](int64_t own_us) {
    TraceBuilder b;
    b.op("aten::embedding_dense_backward", 0, (50 + own_us) * kUs);
    b.inputs({tensor({64, 512}), tensor({64}, "long int")});
    b.op("aten::neg", 5 * kUs, 50 * kUs);
    b.inputs({tensor({256, 512})});
    b.op("aten::mul", (50 + own_us) * kUs, (100 + own_us) * kUs);
    b.inputs({tensor({256, 512}), tensor({256, 512})});
    return found(b).fusions.size();
  };
  EXPECT_EQ(run(100), 0U) << "it adds to what it negated";
  EXPECT_EQ(run(5), 1U);
}

TEST(CpuFusion, CopiesThatAnUnknownOpMakesForItselfAreNoChain) {
  const auto run = [](const char* around) {
    TraceBuilder b;
    b.op(around, 0, 100 * kUs);
    b.inputs({tensor({256, 512})});
    for (int64_t i = 0; i < 2; ++i) {  // a cast, and its result made contiguous
      b.op("aten::copy_", (1 + 49 * i) * kUs, 49 * (i + 1) * kUs);
      b.inputs(
          {tensor({256, 512}), tensor({256, 512}, i == 0 ? "double" : "float"), scalar("False")});
    }
    return found(b).fusions.size();
  };
  EXPECT_EQ(run("aten::upsample_nearest2d"), 0U);
  EXPECT_EQ(run("aten::contiguous"), 1U);
  EXPECT_EQ(run("aten::matmul"), 1U) << "it copies what its product reads";
}

TEST(CpuFusion, WhereHardlyAByteIsSavedHardlyAnyTimeIs) {
  TraceBuilder b;
  b.op("aten::neg", 0, 5'000 * kUs);  // 4 KiB: somebody interrupted it
  b.inputs({tensor({1024})});
  b.op("aten::mul", 5'000 * kUs, 5'100 * kUs);
  b.inputs({tensor({1024, 1024}), tensor({1024})});
  const FusionFindings f = found(b);
  ASSERT_EQ(f.fusions.size(), 1U);
  EXPECT_LT(f.fusions[0].device_saving_us, 10);
}

TEST(CpuFusion, WhatIsFilledIsNotWhatIsReadNext) {
  TraceBuilder b;
  b.op("aten::fill_", 0, 40 * kUs);
  b.inputs({tensor({256, 512}), scalar("0")});
  b.op("aten::mul", 40 * kUs, 80 * kUs);
  b.inputs({tensor({256, 512}), tensor({256, 512})});
  EXPECT_TRUE(found(b).fusions.empty());
}

TEST(CpuFusion, ExpandedInputsAreNoResults) {
  TraceBuilder b;
  OpInput expanded = tensor({4, 8, 4096});
  expanded.strides = {4096, 0, 1};
  for (int64_t i = 0; i < 2; ++i) {  // keys and values of grouped heads
    b.op("aten::copy_", 40 * i * kUs, 40 * (i + 1) * kUs);
    b.inputs({tensor({4, 8, 4096}), expanded, scalar("False")});
  }
  EXPECT_TRUE(found(b).fusions.empty());
}

TEST(CpuFusion, OneOpInPlaceTwiceIsALoopOverTensors) {
  TraceBuilder b;
  for (int64_t i = 0; i < 2; ++i) {
    b.op("aten::add_", 40 * i * kUs, 40 * (i + 1) * kUs);
    b.inputs({tensor({256, 512}), tensor({256, 512})});
  }
  EXPECT_TRUE(found(b).fusions.empty());
}

TEST(CpuFusion, WhatARecurrentLayerCallsIsNotFused) {
  const auto fusions_in = [](const char* layer) {
    TraceBuilder b;
    b.op(layer, 0, 100 * kUs);
    b.op("aten::neg", 5 * kUs, 45 * kUs);
    b.inputs({tensor({256, 512})});
    b.op("aten::relu", 50 * kUs, 90 * kUs);
    b.inputs({tensor({256, 512})});
    return found(b).fusions.size();
  };
  EXPECT_EQ(fusions_in("custom::cell"), 1U);
  EXPECT_EQ(fusions_in("aten::gru"), 0U) << "torch.compile leaves it as it is";
}

}  // namespace epilogue::trace::cpu_fusion_test
