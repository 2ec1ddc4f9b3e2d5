// SPDX-License-Identifier: Apache-2.0
#include "epilogue/trace/ranks.h"

#include <gtest/gtest.h>

#include "analysis/gpu_trace.h"
#include "analysis/ranks/collective_calls.h"

namespace epilogue::trace::collectives_test {
namespace {

using testing::GpuTrace;
using testing::tensor;

constexpr char kAllReduce[] = "ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)";

// Two all-reduces of 40 bytes each, of the given durations.
GpuTrace rank(int64_t number, int64_t first_ns, int64_t second_ns) {
  GpuTrace b;
  b.annotation("nccl:all_reduce", 0, 20);
  b.inputs({tensor({10})});
  b.call("cudaLaunchKernelExC", 5, 10, 1);
  b.gpu_kernel(kAllReduce, 1000 - first_ns, 1000, 1, 20);
  b.annotation("nccl:all_reduce", 30, 50);
  b.inputs({tensor({10})});
  b.call("cudaLaunchKernelExC", 35, 40, 2);
  b.gpu_kernel(kAllReduce, 2000 - second_ns, 2000, 2, 20);
  b.gpu_kernel("gemm", 1950, 1990);
  b.trace.metadata.emplace_back("distributedInfo",
                                R"({"backend": "nccl", "rank": )" + std::to_string(number) + "}");
  return b;
}

TEST(Collectives, TimeBytesAndOverlapOfOneRank) {
  const GpuTrace b = rank(3, 100, 200);
  const Links links = link(b.trace);
  const RankTrace ranks[] = {{b.trace, links}};
  const Collectives c = collectives(ranks);
  ASSERT_EQ(c.ranks.size(), 1u);
  EXPECT_EQ(c.ranks[0].rank, 3);
  EXPECT_EQ(c.ranks[0].communication_ns, 300);
  EXPECT_EQ(c.ranks[0].overlap_ns, 40);
  EXPECT_EQ(c.ranks[0].span_ns, 2000);
  ASSERT_EQ(c.ranks[0].kinds.size(), 1u);
  const CollectiveStats& all_reduce = c.ranks[0].kinds[0];
  EXPECT_EQ(all_reduce.name, "all_reduce");
  EXPECT_EQ(all_reduce.time.count, 2);
  EXPECT_EQ(all_reduce.bytes, 80);
  EXPECT_EQ(all_reduce.exposed_ns, 260);
  EXPECT_TRUE(c.waits.empty());
}

TEST(Collectives, TheLastToArriveDoesNotWait) {
  const GpuTrace a = rank(0, 100, 200);
  const GpuTrace b = rank(1, 400, 150);
  const Links of_a = link(a.trace);
  const Links of_b = link(b.trace);
  const RankTrace ranks[] = {{a.trace, of_a}, {b.trace, of_b}};
  const Collectives c = collectives(ranks);
  ASSERT_EQ(c.waits.size(), 1u);
  EXPECT_EQ(c.waits[0].count, 2);
  EXPECT_EQ(c.waits[0].transfer_ns, 250);
  EXPECT_EQ(c.waits[0].wait_ns, (std::vector<std::optional<int64_t>>{50, 300}));
}

TEST(Collectives, ARankWhoseTraceEndsEarlyIsNotMatched) {
  const GpuTrace a = rank(0, 100, 200);
  GpuTrace b = rank(1, 10, 20);
  b.trace.import.is_truncated = true;
  const GpuTrace c = rank(2, 400, 150);
  const Links of_a = link(a.trace);
  const Links of_b = link(b.trace);
  const Links of_c = link(c.trace);
  const RankTrace all[] = {{a.trace, of_a}, {b.trace, of_b}, {c.trace, of_c}};
  const Collectives found = collectives(all);
  ASSERT_EQ(found.waits.size(), 1u);
  EXPECT_EQ(found.waits[0].transfer_ns, 250) << "its own would be 30";
  EXPECT_EQ(found.waits[0].wait_ns, (std::vector<std::optional<int64_t>>{50, std::nullopt, 300}));
  EXPECT_TRUE(collectives(std::span(all).first(2)).waits.empty()) << "one whole trace is left";
}

TEST(Collectives, RanksThatDoNotAgreeAreNotMatched) {
  const GpuTrace a = rank(0, 100, 200);
  GpuTrace b = rank(1, 100, 200);
  b.gpu_kernel(kAllReduce, 3000, 3100);
  const Links of_a = link(a.trace);
  const Links of_b = link(b.trace);
  const RankTrace ranks[] = {{a.trace, of_a}, {b.trace, of_b}};
  const Collectives c = collectives(ranks);
  EXPECT_TRUE(c.waits.empty());
  EXPECT_EQ(c.unmatched, std::vector<std::string>{"all_reduce"});
  EXPECT_FALSE(c.ranks[1].kinds[0].bytes) << "of the third the trace does not say";
  EXPECT_TRUE(collectives({}).ranks.empty());
}

TEST(Collectives, ArgsOfTheKernelComeFirst) {
  GpuTrace b;
  b.gpu_kernel("ncclDevKernel_Generic", 0, 10);
  b.trace.kernels.back().other_args = b.trace.strings.intern(
      R"({"Collective name": "_allgather_base", "In msg nelems": 25136, "dtype": "BFloat16"})");
  const std::vector<CollectiveCall> calls = collective_calls(b.trace, link(b.trace));
  ASSERT_EQ(calls.size(), 1u);
  EXPECT_EQ(calls[0].name, "all_gather");
  EXPECT_EQ(calls[0].bytes, 50272);
}

TEST(Collectives, Names) {
  EXPECT_EQ(collective_name("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL"), "reduce_scatter");
  EXPECT_EQ(collective_name("nccl:all_to_all"), "all_to_all");
  EXPECT_EQ(collective_name("_allgather_base"), "all_gather");
  EXPECT_EQ(collective_name("ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t"), "send_recv");
  EXPECT_EQ(collective_name("nccl:reduce"), "reduce");
  EXPECT_EQ(collective_name("something"), "other");
}

}  // namespace
}  // namespace epilogue::trace::collectives_test
