// SPDX-License-Identifier: Apache-2.0
#include "epilogue/trace/time.h"

#include "explain/gpu_trace.h"
#include "support/test.h"

namespace epilogue::trace::idle_test {

using testing::GpuTrace;

std::vector<DeviceIdle> idle_of(const GpuTrace& b) { return idle_times(b.trace, link(b.trace)); }

TEST(Idle, EachMomentHasTheFirstCauseThatApplies) {
  GpuTrace b;
  b.annotation("enumerate(DataLoader)#next", 0, 20);  // data [0, 20)
  b.op("aten::mm", 30, 60);                           // between ops [20, 30), in ops [30, 40)
  b.call("cudaLaunchKernel", 40, 50, 1);              // launch [40, 50)
  b.gpu_kernel("gemm", 58, 80, 1);                    // queue [50, 58), busy [58, 80)
  b.call("cudaDeviceSynchronize", 70, 95);            // sync [80, 95)
  b.gpu_kernel("stray", 95, 100);                     // busy
  b.gpu_kernel("stray", 110, 120);                    // other [100, 110): the host has ended
  const std::vector<DeviceIdle> list = idle_of(b);
  ASSERT_EQ(list.size(), 1u);
  const DeviceIdle& idle = list[0];
  EXPECT_EQ(idle.of(IdleCause::data), 20);
  EXPECT_EQ(idle.of(IdleCause::host_between_ops), 10);
  EXPECT_EQ(idle.of(IdleCause::host_in_ops), 10);
  EXPECT_EQ(idle.of(IdleCause::launch), 10);
  EXPECT_EQ(idle.of(IdleCause::queue), 8);
  EXPECT_EQ(idle.of(IdleCause::sync), 15);
  EXPECT_EQ(idle.of(IdleCause::other), 10);
  EXPECT_EQ(idle.host_ns(), 20);
  EXPECT_EQ(idle.idle_ns, 120 - 37);  // span less busy
}

// Without the profiler the device would not idle then; modules are loaded without it, too.
TEST(Idle, TheProfilersOwnWorkIsNotTheHosts) {
  GpuTrace b;
  b.op("aten::mm", 0, 100);
  b.event(Category::overhead, "Activity Buffer Request", 10, 60);
  b.event(Category::overhead, "Lazy Function Loading", 60, 70);
  b.call("cudaLaunchKernel", 90, 95, 1);
  b.gpu_kernel("gemm", 95, 100, 1);
  const DeviceIdle idle = idle_of(b).at(0);
  EXPECT_EQ(idle.of(IdleCause::profiler), 50);
  EXPECT_EQ(idle.of(IdleCause::host_in_ops), 40);
  EXPECT_EQ(idle.host_ns(), 40);
}

// In traces of 2021 annotations have the category of ops.
TEST(Idle, ADataLoaderIsFoundWhereAnnotationsAreOps) {
  GpuTrace b;
  b.op("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", 0, 60);
  b.op("aten::stack", 10, 20);  // the loader's
  b.op("aten::mm", 60, 90);
  b.call("cudaLaunchKernel", 80, 90, 1);
  b.gpu_kernel("k", 90, 100, 1);
  const DeviceIdle idle = idle_of(b).at(0);
  EXPECT_EQ(idle.of(IdleCause::data), 60);
  EXPECT_EQ(idle.of(IdleCause::host_in_ops), 20);
}

TEST(Idle, ACopyThatReturnsAfterItIsDoneIsAWait) {
  GpuTrace b;
  b.op("aten::to", 0, 100);
  b.call("cudaMemcpyAsync", 10, 60, 1);  // pageable: it returns when the copy is done
  b.work(Category::gpu_memcpy, "Memcpy DtoH (Device -> Pageable)", 40, 50, 1);
  b.call("cudaMemcpyAsync", 70, 80, 2);
  b.work(Category::gpu_memcpy, "Memcpy HtoD (Pinned -> Device)", 85, 100, 2);
  const DeviceIdle idle = idle_of(b).at(0);
  EXPECT_EQ(idle.of(IdleCause::sync), 40);
  EXPECT_EQ(idle.of(IdleCause::launch), 10);
  EXPECT_EQ(idle.of(IdleCause::queue), 5);
  EXPECT_EQ(idle.of(IdleCause::host_in_ops), 20);
}

TEST(Idle, WaitsOfThreadsThatStartNothingAreNotTheDevices) {
  GpuTrace b;
  b.op("aten::mm", 0, 100, 1);
  b.call("cudaLaunchKernel", 80, 90, 1, 1);
  b.gpu_kernel("k", 90, 100, 1);
  b.call("cudaEventSynchronize", 0, 100, 0, 2);  // a watchdog
  const DeviceIdle idle = idle_of(b).at(0);
  EXPECT_EQ(idle.of(IdleCause::sync), 0);
  EXPECT_EQ(idle.of(IdleCause::host_in_ops), 80);
  EXPECT_EQ(idle.of(IdleCause::launch), 10);
}

TEST(Idle, EachDeviceHasItsOwn) {
  GpuTrace b;
  b.op("aten::mm", 0, 100);
  b.gpu_kernel("a", 0, 90, 0, 7, 0);
  b.gpu_kernel("b", 50, 60, 0, 7, 1);
  const std::vector<DeviceIdle> list = idle_of(b);
  ASSERT_EQ(list.size(), 2u);
  EXPECT_EQ(list[0].device, 0);
  EXPECT_EQ(list[0].idle_ns, 10);
  EXPECT_EQ(list[1].idle_ns, 90);
}

TEST(Idle, WithoutAHostNothingIsKnownOfTheCause) {
  GpuTrace b;
  b.gpu_kernel("a", 0, 10);
  b.gpu_kernel("b", 30, 40);
  const DeviceIdle idle = idle_of(b).at(0);
  EXPECT_EQ(idle.of(IdleCause::other), 20);
  EXPECT_EQ(idle.idle_ns, 20);
  EXPECT_TRUE(idle_times(Trace(), Links()).empty());
}

}  // namespace epilogue::trace::idle_test
