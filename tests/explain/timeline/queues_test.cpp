// SPDX-License-Identifier: Apache-2.0
#include "epilogue/trace/queues.h"

#include "explain/gpu_trace.h"
#include "support/test.h"

namespace epilogue::trace::queues_test {

using testing::GpuTrace;

// Launched until 10, 20 and 30; begun at 40, 50 and 25 (another stream).
TEST(StreamQueues, CountWhatIsLaunchedAndHasNotBegun) {
  GpuTrace b;
  b.call("cudaLaunchKernel", 5, 10, 1);
  b.call("cudaLaunchKernel", 15, 20, 2);
  b.call("cudaLaunchKernel", 25, 30, 3);
  b.gpu_kernel("a", 40, 45, 1);
  b.gpu_kernel("b", 50, 55, 2);
  b.gpu_kernel("c", 28, 60, 3, 8);  // begins before its call returns
  b.gpu_kernel("lost", 0, 4);
  const std::vector<StreamQueue> queues = stream_queues(b.trace, link(b.trace));
  ASSERT_EQ(queues.size(), 2u);
  EXPECT_EQ(queues[0].stream, 7);
  EXPECT_EQ(queues[0].works, 2);
  EXPECT_EQ(queues[0].max_length, 2);
  EXPECT_EQ(queues[0].max_ns, 20);
  EXPECT_DOUBLE_EQ(queues[0].mean_length, (10.0 + 2 * 20 + 10) / 40);
  ASSERT_EQ(queues[0].points.size(), 4u);
  EXPECT_EQ(queues[0].points[2].ts_ns, 40);
  EXPECT_EQ(queues[0].points[2].length, 1);
  EXPECT_EQ(queues[0].points[3].length, 0);
  EXPECT_EQ(queues[1].works, 1);
  EXPECT_EQ(queues[1].max_length, 0);
  EXPECT_TRUE(stream_queues(Trace(), Links()).empty());
}

// Two ranges of one name overlap from 40 to 50: their times add up, the device's do not.
TEST(DeviceRanges, SayWhatTheDeviceDidInThem) {
  GpuTrace b;
  b.gpu_kernel("a", 10, 30);
  b.gpu_kernel("b", 40, 60);
  b.event(Category::gpu_user_annotation, "forward", 10, 50, 7);
  b.event(Category::gpu_user_annotation, "forward", 40, 60, 8);
  b.event(Category::gpu_user_annotation, "optimizer", 60, 65, 7);
  const std::vector<DeviceRange> ranges = device_ranges(b.trace, link(b.trace));
  ASSERT_EQ(ranges.size(), 2u);
  EXPECT_EQ(ranges[0].name, "forward");
  EXPECT_EQ(ranges[0].count, 2);
  EXPECT_EQ(ranges[0].total_ns, 60);
  EXPECT_EQ(ranges[0].max_ns, 40);
  EXPECT_EQ(ranges[0].busy_ns, 40);
  EXPECT_EQ(ranges[0].idle_ns, 10);
  EXPECT_EQ(ranges[1].busy_ns, 0);
  EXPECT_EQ(ranges[1].idle_ns, 5);
  EXPECT_TRUE(device_ranges(Trace(), Links()).empty());
}

}  // namespace epilogue::trace::queues_test
