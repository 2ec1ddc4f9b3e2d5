// SPDX-License-Identifier: Apache-2.0
#include "epilogue/trace/time.h"

#include "explain/gpu_trace.h"
#include "support/test.h"

namespace epilogue::trace::timeline_test {

using testing::GpuTrace;

Timeline timeline_of(const GpuTrace& b) { return timeline(b.trace, link(b.trace)); }

TEST(Timeline, SpanLeavesOutPythonOverheadAndTheProfilersSpan) {
  GpuTrace b;
  b.op("aten::mm", 100, 200);
  b.gpu_kernel("k", 250, 400);
  b.event(Category::python_function, "main", 0, 1000);
  b.event(Category::overhead, "Buffer Flush", 500, 600);
  b.event(Category::other, "PyTorch Profiler (0)", 0, 900);
  const Timeline time = timeline_of(b);
  EXPECT_EQ(time.start_ns, 100);
  EXPECT_EQ(time.end_ns, 400);
  EXPECT_EQ(time.span_ns(), 300);
  EXPECT_DOUBLE_EQ(*time.busy_pct(), 50.0);
}

TEST(Timeline, BusyIsTheUnionOverStreams) {
  GpuTrace b;
  b.op("aten::mm", 0, 100);
  b.gpu_kernel("a", 10, 30, 0, 7);
  b.gpu_kernel("b", 25, 40, 0, 7);  // overlaps on its own stream
  b.work(Category::gpu_memcpy, "Memcpy HtoD", 35, 60, 0, 20);
  const Timeline time = timeline_of(b);
  ASSERT_EQ(time.devices.size(), 1u);
  const DeviceUse& use = time.devices.front();
  EXPECT_EQ(use.busy_ns, 50);
  EXPECT_EQ(use.kernel_ns, 30);
  EXPECT_EQ(use.kernels, 2);
  EXPECT_EQ(use.copies, 1);
  EXPECT_EQ(use.first_ns, 10);
  EXPECT_EQ(use.last_ns, 60);
  ASSERT_EQ(use.streams.size(), 2u);
  EXPECT_EQ(use.streams[0].stream, 7);
  EXPECT_EQ(use.streams[0].busy_ns, 30);
  EXPECT_EQ(use.streams[1].busy_ns, 25);
}

TEST(Timeline, DevicesAreKeptApartTheBusiestFirst) {
  GpuTrace b;
  b.gpu_kernel("a", 0, 10, 0, 7, 0);
  b.gpu_kernel("b", 0, 40, 0, 7, 1);
  b.gpu_kernel("c", 90, 100, 0, 7, 0);
  const Timeline time = timeline_of(b);
  ASSERT_EQ(time.devices.size(), 2u);
  EXPECT_EQ(time.devices[0].device, 1);
  EXPECT_EQ(time.devices[0].busy_ns, 40);
  EXPECT_EQ(time.devices[1].busy_ns, 20);
  EXPECT_DOUBLE_EQ(*time.busy_pct(), 40.0);
}

TEST(Timeline, KernelsWithoutATimeDoNotStretchTheSpan) {
  GpuTrace b;
  b.op("aten::mm", 1000, 2000);
  b.gpu_kernel("lost", 0, 0);
  EXPECT_EQ(timeline_of(b).start_ns, 1000);
}

TEST(Timeline, OfAnEmptyTraceIsUnknown) {
  const Timeline time = timeline(Trace(), Links());
  EXPECT_FALSE(time.start_ns);
  EXPECT_FALSE(time.busy_pct());
  EXPECT_EQ(time.span_ns(), 0);
  GpuTrace host;
  host.op("aten::mm", 0, 10);
  EXPECT_FALSE(timeline_of(host).busy_pct()) << "nothing ran on a device: unknown, not 0";
}

}  // namespace epilogue::trace::timeline_test
