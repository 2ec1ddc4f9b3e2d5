// SPDX-License-Identifier: Apache-2.0
// Device tensors: copies, memory, timers, recorded launches; and what is said without a device.
#include "backend/device/device_testing.h"
#include "core/allocator.h"
#include "support/test.h"

namespace epilogue::test::device_tensor_test {

using CudaTensor = OnDevice;

TEST_F(CudaTensor, ValuesSurviveTheWayThereAndBack) {
  for (const DType dtype : kDTypes) {
    const Tensor x = to(from_values({0, 1, 2, 3, 250, 77}, {2, 3}, DType::f64), dtype);
    const Tensor there = x.to(kCuda);
    EXPECT_EQ(there.device(), kCuda);
    EXPECT_EQ(there.to_vector(), x.to_vector()) << dtype_name(dtype);
    EXPECT_EQ(there.to(Device{}).to_vector(), x.to_vector()) << dtype_name(dtype);
  }
  EXPECT_EQ(empty({0, 3}, DType::f32, kCuda).to(Device{}).numel(), 0);
}

TEST_F(CudaTensor, ATensorThatIsThereStaysTheSame) {
  const Tensor x = ones({3}, DType::f32, kCuda);
  EXPECT_TRUE(x.to(kCuda).is_same(x));
}

TEST_F(CudaTensor, TheSourceMayChangeAfterTheCall) {
  Tensor x = ones({1 << 20});
  const Tensor there = x.to(kCuda);
  fill_(x, 2);
  EXPECT_EQ(sum(there).item(), 1 << 20);
}

TEST_F(CudaTensor, AGradientIsNotLostSilently) {
  Tensor x = ones({3});
  x.set_requires_grad(true);
  EXPECT_THROW(x.to(kCuda), Error);
}

TEST_F(CudaTensor, TheHostsAndTheDevicesTensorsDoNotMix) {
  EXPECT_THROW(add(ones({2}), ones({2}, DType::f32, kCuda)), Error);
  EXPECT_EQ(add(ones({2}, DType::f32, kCuda), 1.5).to_vector(), (std::vector<double>{2.5, 2.5}));
}

TEST_F(CudaTensor, MemoryIsCountedAndReused) {
  release_cached_memory(kCuda);
  const MemoryStats before = memory_stats(kCuda);
  {
    const Tensor x = empty({1000}, DType::f32, kCuda);
    EXPECT_EQ(memory_stats(kCuda).allocated_bytes - before.allocated_bytes, 4096);
  }
  const MemoryStats after = memory_stats(kCuda);
  EXPECT_EQ(after.allocated_bytes, before.allocated_bytes);
  const Tensor y = empty({1000}, DType::f32, kCuda);
  EXPECT_EQ(memory_stats(kCuda).system_allocations, after.system_allocations);
}

TEST_F(CudaTensor, TooMuchMemoryIsAnErrorThatSaysSo) {
  try {
    empty({int64_t{1} << 42}, DType::f32, kCuda);
    FAIL() << "16 TiB";
  } catch (const Error& e) {
    EXPECT_TRUE(std::string(e.what()).starts_with("[cuda] out of memory")) << e.what();
  }
  EXPECT_EQ(sum(ones({4}, DType::f32, kCuda)).item(), 4);  // the device still works
}

TEST_F(CudaTensor, TheTimerSeesWorkInOrder) {
  DeviceTimer* const timer = cuda_backend()->timer();
  EXPECT_EQ(timer->mark(), -1);
  timer->start();
  const int64_t a = timer->mark();
  const Tensor x = ones({1 << 22}, DType::f32, kCuda);
  Tensor y = x;
  for (int i = 0; i < 10; ++i) y = add(y, x);
  const int64_t b = timer->mark();
  const std::vector<int64_t> times = timer->stop();
  ASSERT_EQ(times.size(), 2U);
  EXPECT_LT(times[static_cast<size_t>(a)], times[static_cast<size_t>(b)]);
  EXPECT_EQ(timer->mark(), -1);
}

TEST_F(CudaTensor, RecordedLaunchesRunAgain) {
  const Tensor x = ones({1000}, DType::f32, kCuda);
  add_(x, x);  // warm
  const auto graph = cuda_backend()->record([&] { add_(x, x); });
  ASSERT_NE(graph, nullptr);
  EXPECT_EQ(sum(x).item(), 2000);  // recording ran nothing
  graph->launch();
  graph->launch();
  EXPECT_EQ(sum(x).item(), 8000);
}

TEST_F(CudaTensor, WhatCannotBeRecordedIsNot) {
  const Tensor x = ones({4}, DType::f32, kCuda);
  EXPECT_EQ(cuda_backend()->record([&] { static_cast<void>(x.to_vector()); }), nullptr);
  EXPECT_EQ(sum(x).item(), 4);
}

TEST(WithoutACudaDevice, EverythingSaysWhy) {
  if (cuda_backend() != nullptr) GTEST_SKIP() << "there is a device: " << cuda_status();
  EXPECT_TRUE(cuda_status().starts_with("CUDA is not available: ")) << cuda_status();
  EXPECT_TRUE(cuda_devices().empty());
  for (const auto& use :
       std::array<void (*)(), 4>{[] { static_cast<void>(empty({3}, DType::f32, kCuda)); },
                                 [] { static_cast<void>(ones({3}).to(kCuda)); },
                                 [] { static_cast<void>(memory_stats(kCuda)); },
                                 [] { static_cast<void>(backend_of(kCuda)); }}) {
    try {
      use();
      FAIL() << "no device was missed";
    } catch (const Error& e) {
      EXPECT_EQ(e.what(), "[device] " + cuda_status());
    }
  }
}

TEST(DeviceName, IsParsed) {
  EXPECT_EQ(parse_device("cpu"), Device{});
  EXPECT_EQ(parse_device("cuda"), kCuda);
  EXPECT_EQ(parse_device("cuda:0"), kCuda);
  EXPECT_THROW(parse_device("gpu"), Error);
}

}  // namespace epilogue::test::device_tensor_test
