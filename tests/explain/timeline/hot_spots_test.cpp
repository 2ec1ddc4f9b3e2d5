// SPDX-License-Identifier: Apache-2.0
#include "epilogue/trace/time.h"

#include "explain/gpu_trace.h"
#include "support/test.h"

namespace epilogue::trace::hot_spots_test {

using testing::GpuTrace;

TEST(HotSpots, WaitsAreNamedByTheOutermostOpOrTheAnnotation) {
  GpuTrace b;
  b.annotation("ProfilerStep#1", 0, 1000);
  b.annotation("evaluate", 500, 900);
  b.op("aten::item", 10, 100);
  b.op("aten::_local_scalar_dense", 20, 90);
  b.call("cudaStreamSynchronize", 30, 80);
  b.op("aten::item", 110, 150);
  b.call("cudaStreamSynchronize", 120, 130);
  b.call("cudaDeviceSynchronize", 600, 800);  // asked for, in "evaluate"
  b.call("cudaDeviceSynchronize", 2000, 2005);
  const HotSpots spots = hot_spots(b.trace, link(b.trace));
  ASSERT_EQ(spots.syncs.size(), 3u);
  EXPECT_EQ(spots.syncs[0].where, "evaluate");
  EXPECT_FALSE(spots.syncs[0].is_implied);
  EXPECT_EQ(spots.syncs[1].call, "cudaStreamSynchronize");
  EXPECT_EQ(spots.syncs[1].where, "aten::item");
  EXPECT_TRUE(spots.syncs[1].is_implied);
  EXPECT_EQ(spots.syncs[1].time.count, 2);
  EXPECT_EQ(spots.syncs[1].time.total_ns, 60);
  EXPECT_EQ(spots.syncs[2].where, "");
}

TEST(HotSpots, CopiesWithBytesBandwidthAndBlocking) {
  GpuTrace b;
  b.op("aten::to", 0, 100);
  b.call("cudaMemcpyAsync", 10, 90, 1);  // returns after the copy
  b.work(Category::gpu_memcpy, "Memcpy HtoD (Pageable -> Device)", 40, 80, 1);
  b.trace.kernels.back().bytes = 400;
  b.call("cudaMemsetAsync", 200, 210, 2);
  b.work(Category::gpu_memset, "Memset (Device)", 205, 208, 2);
  const HotSpots spots = hot_spots(b.trace, link(b.trace));
  ASSERT_EQ(spots.copies.size(), 2u);
  EXPECT_EQ(spots.copies[0].where, "aten::to");
  EXPECT_TRUE(spots.copies[0].is_pageable);
  EXPECT_EQ(spots.copies[0].bytes, 400);
  EXPECT_DOUBLE_EQ(*spots.copies[0].bandwidth_gb_s, 10.0);
  EXPECT_FALSE(spots.copies[1].is_pageable);
  EXPECT_FALSE(spots.copies[1].bytes) << "the trace does not say";
  EXPECT_FALSE(spots.copies[1].bandwidth_gb_s);
  ASSERT_EQ(spots.syncs.size(), 1u);
  EXPECT_EQ(spots.syncs[0].call, "cudaMemcpyAsync");
  EXPECT_TRUE(spots.syncs[0].is_implied);
}

TEST(HotSpots, HipWritesTheSizeToTheCall) {
  GpuTrace b;
  b.call("hipMemcpyWithStream", 10, 20, 1).args = 0;
  b.trace.runtime_calls.push_back({.bytes = 64});
  b.work(Category::gpu_memcpy, "Memcpy HtoD (Host -> Device)", 30, 34, 1);
  EXPECT_EQ(hot_spots(b.trace, link(b.trace)).copies.at(0).bytes, 64);
}

TEST(HotSpots, NoneInAnEmptyTrace) {
  const HotSpots spots = hot_spots(Trace(), Links());
  EXPECT_TRUE(spots.syncs.empty());
  EXPECT_TRUE(spots.copies.empty());
}

}  // namespace epilogue::trace::hot_spots_test
