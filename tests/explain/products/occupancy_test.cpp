// SPDX-License-Identifier: Apache-2.0
#include "epilogue/trace/gemms.h"

#include "explain/gpu_trace.h"
#include "explain/products/device_samples.h"
#include "support/test.h"

namespace epilogue::trace::occupancy_test {

using namespace testing;

KernelArgs launch(int32_t registers, int64_t shared_bytes, int64_t threads, int64_t blocks = 1) {
  KernelArgs args;
  args.registers_per_thread = registers;
  args.shared_memory_bytes = shared_bytes;
  args.block = {threads, 1, 1};
  args.grid = {blocks, 1, 1};
  return args;
}

TEST(Occupancy, IsLimitedByRegisters) {
  // 255 x 32 -> 8192 per warp; a quarter of the file, 16384, holds 2; 8 warps, 2 blocks of 4: 8/64.
  const auto o = compute_occupancy(launch(255, 48 * 1024, 128), a100()).value();
  EXPECT_EQ(o.blocks_per_sm, 2);
  EXPECT_EQ(o.limit, OccupancyLimit::registers);
  EXPECT_DOUBLE_EQ(o.theoretical_pct, 12.5);
}

TEST(Occupancy, IsLimitedBySharedMemoryAboveTheDefaultLimit) {
  // 80 KiB + 1 KiB reserved into 164 KiB: 2 blocks of 4 warps; 8/64.
  const auto gemm = compute_occupancy(launch(128, 80 * 1024, 128), a100()).value();
  EXPECT_EQ(gemm.blocks_per_sm, 2);
  EXPECT_EQ(gemm.limit, OccupancyLimit::shared_memory);
  // 144 KiB + 1: one block of 8 warps.
  const auto large = compute_occupancy(launch(168, 144 * 1024, 256), a100()).value();
  EXPECT_EQ(large.blocks_per_sm, 1);
  EXPECT_DOUBLE_EQ(large.theoretical_pct, 12.5);
}

TEST(Occupancy, IsLimitedByThreadsAndBlocks) {
  const auto threads = compute_occupancy(launch(16, 0, 1024), v100()).value();
  EXPECT_EQ(threads.blocks_per_sm, 2);
  EXPECT_EQ(threads.limit, OccupancyLimit::threads);
  EXPECT_DOUBLE_EQ(threads.theoretical_pct, 100);
  const auto blocks = compute_occupancy(launch(16, 0, 32), v100()).value();
  EXPECT_EQ(blocks.blocks_per_sm, 32);
  EXPECT_EQ(blocks.limit, OccupancyLimit::blocks);
  EXPECT_DOUBLE_EQ(blocks.theoretical_pct, 50);
}

TEST(Occupancy, IsUnknownWithoutRegistersOrWithAContradiction) {
  EXPECT_FALSE(compute_occupancy(launch(0, 0, 128), a100()));
  EXPECT_FALSE(compute_occupancy(launch(32, 0, 2048), a100()));          // more than a block may
  EXPECT_FALSE(compute_occupancy(launch(32, 164 * 1024, 128), a100()));  // and 1 KiB: too much
  EXPECT_FALSE(compute_occupancy(launch(32, INT64_MAX, 128), a100()));
  EXPECT_FALSE(compute_occupancy(launch(255, 0, 1024), a100()));  // 32 warps, 8 fit
  EXPECT_FALSE(compute_occupancy(launch(32, 0, 0), a100()));
  DeviceProperties amd = a100();
  amd.warp_size = 64;
  EXPECT_FALSE(compute_occupancy(launch(32, 0, 256), amd));
  DeviceProperties future = a100();
  future.compute_major = 99;
  EXPECT_FALSE(compute_occupancy(launch(32, 0, 256), future));
}

TEST(Occupancy, NamesTheRecordedZeroThatIsAnArtefact) {
  GpuTrace t;
  t.trace.devices = {h100()};
  // Hopper's GEMM: 226 KiB, 12 warps, one block per SM: 384 of 2048 threads.
  t.gpu_kernel("gemm", 0, 100);
  t.trace.kernels.back() = launch(168, 231424, 384, 132);
  t.trace.kernels.back().est_occupancy_pct = 0;
  // Tiny grid, little shared memory: 0 % is right. 1 of 132 SMs, 32 of 2048 threads.
  t.gpu_kernel("tiny", 200, 210);
  t.trace.kernels.back() = launch(16, 0, 32, 1);
  t.trace.kernels.back().est_occupancy_pct = 0;
  const std::vector<KernelOccupancy> list = kernel_occupancies(t.trace);
  ASSERT_EQ(list.size(), 2U);
  EXPECT_EQ(list[0].kernel, "gemm");
  EXPECT_TRUE(list[0].is_recorded_zero_artefact);
  EXPECT_NEAR(*list[0].estimated_pct, 18.75, 1e-9);
  EXPECT_HAS(list[0].note, "artefact");
  EXPECT_FALSE(list[1].is_recorded_zero_artefact);
  EXPECT_NEAR(*list[1].estimated_pct, 100.0 / 132 * 32 / 2048, 1e-9);
  EXPECT_EQ(list[1].note, "");
}

TEST(Occupancy, JoinsLaunchesThatAreAlike) {
  GpuTrace t;
  t.trace.devices = {a100()};
  for (int i = 0; i < 3; ++i) {
    t.gpu_kernel("k", i * 100, i * 100 + 10);
    t.trace.kernels.back() = launch(32, 0, 128, i == 2 ? 64 : 32);
  }
  const std::vector<KernelOccupancy> list = kernel_occupancies(t.trace);
  ASSERT_EQ(list.size(), 2U);
  EXPECT_EQ(list[0].count, 2);
  EXPECT_EQ(list[0].total_ns, 20);
  EXPECT_FALSE(list[0].recorded_pct);
}

TEST(Occupancy, SaysNothingOfDevicesThatAreNoNvidiaGpu) {
  GpuTrace t;
  t.trace.devices = {a100()};
  t.trace.devices[0].warp_size = 1;
  t.gpu_kernel("k", 0, 10);
  EXPECT_TRUE(kernel_occupancies(t.trace).empty());
  EXPECT_TRUE(kernel_occupancies(Trace()).empty());
}

TEST(Occupancy, FindsADeviceByItsIdOrAmongAlikeOnes) {
  Trace t;
  EXPECT_EQ(find_device(t, 0), nullptr);
  t.devices = {a100(), a100()};
  t.devices[1].id = 1;
  EXPECT_EQ(find_device(t, 1), &t.devices[1]);
  EXPECT_EQ(find_device(t, 7), &t.devices[0]);
  t.devices[1].name = "another";
  EXPECT_EQ(find_device(t, 7), nullptr);
}

}  // namespace epilogue::trace::occupancy_test
