// SPDX-License-Identifier: Apache-2.0
// Chains that stand for one op of PyTorch: norms, GELU, rotary embeddings, optimizers of lists.
#include "epilogue/trace/explain.h"
#include "explain/findings/find_finding.h"
#include "explain/gpu_trace.h"
#include "support/test.h"

namespace epilogue::trace::pattern_findings_test {

using namespace testing;

struct Timed {
  const char* name;
  int64_t us;
};

// On a CPU, one after the other, on 1 MiB; roots on one number per row.
Explanation explain_ops(std::initializer_list<Timed> ops, int64_t columns_of_roots = 1) {
  GpuTrace b;
  int64_t at = 0;
  for (const Timed& op : ops) {
    b.op(op.name, at * kUs, (at + op.us) * kUs);
    const std::string_view name = op.name;
    if (name == "aten::rsqrt" || name == "aten::sqrt")
      b.inputs({tensor({256, columns_of_roots})});
    else
      b.inputs({tensor({256, 1024}), tensor({256, 1024})});
    at += op.us;
  }
  return explain(b.trace, link(b.trace));
}

// A list op with its launch and its kernel.
void list_op(GpuTrace& b, const char* name, int64_t at_us, int64_t us) {
  b.op(name, at_us * kUs, (at_us + 10) * kUs);
  b.call("cudaLaunchKernel", (at_us + 1) * kUs, (at_us + 4) * kUs, at_us + 1);
  b.gpu_kernel("multi_tensor_apply_kernel", (at_us + 10) * kUs, (at_us + 10 + us) * kUs, at_us + 1);
}

TEST(PatternFindings, RmsNormTakesAsLongAsItsLongestOp) {
  const Explanation e = explain_ops({{"aten::pow", 90},
                                     {"aten::mean", 80},
                                     {"aten::add", 1},
                                     {"aten::rsqrt", 1},
                                     {"aten::mul", 100},
                                     {"aten::mul", 95}});
  const Finding f = finding_of(e, "unfused-norm");
  EXPECT_TRUE(f.title.starts_with("RMSNorm runs as aten::pow + aten::mean")) << f.title;
  EXPECT_DOUBLE_EQ(*f.cost_us, 367);
  EXPECT_DOUBLE_EQ(*f.saving_us, 267);
  EXPECT_EQ(find_finding(e, "fusion"), nullptr) << "told once";
  EXPECT_FALSE(e.fusions.fusions.empty()) << "the table has it all the same";
}

TEST(PatternFindings, AnInverseRootOfSomethingElseIsNoNorm) {
  const Explanation e = explain_ops({{"aten::add", 80}, {"aten::rsqrt", 90}, {"aten::mul", 100}});
  EXPECT_EQ(find_finding(e, "unfused-norm"), nullptr);
  const Explanation adam = explain_ops(
      {{"aten::addcmul_", 80}, {"aten::sqrt", 90}, {"aten::div", 100}, {"aten::add_", 90}});
  EXPECT_EQ(find_finding(adam, "unfused-norm"), nullptr);
}

TEST(PatternFindings, AMeanOverSomethingElseThanRowsIsNoNorm) {
  const std::initializer_list<Timed> ops = {{"aten::pow", 90},  {"aten::mean", 80},
                                            {"aten::add", 1},   {"aten::rsqrt", 1},
                                            {"aten::mul", 100}, {"aten::mul", 95}};
  EXPECT_NE(find_finding(explain_ops(ops), "unfused-norm"), nullptr);
  EXPECT_EQ(find_finding(explain_ops(ops, 4), "unfused-norm"), nullptr);
}

TEST(PatternFindings, AStepOfOneListOpIsFusedEnough) {
  GpuTrace b;
  b.annotation("Optimizer.step#SGD.step", 0, 100 * kUs);
  list_op(b, "aten::_foreach_add_", 0, 90);
  EXPECT_EQ(find_finding(explain(b.trace, link(b.trace)), "unfused-optimizer"), nullptr);
}

TEST(PatternFindings, WithADifferenceBeforeTheSquareItIsALayerNorm) {
  const Explanation e = explain_ops({{"aten::mean", 80},
                                     {"aten::sub", 90},
                                     {"aten::pow", 90},
                                     {"aten::mean", 80},
                                     {"aten::add", 1},
                                     {"aten::sqrt", 1},
                                     {"aten::div", 100},
                                     {"aten::mul", 95},
                                     {"aten::add", 95}});
  const Finding f = finding_of(e, "unfused-norm");
  EXPECT_TRUE(f.title.starts_with("LayerNorm runs as aten::sub")) << f.title;
  EXPECT_HAS(f.action, "layer_norm");
}

TEST(PatternFindings, GeluByHandAsksForGelu) {
  const Explanation e = explain_ops({{"aten::mul", 50},
                                     {"aten::pow", 60},
                                     {"aten::mul", 50},
                                     {"aten::add", 50},
                                     {"aten::mul", 50},
                                     {"aten::tanh", 120},
                                     {"aten::add", 50},
                                     {"aten::mul", 50}});
  EXPECT_DOUBLE_EQ(*finding_of(e, "unfused-gelu").saving_us, 360);
  const Explanation plain =
      explain_ops({{"aten::mul", 50}, {"aten::tanh", 120}, {"aten::mul", 50}});
  EXPECT_EQ(find_finding(plain, "unfused-gelu"), nullptr);
}

TEST(PatternFindings, RotaryEmbeddingsCopyTheirHalves) {
  const Explanation e = explain_ops({{"aten::mul", 85},
                                     {"aten::neg", 70},
                                     {"aten::cat", 180},
                                     {"aten::mul", 85},
                                     {"aten::add", 80}});
  EXPECT_DOUBLE_EQ(*finding_of(e, "unfused-rotary").saving_us, 420);
  const Explanation plain = explain_ops({{"aten::mul", 85}, {"aten::cat", 180}, {"aten::mul", 85}});
  EXPECT_EQ(find_finding(plain, "unfused-rotary"), nullptr);
}

TEST(PatternFindings, AStepOfListOpsOutsideOfAnAnnotationIsAnOptimizer) {
  GpuTrace b;
  int64_t at = 0;
  for (const char* name : {"aten::_foreach_lerp_", "aten::_foreach_mul_", "aten::_foreach_addcmul_",
                           "aten::_foreach_sqrt", "aten::_foreach_addcdiv_"}) {
    list_op(b, name, at, 90);
    at += 100;
  }
  const Finding f = finding_of(explain(b.trace, link(b.trace)), "unfused-optimizer");
  EXPECT_EQ(f.title, "an optimizer like Adam runs as 5 ops: one kernel does a step");
  EXPECT_NEAR(*f.saving_us, 450 * 2.0 / 3, 1e-9);
  GpuTrace clip;  // gradients are scaled: no optimizer
  at = 0;
  for (int i = 0; i < 5; ++i, at += 100) list_op(clip, "aten::_foreach_mul_", at, 90);
  EXPECT_EQ(find_finding(explain(clip.trace, link(clip.trace)), "unfused-optimizer"), nullptr);
}

TEST(PatternFindings, ALoopInPlaceOverManyTensorsIsNoChain) {
  GpuTrace b;
  for (int i = 0; i < 40; ++i) {
    b.op("aten::add_", i * 100 * kUs, (i * 100 + 10) * kUs);
    b.call("cudaLaunchKernel", (i * 100 + 1) * kUs, (i * 100 + 4) * kUs, i + 1);
    b.gpu_kernel("add", (i * 100 + 10) * kUs, (i * 100 + 90) * kUs, i + 1);
  }
  const Explanation e = explain(b.trace, link(b.trace));
  EXPECT_TRUE(e.fusions.fusions.empty());
}

}  // namespace epilogue::trace::pattern_findings_test
