// SPDX-License-Identifier: Apache-2.0
#include "epilogue/trace/time.h"

#include "explain/gpu_trace.h"
#include "support/test.h"

namespace epilogue::trace::steps_test {

using testing::GpuTrace;

TEST(Steps, WorkCountsForTheStepThatLaunchedIt) {
  GpuTrace b;
  b.annotation("ProfilerStep#1", 0, 100);
  b.op("aten::linear", 10, 60);
  b.op("aten::addmm", 20, 50);
  b.call("cudaLaunchKernel", 25, 30, 1);
  b.call("cudaMemsetAsync", 31, 32, 2);
  b.annotation("ProfilerStep#2", 100, 200);
  b.op("aten::add", 110, 120, 2);  // the backward thread
  b.call("cudaLaunchKernel", 112, 115, 3, 2);
  b.gpu_kernel("before", 0, 20);  // launched before the window
  b.work(Category::gpu_memset, "Memset", 80, 90, 2);
  b.gpu_kernel("gemm", 90, 150, 1);  // runs into step 2
  b.gpu_kernel("add", 150, 170, 3);
  const std::vector<Region> list = steps(b.trace, link(b.trace));
  ASSERT_EQ(list.size(), 2u);
  const Region& first = list[0];
  EXPECT_EQ(first.name, "ProfilerStep#1");
  EXPECT_EQ(first.kind, RegionKind::step);
  EXPECT_EQ(first.wall_ns(), 100);
  EXPECT_EQ(first.ops, 2);
  EXPECT_EQ(first.cpu_op_ns, 50);
  EXPECT_EQ(first.launches, 1);
  EXPECT_EQ(first.kernels, 1);
  EXPECT_EQ(first.copies, 1);
  EXPECT_EQ(first.launched_work_ns, 70);
  EXPECT_EQ(first.device_busy_ns, 40);  // [0, 20) and [80, 100)
  EXPECT_EQ(first.device_idle_ns(), 60);
  const Region& second = list[1];
  EXPECT_EQ(second.ops, 1);
  EXPECT_EQ(second.kernels, 1);
  EXPECT_EQ(second.launched_work_ns, 20);
  EXPECT_EQ(second.device_busy_ns, 70);  // [100, 170)
}

TEST(Steps, OutermostAnnotationsStandInWhereThereAreNoSteps) {
  GpuTrace b;
  b.annotation("execute_decode", 0, 50);
  b.annotation("attention", 10, 20);  // inner: no region
  b.annotation("execute_prefill", 60, 90);
  b.annotation("elsewhere", 0, 90, 2);  // not the thread that launches
  b.call("cudaLaunchKernel", 15, 18, 1);
  b.call("cudaLaunchKernel", 55, 58, 2);  // between them
  b.gpu_kernel("k", 20, 40, 1);
  b.gpu_kernel("k", 60, 70, 2);
  const Links links = link(b.trace);
  EXPECT_TRUE(steps(b.trace, links).empty());
  const std::vector<Region> list = regions(b.trace, links);
  ASSERT_EQ(list.size(), 2u);
  EXPECT_EQ(list[0].name, "execute_decode");
  EXPECT_EQ(list[0].kind, RegionKind::annotation);
  EXPECT_EQ(list[0].kernels, 1);
  EXPECT_EQ(list[1].name, "execute_prefill");
  EXPECT_EQ(list[1].kernels, 0);
  EXPECT_EQ(list[1].device_busy_ns, 10);
}

TEST(Steps, TheWindowStandsInWhereThereIsNothing) {
  GpuTrace b;
  b.op("aten::mm", 0, 10);
  b.call("cudaLaunchKernel", 2, 4, 1);
  b.gpu_kernel("k", 20, 40, 1);
  const std::vector<Region> list = regions(b.trace, link(b.trace));
  ASSERT_EQ(list.size(), 1u);
  EXPECT_EQ(list[0].kind, RegionKind::window);
  EXPECT_EQ(list[0].wall_ns(), 40);
  EXPECT_EQ(list[0].kernels, 1);
  EXPECT_EQ(list[0].device_busy_ns, 20);
  EXPECT_TRUE(regions(Trace(), Links()).empty());
}

}  // namespace epilogue::trace::steps_test
