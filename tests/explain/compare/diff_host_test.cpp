// SPDX-License-Identifier: Apache-2.0
// Differences between traces without device work.
#include "epilogue/trace/diff.h"

#include "explain/compare/diff_testing.h"
#include "support/test.h"

namespace epilogue::trace::diff_host_test {

using namespace testing;

TEST(Diff, WithoutDeviceWorkOpsAreCompared) {
  TraceBuilder a, b;
  a.op("aten::linear", 0, 100 * kUs);
  a.op("aten::mm", 10 * kUs, 90 * kUs);
  a.op("aten::gelu", 120 * kUs, 150 * kUs);
  b.op("aten::mm", 0, 70 * kUs);
  const TraceDiff d = diff(a, b);
  EXPECT_EQ(d.wall_ns[0], 150 * kUs);
  const DiffPart& mm = test::found(find_part(d, "aten::mm: same op"));
  EXPECT_EQ(mm.delta_ns(), -10 * kUs);
  const DiffPart& between = test::found(find_part(d, "host between ops"));
  EXPECT_EQ(between.delta_ns(), -20 * kUs);
  EXPECT_TRUE(d.kernels_removed.empty()) << "ops are no kernels";
  EXPECT_TRUE(d.kernels_changed.empty());
  ASSERT_EQ(d.ops_removed.size(), 2U);
  EXPECT_EQ(d.ops_removed[0].name, "aten::gelu");
  EXPECT_EQ(d.ops_removed[1].name, "aten::linear");
  EXPECT_EQ(d.ops_removed[1].total_ns[0], 20 * kUs) << "without the product in it";
  ASSERT_EQ(d.ops_changed.size(), 1U);
  EXPECT_EQ(d.ops_changed[0].total_ns, (std::array<int64_t, 2>{80 * kUs, 70 * kUs}));
}

TEST(Diff, TheOwnTimeOfAnOpThatOutlastsItsStepIsWithoutAllBelowIt) {
  TraceBuilder a, b;
  for (TraceBuilder* t : {&a, &b}) {
    t->annotation("ProfilerStep#1", 0, 100 * kUs);
    t->op("aten::linear", 0, 150 * kUs);
  }
  a.op("aten::mm", 100 * kUs, 140 * kUs);
  const TraceDiff d = diff(a, b);
  ASSERT_EQ(d.ops_changed.size(), 1U);
  EXPECT_EQ(d.ops_changed[0].total_ns, (std::array<int64_t, 2>{110 * kUs, 150 * kUs}));
  EXPECT_TRUE(d.parts.empty()) << "the step is linear's in both";
}

TEST(Diff, OpsOfATraceWithoutDeviceWorkAreNoKernels) {
  TraceBuilder a, b;
  a.op("aten::mm", 0, 100 * kUs);
  a.kernel("gemm", 0, 100 * kUs, 0);
  b.op("aten::mm", 0, 50 * kUs);
  const TraceDiff d = diff(a, b);
  EXPECT_EQ(d.kernels_removed.size(), 1U);
  EXPECT_TRUE(d.kernels_added.empty());
  EXPECT_TRUE(d.ops_added.empty());
}

TEST(Diff, AnOpOfAnotherTypeIsNotTheSameOnACpu) {
  const auto run = [](const char* type, int64_t us) {
    testing::TraceBuilder b;
    b.op("aten::addmm", 0, us * 1000);
    b.inputs({testing::tensor({512}, type), testing::tensor({256, 512}, type),
              testing::tensor({512, 512}, type)});
    return std::move(b.trace);
  };
  const Trace f32 = run("float", 1000);
  const Trace bf16 = run("c10::BFloat16", 7500);
  const TraceDiff d = diff_traces(f32, link(f32), bf16, link(bf16), {});
  ASSERT_FALSE(d.parts.empty());
  EXPECT_EQ(d.parts[0].what, "aten::addmm: float -> BFloat16");
  const Trace slower = run("float", 2000);
  EXPECT_EQ(diff_traces(f32, link(f32), slower, link(slower), {}).parts.at(0).what,
            "aten::addmm: same op");
}

Trace product_of(int64_t rows, int64_t us) {
  TraceBuilder b;
  b.op("aten::addmm", 0, us * kUs);
  b.inputs({testing::tensor({3072}), testing::tensor({rows, 768}), testing::tensor({768, 3072})});
  return std::move(b.trace);
}

TEST(Diff, SizesThatChangedComeBeforeTheMeanTime) {
  const Trace many = product_of(4096, 5353);
  const Trace few = product_of(512, 752);
  const TraceDiff d = diff_traces(many, link(many), few, link(few), {});
  EXPECT_EQ(d.parts.at(0).what, "aten::addmm: other sizes");
  EXPECT_EQ(d.parts[0].why,
            "sizes 3072, 4096 x 768, 768 x 3072 -> 3072, 512 x 768, 768 x 3072; 1 execution, mean "
            "5353.0 -> 752.0 us");
}

TEST(Diff, SizesThatOccurOnBothSidesAreTheSame) {
  Trace before = product_of(4096, 5000);
  TraceBuilder b;
  b.op("aten::addmm", 0, 1000 * kUs);
  b.inputs({testing::tensor({3072}), testing::tensor({4096, 768}), testing::tensor({768, 3072})});
  b.op("aten::addmm", 1000 * kUs, 3000 * kUs);
  b.inputs({testing::tensor({3072}), testing::tensor({512, 768}), testing::tensor({768, 3072})});
  EXPECT_EQ(diff_traces(before, link(before), b.trace, link(b.trace), {}).parts.at(0).what,
            "aten::addmm: same op");
}

TEST(Diff, ATypeThatATraceDoesNotTellIsNoChange) {
  const auto run = [](std::vector<int64_t> strides, int64_t us) {
    TraceBuilder b;
    b.op("aten::mm", 0, us * kUs);
    OpInput left = testing::tensor({256, 512});
    left.strides =
        std::move(strides);  // none: a sparse matrix, whose type tensor_inputs leaves out
    b.inputs({left, testing::tensor({512, 512})});
    return std::move(b.trace);
  };
  const Trace dense = run({512, 1}, 1000);
  const Trace sparse = run({}, 7500);
  EXPECT_EQ(diff_traces(dense, link(dense), sparse, link(sparse), {}).parts.at(0).what,
            "aten::mm: same op");
}

}  // namespace epilogue::trace::diff_host_test
