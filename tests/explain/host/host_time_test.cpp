// SPDX-License-Identifier: Apache-2.0
// Runs without a device: where the host's time goes.
#include "epilogue/trace/host.h"

#include "explain/gpu_trace.h"
#include "support/test.h"

namespace epilogue::trace::host_time_test {

using namespace testing;

std::optional<HostTime> judged(const GpuTrace& b) { return host_time(b.trace, link(b.trace)); }

void product(GpuTrace& b, int64_t start_us, int64_t end_us, int64_t m, const char* type = "float") {
  b.op("aten::addmm", start_us * kUs, end_us * kUs);
  b.inputs({tensor({512}, type), tensor({m, 1024}, type), tensor({1024, 512}, type), scalar("1"),
            scalar("1")});
}

TEST(HostTime, ProductsOfManyRowsAreComputeBound) {
  GpuTrace b;
  product(b, 0, 1006, 1024);  // 1 us is the profiler's, 2 us are the call
  b.op("aten::gelu", 1006 * kUs, 1106 * kUs);
  b.inputs({tensor({1024, 512})});
  const HostTime host = judged(b).value();
  EXPECT_EQ(host.bound, Bound::compute);
  EXPECT_EQ(host.of(HostPart::compute), 1003 * kUs);
  EXPECT_EQ(host.of(HostPart::memory), 97 * kUs);
  EXPECT_EQ(host.of(HostPart::dispatch), 4 * kUs);
  EXPECT_EQ(host.of(HostPart::profiler), 2 * kUs);
  ASSERT_EQ(host.products.size(), 1U);
  EXPECT_EQ(host.products[0].shape.m, 1024);
  EXPECT_EQ(host.products[0].type, "f32");
  EXPECT_NEAR(host.products[0].gflops, 2.0 * 1024 * 1024 * 512 / 1006e3, 1e-9);
  EXPECT_FALSE(host.products[0].waits_for_memory);
  EXPECT_FALSE(host.products[0].is_dispatch);
  ASSERT_EQ(host.ops.size(), 2U);
  EXPECT_EQ(host.ops[0].name, "aten::addmm");
  ASSERT_TRUE(host.ops[1].gb_per_s);
  EXPECT_NEAR(*host.ops[1].gb_per_s, 2.0 * 1024 * 512 * 4 / 100e3, 1e-9);
}

TEST(HostTime, AProductOfOneRowWaitsForMemory) {
  GpuTrace b;
  product(b, 0, 1000, 1);
  const HostTime host = judged(b).value();
  EXPECT_EQ(host.bound, Bound::memory);
  EXPECT_TRUE(host.products.at(0).waits_for_memory);
  EXPECT_LT(host.products.at(0).flops_per_byte, 1);
}

// 17 x 768 x 192: 7.7 FLOPs for each byte, and a core's cache holds all 655 kB.
TEST(HostTime, AProductThatACacheHoldsDoesNotWaitForMemory) {
  GpuTrace b;
  b.op("aten::mm", 0, 1000 * kUs);
  b.inputs({tensor({17, 768}), tensor({768, 192})});
  const HostTime host = judged(b).value();
  EXPECT_LT(host.products.at(0).flops_per_byte, kLeastFlopsPerByte);
  EXPECT_FALSE(host.products[0].waits_for_memory);
  EXPECT_EQ(host.bound, Bound::compute);
}

TEST(HostTime, AProductThatIsAsFastAsOthersDoesNotWaitForMemory) {
  const auto host_of = [](int64_t us_of_few) {
    GpuTrace b;
    b.op("aten::mm", 0, us_of_few * kUs);  // 16.8 MFLOP, 4.3 MB
    b.inputs({tensor({8, 1024}), tensor({1024, 1024})});
    product(b, us_of_few, us_of_few + 5000, 1024);  // 1.07 GFLOP: 215 GFLOP/s
    return *judged(b);
  };
  const auto waits = [](const HostTime& host) {
    for (const HostProduct& p : host.products)
      if (p.shape.m == 8) return p.waits_for_memory;
    return false;
  };
  const HostTime fast = host_of(100);  // 168 GFLOP/s
  EXPECT_FALSE(waits(fast));
  EXPECT_EQ(fast.of(HostPart::memory), 0);
  const HostTime slow = host_of(400);  // 42 GFLOP/s
  EXPECT_TRUE(waits(slow));
  EXPECT_EQ(slow.of(HostPart::memory), 397 * kUs);
}

TEST(HostTime, AHelperOfASolverComputes) {
  GpuTrace b;
  b.op("aten::cholesky_solve", 0, 1000 * kUs);
  b.op("aten::_cholesky_solve_helper", 10 * kUs, 990 * kUs);
  b.inputs({tensor({512, 512}), tensor({512, 512}), scalar("False")});
  const HostTime host = judged(b).value();
  EXPECT_EQ(host.bound, Bound::compute);
  EXPECT_EQ(host.of(HostPart::memory), 0);
}

TEST(HostTime, AProductWithASparseMatrixHasNoRate) {
  GpuTrace b;
  b.op("aten::mm", 0, 1000 * kUs);
  OpInput sparse = tensor({100'000, 100'000});
  sparse.strides.clear();
  b.inputs({sparse, tensor({100'000, 64})});
  EXPECT_TRUE(judged(b).value().products.empty());
}

// 4 kFLOP: less than 1 us on any core.
void tiny_product(GpuTrace& b, int64_t start_us, int64_t end_us) {
  b.op("aten::mm", start_us * kUs, end_us * kUs);
  b.inputs({tensor({8, 16}), tensor({16, 16})});
}

TEST(HostTime, ATinyProductIsTheCostOfItsCall) {
  GpuTrace b;
  for (int64_t i = 0; i < 10; ++i) tiny_product(b, 12 * i, 12 * i + 12);
  const HostTime host = judged(b).value();
  EXPECT_EQ(host.bound, Bound::overhead);
  EXPECT_EQ(host.of(HostPart::dispatch), 110 * kUs);  // 10 us are the profiler's
  EXPECT_EQ(host.of(HostPart::compute) + host.of(HostPart::memory), 0);
  ASSERT_EQ(host.products.size(), 1U);
  EXPECT_TRUE(host.products[0].is_dispatch);
  EXPECT_FALSE(host.products[0].waits_for_memory);
}

TEST(HostTime, WhatATinyProductTakesBeyondACallIsNoDispatch) {
  GpuTrace b;
  tiny_product(b, 0, 101);
  const HostTime host = judged(b).value();
  EXPECT_EQ(host.of(HostPart::dispatch), 20 * kUs);
  EXPECT_EQ(host.of(HostPart::compute), 80 * kUs);
}

TEST(HostTime, ADataLoaderIsDataWithAllItsOps) {
  GpuTrace b;
  b.annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 0, 670 * kUs);
  b.op("aten::sin", 10 * kUs, 600 * kUs);
  b.op("aten::gelu", 670 * kUs, 1000 * kUs);
  const HostTime host = judged(b).value();
  EXPECT_EQ(host.bound, Bound::data);
  EXPECT_EQ(host.of(HostPart::data), 670 * kUs);
  EXPECT_EQ(host.of(HostPart::between_ops), 0);
  ASSERT_EQ(host.ops.size(), 1U);
  EXPECT_EQ(host.ops[0].name, "aten::gelu");
}

TEST(HostTime, ManySmallOpsAreOverhead) {
  GpuTrace b;
  for (int64_t i = 0; i < 100; ++i) {
    b.op("aten::add", i * 10 * kUs, (i * 10 + 5) * kUs);
    b.op("aten::view", (i * 10 + 6) * kUs, (i * 10 + 9) * kUs);
  }
  const HostTime host = judged(b).value();
  EXPECT_EQ(host.bound, Bound::overhead);
  EXPECT_EQ(host.op_calls, 200);
  // 2 us of add, 2 us of view, 2 us between them; the profiler has 1 us of each op.
  EXPECT_EQ(host.of(HostPart::dispatch), 599 * kUs);
  EXPECT_EQ(host.of(HostPart::between_ops), 0);
}

TEST(HostTime, PythonBetweenOpsIsNamedByFunction) {
  GpuTrace b;
  const auto frame = [&](const char* name, int64_t start_us, int64_t end_us) {
    b.event(Category::python_function, name, start_us * kUs, end_us * kUs);
  };
  frame("train.py(10): main", 0, 1000);
  frame("train.py(33): preprocess", 100, 700);
  frame("<built-in function sum>", 200, 400);
  frame("torch/nn/functional.py(5): gelu", 700, 900);
  b.op("aten::mul", 0, 100 * kUs);
  b.op("aten::gelu", 710 * kUs, 890 * kUs);
  const HostTime host = judged(b).value();
  ASSERT_GE(host.functions.size(), 1U);
  EXPECT_EQ(host.functions[0].name, "train.py(33): preprocess");
  EXPECT_EQ(host.functions[0].self_ns, 600 * kUs) << "with its built-in";
  EXPECT_EQ(host.functions[0].count, 1);
  EXPECT_EQ(host.bound, Bound::overhead);
}

TEST(HostTime, ADeviceHasAVerdictOfItsOwn) {
  GpuTrace b;
  b.op("aten::mm", 0, 10 * kUs);
  b.call("cudaLaunchKernel", kUs, 2 * kUs, 1);
  EXPECT_FALSE(judged(b));
  EXPECT_FALSE(judged(GpuTrace()));
}

TEST(IdleGaps, TheLongestIsNamedWithWhatTheHostWasIn) {
  GpuTrace b;
  b.op("aten::mm", 0, 10 * kUs);
  b.call("cudaLaunchKernel", 2 * kUs, 4 * kUs, 1);
  b.gpu_kernel("first", 5 * kUs, 10 * kUs, 1);
  b.call("cudaLaunchKernel", 11 * kUs, 12 * kUs, 2);
  b.op("aten::to", 14 * kUs, 480 * kUs);
  b.op("aten::copy_", 15 * kUs, 479 * kUs);
  b.call("hipMemcpyWithStream", 16 * kUs, 478 * kUs, 3);
  b.gpu_kernel("second", 470 * kUs, 474 * kUs, 2);
  const std::vector<IdleGap> gaps = idle_gaps(b.trace, link(b.trace));
  ASSERT_FALSE(gaps.empty());
  EXPECT_EQ(gaps[0].dur_ns, 460 * kUs);
  EXPECT_EQ(gaps[0].cause, IdleCause::queue);
  EXPECT_EQ(gaps[0].before, "first");
  EXPECT_EQ(gaps[0].after, "second");
  EXPECT_TRUE(gaps[0].was_launched);
  EXPECT_EQ(gaps[0].call, "hipMemcpyWithStream");
  EXPECT_EQ(gaps[0].op, "aten::to");
  EXPECT_TRUE(idle_gaps(Trace(), Links()).empty());
}

}  // namespace epilogue::trace::host_time_test
