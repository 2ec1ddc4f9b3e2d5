// SPDX-License-Identifier: Apache-2.0
#include "epilogue/trace/time.h"

#include "explain/gpu_trace.h"
#include "support/test.h"

namespace epilogue::trace::launches_test {

using testing::GpuTrace;

TEST(Distribution, TheMedianOfTwoInTheMiddleIsTheirMeanAndP95ANearestRank) {
  const Distribution d = *distribution({40, 10, 30, 20});
  EXPECT_EQ(d.count, 4);
  EXPECT_EQ(d.min_ns, 10);
  EXPECT_EQ(d.median_ns, 25);
  EXPECT_EQ(d.p95_ns, 40);
  EXPECT_EQ(d.max_ns, 40);
  EXPECT_EQ(d.total_ns, 100);
  EXPECT_FALSE(distribution({}));
  EXPECT_EQ(distribution({7})->p95_ns, 7);
  EXPECT_EQ(distribution({7})->median_ns, 7);
  EXPECT_EQ(distribution({1, 9, 4})->median_ns, 4);
  EXPECT_EQ(distribution({2'170'000, 14'100'000})->median_ns, 8'135'000);
  EXPECT_EQ(distribution({INT64_MAX, INT64_MAX - 2})->median_ns, INT64_MAX - 1);
  EXPECT_EQ(distribution({INT64_MAX, INT64_MAX - 2})->total_ns, INT64_MAX);
}

TEST(Launches, ApiTimeQueueDelayAndShortKernels) {
  GpuTrace b;
  b.call("cudaLaunchKernel", 0, 10, 1);
  b.call("cudaLaunchKernel", 10, 14, 2);
  b.call("cudaLaunchKernel", 20, 26, 3);
  b.call("cudaDeviceSynchronize", 30, 100);
  b.gpu_kernel("a", 12, 17, 1);  // delay 2, shorter than its call
  b.gpu_kernel("b", 20, 40, 2);  // delay 6
  b.gpu_kernel("c", 25, 60, 3);  // delay -1
  const LaunchStats stats = launch_stats(b.trace, link(b.trace));
  ASSERT_EQ(stats.calls.size(), 2u);
  EXPECT_EQ(stats.calls[0].name, "cudaDeviceSynchronize");
  EXPECT_FALSE(stats.calls[0].starts_work);
  const CallStats& launch = stats.calls[1];
  EXPECT_TRUE(launch.starts_work);
  EXPECT_EQ(launch.time.count, 3);
  EXPECT_EQ(launch.time.min_ns, 4);
  EXPECT_EQ(launch.time.median_ns, 6);
  EXPECT_EQ(launch.time.total_ns, 20);
  ASSERT_TRUE(stats.queue_delay);
  EXPECT_EQ(stats.queue_delay->min_ns, -1);
  EXPECT_EQ(stats.queue_delay->median_ns, 2);
  EXPECT_EQ(stats.queue_delay->max_ns, 6);
  EXPECT_EQ(stats.kernels_with_launch, 3);
  EXPECT_EQ(stats.kernels_shorter_than_launch, 1);
  EXPECT_EQ(stats.kernels_before_launch, 0);
  EXPECT_DOUBLE_EQ(*stats.kernels_per_launch, 1.0);
  EXPECT_FALSE(stats.launches_per_step) << "there are no steps";
}

TEST(Launches, CallsThatWaitAreNotCountedAsLaunching) {
  GpuTrace b;
  b.call("cudaMemcpyAsync", 0, 100, 1);  // returns after its copy
  b.work(Category::gpu_memcpy, "Memcpy DtoH (Device -> Pageable)", 40, 90, 1);
  b.call("cudaMemcpyAsync", 100, 104, 2);
  b.work(Category::gpu_memcpy, "Memcpy HtoD (Pinned -> Device)", 110, 120, 2);
  b.call("cudaLaunchKernel", 110, 115, 3);
  b.call("cudaLaunchKernel", 115, 121, 4);
  b.gpu_kernel("a", 120, 130, 3);
  b.gpu_kernel("b", 130, 140, 4);
  b.call("cudaStreamSynchronize", 130, 200);
  const LaunchStats stats = launch_stats(b.trace, link(b.trace));
  ASSERT_EQ(stats.launching_calls.size(), 2u);
  EXPECT_EQ(stats.launching_calls[0].name, "cudaLaunchKernel");
  EXPECT_EQ(stats.launching_calls[0].time.total_ns, 11);
  EXPECT_EQ(stats.launching_calls[1].name, "cudaMemcpyAsync");
  EXPECT_EQ(stats.launching_calls[1].time.total_ns, 4);
  EXPECT_EQ(stats.calls[0].name, "cudaMemcpyAsync");
  EXPECT_EQ(stats.calls[0].time.total_ns, 104);
  EXPECT_FALSE(stats.outlier) << "6 of 15 ns";
}

TEST(Launches, OneCallThatTakesMostIsNamed) {
  GpuTrace b;
  b.call("cudaLaunchKernel", 0, 50, 1);
  b.call("cudaLaunchKernel", 50, 55, 2);
  b.call("cudaLaunchKernel", 55, 60, 3);
  const LaunchStats first = launch_stats(b.trace, link(b.trace));
  ASSERT_TRUE(first.outlier);
  EXPECT_EQ(first.outlier->name, "cudaLaunchKernel");
  EXPECT_EQ(first.outlier->dur_ns, 50);
  EXPECT_FALSE(first.outlier->is_first) << "its kernel is not known";
  b.gpu_kernel("a", 60, 70, 1);
  EXPECT_TRUE(launch_stats(b.trace, link(b.trace)).outlier->is_first);
  b.call("cudaLaunchKernel", -10, -5, 4);
  b.gpu_kernel("a", 0, 10, 4);
  EXPECT_FALSE(launch_stats(b.trace, link(b.trace)).outlier->is_first);
  GpuTrace one;
  one.call("cudaLaunchKernel", 0, 50, 1);
  EXPECT_FALSE(launch_stats(one.trace, link(one.trace)).outlier) << "there are no others";
}

TEST(Launches, AGraphLaunchIsOneLaunchOfManyKernels) {
  GpuTrace b;
  b.annotation("ProfilerStep#1", 0, 50);
  b.call("cudaGraphLaunch", 0, 10, 1);
  b.call("cudaLaunchKernel", 20, 30, 2);
  b.gpu_kernel("a", 15, 16, 1);
  b.gpu_kernel("b", 16, 17, 1);
  b.gpu_kernel("c", 17, 18, 1);
  b.gpu_kernel("d", 35, 50, 2);
  const LaunchStats stats = launch_stats(b.trace, link(b.trace));
  EXPECT_EQ(stats.launches, 2);
  EXPECT_EQ(stats.graph_launches, 1);
  EXPECT_EQ(stats.graph_kernels, 3);
  EXPECT_DOUBLE_EQ(*stats.kernels_per_launch, 2.0);
  EXPECT_DOUBLE_EQ(*stats.launches_per_step, 2.0);
  EXPECT_EQ(stats.queue_delay->count, 2) << "only the graph's first kernel waits for the call";
  EXPECT_EQ(stats.kernels_with_launch, 1);
  EXPECT_EQ(stats.kernels_shorter_than_launch, 0);
}

TEST(Launches, ASynchronousDeviceHasNoQueue) {
  GpuTrace b;
  b.op("aten::mm", 0, 10);
  b.kernel("gemm", 2, 8, b.last_id());
  b.trace.device_label = "KERNEL";
  const LaunchStats stats = launch_stats(b.trace, link(b.trace));
  EXPECT_FALSE(stats.queue_delay);
  EXPECT_EQ(stats.kernels_shorter_than_launch, 0);
}

TEST(Launches, OfNothingAreUnknown) {
  const LaunchStats stats = launch_stats(Trace(), Links());
  EXPECT_TRUE(stats.calls.empty());
  EXPECT_FALSE(stats.queue_delay);
  EXPECT_FALSE(stats.kernels_per_launch);
}

}  // namespace epilogue::trace::launches_test
