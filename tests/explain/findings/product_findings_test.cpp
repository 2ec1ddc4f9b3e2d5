// SPDX-License-Identifier: Apache-2.0
// Findings about products and about waits on a device: traces that have one, and those that do not.
#include "epilogue/trace/explain.h"
#include "explain/findings/find_finding.h"
#include "explain/products/device_samples.h"
#include "explain/products/gemm_trace.h"
#include "support/test.h"

namespace epilogue::trace::product_findings_test {

using namespace testing;

TEST(ProductFindings, AnNThatTensorCoresCannotReadIsToBePadded) {
  GemmTrace b(a100());
  b.product("aten::mm", mm(1024, 3137, 1024, kBf16), kGate, 400 * kUs);  // 16 TFLOP/s of 312
  const Finding f = finding_of(explain(b), "misaligned-product");
  EXPECT_HAS(f.title, "N of 3137 is no multiple of 8");
  EXPECT_HAS(f.evidence.at(1), "pad N to 3144");

  GemmTrace aligned(a100());
  aligned.product("aten::mm", mm(1024, 3144, 1024, kBf16), kGate, 400 * kUs);
  EXPECT_EQ(find_finding(explain(aligned), "misaligned-product"), nullptr);
  GemmTrace fast(a100());
  fast.product("aten::mm", mm(1024, 3137, 1024, kBf16), kGate, 40 * kUs);  // 53 %
  EXPECT_EQ(find_finding(explain(fast), "misaligned-product"), nullptr);
  GemmTrace head(a100());  // ten classes are slow for being ten
  head.product("aten::mm", mm(1024, 10, 1024, kBf16), kGate, 40 * kUs);
  EXPECT_EQ(find_finding(explain(head), "misaligned-product"), nullptr);
}

// A decode's product: 64 rows, 17.2 GFLOP and 269 MB in 400 us: 43 TFLOP/s of 99.5 that memory
// allows.
TEST(ProductFindings, AProductThatTakesHalfOfTheDeviceFarFromItsLimitIsNamed) {
  const auto found = [](int64_t rows, int64_t us, int64_t other_us) {
    GemmTrace b(a100());
    b.product("aten::mm", mm(rows, 16384, 8192, kBf16), kGate, us * kUs);
    b.product("aten::add", {testing::tensor({64, 8192}, kBf16)}, "elementwise", other_us * kUs);
    return explain(b);
  };
  const Finding f = finding_of(found(64, 400, 400), "slow-product");
  EXPECT_EQ(f.title.find("aten::mm 64 x 16384 x 8192 takes 50 % of the device's time at "), 0U)
      << f.title;
  EXPECT_FALSE(f.action.empty());
  EXPECT_EQ(f.confidence, Confidence::low);
  EXPECT_DOUBLE_EQ(*f.cost_us, 400);
  EXPECT_LT(*f.saving_us, 400);
  EXPECT_EQ(find_finding(found(64, 200, 400), "slow-product"), nullptr)
      << "67 % of what memory gives";
  EXPECT_EQ(find_finding(found(64, 400, 2000), "slow-product"), nullptr)
      << "17 % of the device's time";
  const Explanation few = found(8, 400, 100);
  ASSERT_NE(find_finding(few, "slow-product"), nullptr);
  EXPECT_HAS(find_finding(few, "slow-product")->action, "would more rows");
}

TEST(ProductFindings, AnOptimizerThatTheDeviceWaitsForCostsTheHostsTime) {
  GpuTrace b;
  b.annotation("Optimizer.step#Adam.step", 0, 800 * kUs);
  for (int64_t i = 0; i < 8; ++i) {
    b.op("aten::_foreach_mul_", i * 100 * kUs, (i * 100 + 90) * kUs);
    b.call("cudaLaunchKernel", (i * 100 + 80) * kUs, (i * 100 + 85) * kUs, i + 1);
    b.gpu_kernel("multi_tensor", (i * 100 + 86) * kUs, (i * 100 + 88) * kUs, i + 1);
  }
  const Explanation e = explain(b);
  ASSERT_EQ(e.verdicts.whole.bound, Bound::overhead);
  const Finding f = finding_of(e, "unfused-optimizer");
  EXPECT_EQ(f.evidence.at(0), "1 step, 800 us on the host in all");
  EXPECT_FALSE(f.saving_us) << "the device's time is not what is saved";
}

TEST(ProductFindings, AnItemThatMakesTheHostWaitHasItsRemedy) {
  GpuTrace b;
  b.call("cudaLaunchKernel", 0, 5 * kUs, 1);
  b.gpu_kernel("k", 6 * kUs, 16 * kUs, 1);
  b.op("aten::item", 10 * kUs, 90 * kUs);
  b.call("cudaStreamSynchronize", 12 * kUs, 88 * kUs);
  b.call("cudaLaunchKernel", 92 * kUs, 95 * kUs, 2);
  b.gpu_kernel("k", 96 * kUs, 100 * kUs, 2);
  EXPECT_HAS(finding_of(explain(b), "sync").evidence.back(), "keep it on the device");
}

// Tiles of 128 x 128, one for each of 108 multiprocessors.
TEST(ProductFindings, WavesAreFilledOnlyWhereTheyLimitTheProduct) {
  const auto finds = [](int64_t m, int64_t n, int64_t blocks) {
    GemmTrace b(a100());
    KernelArgs args;
    args.grid = {blocks, 1, 1};
    args.block = {256, 1, 1};
    args.blocks_per_sm = static_cast<double>(blocks) / 108;
    args.registers_per_thread = 200;
    b.product("aten::mm", mm(m, n, 4096, kBf16), kGate, 400 * kUs, args);
    return find_finding(explain(b), "wave-quantisation") != nullptr;
  };
  EXPECT_TRUE(finds(2048, 1152, 144)) << "1.33 waves";
  EXPECT_FALSE(finds(32, 18432, 144)) << "32 FLOPs for each byte: memory limits it";
}

}  // namespace epilogue::trace::product_findings_test
