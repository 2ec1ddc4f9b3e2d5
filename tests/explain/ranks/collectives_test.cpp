// SPDX-License-Identifier: Apache-2.0
#include "epilogue/trace/ranks.h"

#include "explain/gpu_trace.h"
#include "explain/ranks/collective_calls.h"
#include "support/test.h"

namespace epilogue::trace::collectives_test {

using namespace testing;

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

// All-reduces of 4000 bytes as NCCL's kernels say it: of the group first, then of all four ranks.
GpuTrace rank_of_groups(int64_t number, const std::string& group, int64_t of_group_ns,
                        int64_t of_all_ns) {
  GpuTrace b;
  const auto add = [&](const std::string& ranks, const std::string& size, int64_t end, int64_t ns) {
    b.gpu_kernel(kAllReduce, end - ns, end);
    b.trace.kernels.back().other_args = b.trace.strings.intern(
        R"({"Collective name": "allreduce", "In msg nelems": 1000, "Out msg nelems": 1000, )"
        R"("dtype": "Float", "Group size": )" +
        size + R"(, "Process Group Name": "1", "Process Group Ranks": ")" + ranks + R"("})");
  };
  add(group, "2", 10'000, of_group_ns);
  add("[0, 1, 2, 3]", "4", 20'000, of_all_ns);
  b.trace.metadata.emplace_back("distributedInfo", R"({"rank": )" + std::to_string(number) + "}");
  return b;
}

TEST(Collectives, AreMatchedWithinTheirGroup) {
  const GpuTrace traces[] = {
      rank_of_groups(0, "[0, 1]", 1'000, 5'000), rank_of_groups(1, "[0, 1]", 3'000, 2'000),
      rank_of_groups(2, "[2, 3]", 500, 4'000), rank_of_groups(3, "[2, 3]", 400, 4'000)};
  const Links links[] = {link(traces[0].trace), link(traces[1].trace), link(traces[2].trace),
                         link(traces[3].trace)};
  const RankTrace ranks[] = {{traces[0].trace, links[0]},
                             {traces[1].trace, links[1]},
                             {traces[2].trace, links[2]},
                             {traces[3].trace, links[3]}};
  const Collectives c = collectives(ranks);
  EXPECT_TRUE(c.unmatched.empty());
  ASSERT_EQ(c.waits.size(), 3u);
  EXPECT_EQ(c.waits[1].group, "[0, 1]");
  EXPECT_EQ(c.waits[1].wait_ns,
            (std::vector<std::optional<int64_t>>{0, 2'000, std::nullopt, std::nullopt}));
  EXPECT_EQ(c.waits[0].group, "") << "all ranks";
  EXPECT_EQ(c.waits[0].wait_ns, (std::vector<std::optional<int64_t>>{3'000, 0, 2'000, 2'000}));
  EXPECT_EQ(c.waits[2].group, "[2, 3]");
  EXPECT_EQ(c.waits[2].transfer_ns, 400);
  // 4000 bytes in 1 us of two ranks; in 2 us of four.
  ASSERT_TRUE(c.waits[1].rates && c.waits[0].rates);
  EXPECT_DOUBLE_EQ(c.waits[1].rates->algbw_gb_s, 4);
  EXPECT_DOUBLE_EQ(*c.waits[1].rates->busbw_gb_s, 4);
  EXPECT_DOUBLE_EQ(c.waits[0].rates->algbw_gb_s, 2);
  EXPECT_DOUBLE_EQ(*c.waits[0].rates->busbw_gb_s, 3);
  // One rank: 8000 bytes in 6 us.
  EXPECT_DOUBLE_EQ(c.ranks[0].kinds[0].rates->algbw_gb_s, 8.0 / 6);
  // Two ranks that share no group of two: the all-reduce of all is compared alone.
  const RankTrace half[] = {ranks[0], ranks[2]};
  ASSERT_EQ(collectives(half).waits.size(), 1u);
  EXPECT_EQ(collectives(half).waits[0].transfer_ns, 4'000);
}

TEST(Collectives, AreNotMatchedIfGroupsAreSmallAndNotNamed) {
  std::vector<GpuTrace> traces;
  for (int64_t r = 0; r < 3; ++r) {
    GpuTrace& b = traces.emplace_back();
    b.gpu_kernel(kAllReduce, 0, 1'000 + r);
    b.trace.kernels.back().other_args = b.trace.strings.intern(
        R"({"Collective name": "allreduce", "In msg nelems": 10, "dtype": "Float", "Group size": 2})");
  }
  const Links links[] = {link(traces[0].trace), link(traces[1].trace), link(traces[2].trace)};
  const RankTrace ranks[] = {
      {traces[0].trace, links[0]}, {traces[1].trace, links[1]}, {traces[2].trace, links[2]}};
  EXPECT_TRUE(collectives(ranks).waits.empty());
  EXPECT_EQ(collectives(ranks).unmatched, std::vector<std::string>{"all_reduce"});
  EXPECT_EQ(collectives(std::span(ranks).first(2)).waits.size(), 1u) << "a run of two ranks";
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
  EXPECT_EQ(collective_name("gloo:send"), "send_recv");
  EXPECT_EQ(collective_name("gloo:recv"), "send_recv");
  EXPECT_EQ(collective_name("something"), "other");
}

}  // namespace epilogue::trace::collectives_test
