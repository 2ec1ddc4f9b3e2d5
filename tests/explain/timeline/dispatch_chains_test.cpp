// SPDX-License-Identifier: Apache-2.0
#include "epilogue/trace/time.h"

#include "explain/gpu_trace.h"
#include "support/test.h"

namespace epilogue::trace::dispatch_chains_test {

using testing::GpuTrace;

// linear(t(transpose), addmm), 100 ns, with one kernel of 30 ns.
void add_linear(GpuTrace& b, int64_t at, int64_t correlation) {
  b.op("aten::linear", at, at + 100);
  b.op("aten::t", at + 10, at + 30);
  b.op("aten::transpose", at + 15, at + 25);
  b.op("aten::addmm", at + 40, at + 90);
  b.call("cudaLaunchKernel", at + 50, at + 60, correlation);
  b.gpu_kernel("gemm", at + 70, at + 100, correlation);
}

DispatchChains chains_of(const GpuTrace& b) { return dispatch_chains(b.trace, link(b.trace)); }

TEST(DispatchChains, EqualTreesAreOneChain) {
  GpuTrace b;
  add_linear(b, 0, 1);
  add_linear(b, 200, 2);
  b.op("aten::t", 400, 410);  // on its own: another chain
  const DispatchChains d = chains_of(b);
  ASSERT_EQ(d.chains.size(), 2u);
  const DispatchChain& linear = d.chains[0];
  EXPECT_EQ(linear.text, "aten::linear(aten::t(aten::transpose), aten::addmm)");
  EXPECT_EQ(linear.op, "aten::linear");
  EXPECT_EQ(linear.count, 2);
  EXPECT_EQ(linear.ops, 4);
  EXPECT_EQ(linear.kernels, 2);
  EXPECT_EQ(linear.cpu_ns, 200);
  EXPECT_EQ(linear.device_ns, 60);
  EXPECT_EQ(linear.no_launch_ops, 2);
  EXPECT_EQ(linear.no_launch_ns, 40);
  EXPECT_EQ(d.chains[1].text, "aten::t");
  EXPECT_EQ(d.chains[1].kernels, 0);
}

TEST(DispatchChains, OpsThatLaunchNothingAreListedWithTheirOwnTime) {
  GpuTrace b;
  add_linear(b, 0, 1);
  b.op("aten::t", 400, 410);
  const DispatchChains d = chains_of(b);
  ASSERT_EQ(d.no_launch.size(), 2u);
  EXPECT_EQ(d.no_launch[0].name, "aten::t");
  EXPECT_EQ(d.no_launch[0].count, 2);
  EXPECT_EQ(d.no_launch[0].self_ns, 20);  // 20 less 10 of transpose, and 10
  EXPECT_EQ(d.no_launch[1].name, "aten::transpose");
  EXPECT_EQ(d.no_launch[1].self_ns, 10);
}

TEST(DispatchChains, SameNamesInOtherNestingAreOtherChains) {
  GpuTrace b;
  b.op("a", 0, 100);
  b.op("b", 10, 50);
  b.op("c", 20, 30);
  b.op("a", 200, 300);
  b.op("b", 210, 220);
  b.op("c", 230, 240);
  const DispatchChains d = chains_of(b);
  ASSERT_EQ(d.chains.size(), 2u);
  EXPECT_EQ(d.chains[0].text, "a(b(c))");
  EXPECT_EQ(d.chains[1].text, "a(b, c)");
  EXPECT_TRUE(d.no_launch.empty()) << "nothing launches in a trace of the host alone";
}

TEST(DispatchChains, LongChainsAreCut) {
  GpuTrace b;
  constexpr int64_t kDeep = 5000;
  for (int64_t i = 0; i < kDeep; ++i) b.op("deep", i, 2 * kDeep - i);
  const DispatchChains d = chains_of(b);
  ASSERT_EQ(d.chains.size(), 1u);
  EXPECT_EQ(d.chains[0].ops, kDeep);
  EXPECT_HAS(d.chains[0].text, "...");
  EXPECT_LT(d.chains[0].text.size(), 300u);
  EXPECT_TRUE(chains_of(GpuTrace()).chains.empty());
}

// 100,000 ops, each within the one before, of which the innermost alone launches.
TEST(DispatchChains, DepthIsNoRecursion) {
  constexpr int64_t kDepth = 100'000;
  GpuTrace b;
  for (int64_t i = 0; i < kDepth; ++i) b.op("aten::x", i, 3 * kDepth - i);
  b.call("cudaLaunchKernel", kDepth, kDepth + 1, 1);
  b.gpu_kernel("k", kDepth + 2, kDepth + 9, 1);
  const DispatchChains d = chains_of(b);
  ASSERT_EQ(d.chains.size(), 1u);
  EXPECT_EQ(d.chains[0].ops, kDepth);
  EXPECT_EQ(d.chains[0].kernels, 1);
  EXPECT_EQ(d.chains[0].device_ns, 7);
  EXPECT_EQ(d.chains[0].no_launch_ops, 0);
}

}  // namespace epilogue::trace::dispatch_chains_test
