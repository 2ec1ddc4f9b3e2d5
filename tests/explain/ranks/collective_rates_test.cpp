// SPDX-License-Identifier: Apache-2.0
// Bandwidths of collectives, worked out by hand from nccl-tests' definitions.

#include "explain/gpu_trace.h"
#include "explain/ranks/collective_calls.h"
#include "support/test.h"

namespace epilogue::trace::collective_rates_test {

using testing::GpuTrace;

TEST(MessageBytes, IsAllDataOfWhatIsGatheredOrScattered) {
  const CollectiveSizes sizes = {.in_bytes = 100, .out_bytes = 800, .ranks = 8};
  EXPECT_EQ(message_bytes("all_gather", sizes), 800);
  EXPECT_EQ(message_bytes("gather", sizes), 800);
  EXPECT_EQ(message_bytes("all_reduce", sizes), 100);
  EXPECT_EQ(message_bytes("broadcast", sizes), 100);
  EXPECT_EQ(message_bytes("all_to_all", sizes), 100);
  EXPECT_EQ(message_bytes("reduce_scatter", {.in_bytes = 800, .out_bytes = 100, .ranks = 8}), 800);
}

TEST(MessageBytes, FollowsFromOneSideAndTheGroup) {
  EXPECT_EQ(message_bytes("all_gather", {.in_bytes = 100, .ranks = 8}), 800);
  EXPECT_EQ(message_bytes("reduce_scatter", {.out_bytes = 100, .ranks = 8}), 800);
  EXPECT_EQ(message_bytes("reduce_scatter", {.in_bytes = 800}), 800);
}

TEST(MessageBytes, IsEmptyIfItIsNotKnown) {
  EXPECT_FALSE(message_bytes("all_gather", {.in_bytes = 100})) << "of how many ranks?";
  EXPECT_FALSE(message_bytes("all_gather", {.in_bytes = 100, .out_bytes = 700, .ranks = 8}));
  EXPECT_FALSE(message_bytes("all_gather", {.in_bytes = INT64_MAX, .ranks = 8}));
  EXPECT_FALSE(message_bytes("barrier", {.in_bytes = 4}));
  EXPECT_FALSE(message_bytes("other", {.in_bytes = 4}));
  EXPECT_FALSE(message_bytes("all_reduce", {}));
}

TEST(BusFactor, IsThatOfNcclTests) {
  EXPECT_DOUBLE_EQ(*bus_factor("all_reduce", 4), 1.5);
  EXPECT_DOUBLE_EQ(*bus_factor("all_gather", 4), 0.75);
  EXPECT_DOUBLE_EQ(*bus_factor("reduce_scatter", 8), 0.875);
  EXPECT_DOUBLE_EQ(*bus_factor("all_to_all", 2), 0.5);
  EXPECT_DOUBLE_EQ(*bus_factor("broadcast", 8), 1);
  EXPECT_DOUBLE_EQ(*bus_factor("reduce", 8), 1);
  EXPECT_FALSE(bus_factor("barrier", 8));
  EXPECT_FALSE(bus_factor("all_reduce", 0));
}

TEST(CollectiveRateSum, CountsWhatHasASize) {
  CollectiveRateSum sum;
  EXPECT_FALSE(sum.rates());
  sum.add(std::nullopt, 1.5, 1'000);
  sum.add(6'000, 1.5, 0);
  EXPECT_FALSE(sum.rates());
  sum.add(6'000, 1.5, 1'000);
  sum.add(2'000, 0.5, 3'000);
  ASSERT_TRUE(sum.rates());
  EXPECT_EQ(sum.rates()->count, 2);
  EXPECT_DOUBLE_EQ(sum.rates()->algbw_gb_s, 2);     // 8000 bytes in 4 us
  EXPECT_DOUBLE_EQ(*sum.rates()->busbw_gb_s, 2.5);  // 9000 + 1000
  sum.add(1'000, std::nullopt, 1'000);
  EXPECT_FALSE(sum.rates()->busbw_gb_s) << "of one the ranks are not known";
}

// As NCCL's kernels say it since PyTorch 2.3.
TEST(CollectiveCalls, SizesAndGroupAreRead) {
  GpuTrace b;
  b.gpu_kernel("ncclDevKernel_Generic", 0, 10);
  b.trace.kernels.back().other_args = b.trace.strings.intern(
      R"({"Collective name": "_reduce_scatter_base", "In msg nelems": 4096, "Out msg nelems": 1024,
          "Group size": 4, "dtype": "Float8_e4m3fn", "Process Group Name": "3",
          "Process Group Ranks": "[0, 1, 2, 3]"})");
  const CollectiveCall call = collective_calls(b.trace, link(b.trace)).at(0);
  EXPECT_EQ(call.name, "reduce_scatter");
  EXPECT_EQ(call.bytes, 4096);
  EXPECT_EQ(call.message_bytes, 4096);
  EXPECT_EQ(call.group_ranks, 4);
  EXPECT_EQ(call.group_name, "3");
  EXPECT_EQ(call.group, "[0, 1, 2, 3]");
}

TEST(CollectiveCalls, SizesThatKernelsShareAreOfNone) {
  GpuTrace b;
  b.annotation("nccl:all_reduce", 0, 50);
  b.inputs({testing::tensor({10})});
  b.call("cudaLaunchKernelExC", 5, 10, 1);
  b.gpu_kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 100, 200, 1);
  EXPECT_EQ(collective_calls(b.trace, link(b.trace)).at(0).message_bytes, 40);
  b.call("cudaLaunchKernelExC", 15, 20, 2);
  b.gpu_kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 300, 400, 2);
  for (const CollectiveCall& call : collective_calls(b.trace, link(b.trace)))
    EXPECT_FALSE(call.message_bytes);
}

}  // namespace epilogue::trace::collective_rates_test
