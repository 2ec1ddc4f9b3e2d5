// SPDX-License-Identifier: Apache-2.0
// Time by kind of work per rank, and kernels over ranks, worked out by hand.
#include "epilogue/trace/explain.h"
#include "explain/gpu_trace.h"
#include "support/test.h"

namespace epilogue::trace::rank_kernels_test {

using testing::GpuTrace;

constexpr char kGemm[] = "ampere_sgemm_128x64_tn";
constexpr char kReduce[] = "ncclDevKernel_AllReduce_Sum_f32_RING_LL";
constexpr char kCopy[] = "vectorized_elementwise_kernel";

GpuTrace rank(int64_t number) {
  GpuTrace b;
  b.trace.metadata.emplace_back("distributedInfo",
                                R"({"rank": )" + std::to_string(number) + R"(, "world_size": 2})");
  return b;
}

RanksExplanation explained(const std::vector<GpuTrace>& traces) {
  std::deque<Links> links;
  std::vector<RankTrace> ranks;
  for (const GpuTrace& b : traces) ranks.push_back({b.trace, links.emplace_back(link(b.trace))});
  return explain_ranks(ranks);
}

// 0 to 1000: a product to 400, a collective from 300 to 800, an elementwise kernel from 500 to 600,
// a copy from 950.
GpuTrace mixed() {
  GpuTrace b = rank(0);
  b.gpu_kernel(kGemm, 0, 400, 0, 7);
  b.gpu_kernel(kReduce, 300, 800, 0, 20);
  b.gpu_kernel(kCopy, 500, 600, 0, 7);
  b.work(Category::gpu_memcpy, "Memcpy DtoH", 950, 1000, 0, 7);
  return b;
}

TEST(DeviceTime, EveryMomentCountsOnce) {
  std::vector<GpuTrace> traces;
  traces.push_back(mixed());
  const RanksExplanation e = explained(traces);
  ASSERT_TRUE(e.ranks[0].time);
  const DeviceTime& time = *e.ranks[0].time;
  EXPECT_EQ(time.compute_ns, 400);
  EXPECT_EQ(time.memory_ns, 100 + 50);
  EXPECT_EQ(time.communication_ns, 300) << "400 to 500 and 600 to 800";
  EXPECT_EQ(time.idle_ns, 150);
  EXPECT_EQ(e.ranks[0].span_ns, 1000);
}

TEST(DeviceTime, IsNotKnownOfATraceThatEndsEarly) {
  std::vector<GpuTrace> traces;
  traces.push_back(mixed());
  traces[0].trace.import.is_truncated = true;
  const RanksExplanation e = explained(traces);
  EXPECT_FALSE(e.ranks[0].time);
  EXPECT_TRUE(e.kernels.empty());
}

TEST(KernelsOverRanks, HaveMeanLeastAndMostPerRank) {
  std::vector<GpuTrace> traces;
  traces.push_back(rank(0));
  traces.back().gpu_kernel(kGemm, 0, 100);
  traces.back().gpu_kernel(kGemm, 200, 400);
  traces.push_back(rank(1));
  traces.back().gpu_kernel(kCopy, 0, 30);
  traces.back().gpu_kernel(kGemm, 100, 200);
  const std::vector<KernelOverRanks> kernels = explained(traces).kernels;
  ASSERT_EQ(kernels.size(), 2u);
  EXPECT_EQ(kernels[0].name, kGemm);
  EXPECT_EQ(kernels[0].work, RankWork::compute);
  EXPECT_EQ(kernels[0].count, 3);
  EXPECT_EQ(kernels[0].ranks, 2);
  EXPECT_EQ(kernels[0].total_ns, 400);
  EXPECT_EQ(kernels[0].mean_ns, 200);
  EXPECT_EQ(kernels[0].min_ns, 100);
  EXPECT_EQ(kernels[0].min_rank, 1);
  EXPECT_EQ(kernels[0].max_ns, 300);
  EXPECT_EQ(kernels[0].max_rank, 0);
  EXPECT_EQ(kernels[1].name, kCopy);
  EXPECT_EQ(kernels[1].mean_ns, 15) << "rank 0 took no time for it";
  EXPECT_EQ(kernels[1].min_ns, 0);
  EXPECT_FALSE(kernels[1].min_rank);
}

}  // namespace epilogue::trace::rank_kernels_test
