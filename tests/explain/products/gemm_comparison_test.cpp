// SPDX-License-Identifier: Apache-2.0
// Which products are compared, and what is found about those off the tensor cores.
#include "epilogue/trace/explain.h"
#include "explain/products/device_samples.h"
#include "explain/products/gemm_trace.h"
#include "support/test.h"

namespace epilogue::trace::gemm_comparison_test {

using namespace testing;

TEST(GemmComparisons, ExplainsTheFasterOfTwoOfTheSameFlops) {
  GemmTrace t(a100());
  for (const int64_t more_ns : {0, 500, 1000}) {
    t.product("aten::mm", mm(8192, 3072, 768, kBf16), kGate, 189500 + more_ns);
    t.product("aten::mm", mm(8192, 768, 3072, kBf16), kDown, 169500 + more_ns);
  }
  const GemmReport r = t.report();
  ASSERT_EQ(r.comparisons.size(), 1U);
  EXPECT_EQ(r.gemms[r.comparisons[0].faster].shape->k, 3072);
  EXPECT_NEAR(r.comparisons[0].ratio, 190.0 / 170, 1e-9);
  EXPECT_EQ(r.comparisons[0].sentence,
            "aten::mm 8192x768x3072 runs 1.12 times as fast as aten::mm 8192x3072x768 (227 against "
            "203 TFLOP/s, the same FLOPs), likely for these reasons: larger tiles (128x256 against "
            "128x128), which load less per FLOP; a longer sum (K 3072 against 768), over which "
            "starting and storing a tile is spread.");
}

TEST(GemmComparisons, ComparesNothingThatRanTooSeldomOrSpreadsTooFar) {
  const auto compared = [](const std::vector<int64_t>& gate_ns,
                           const std::vector<int64_t>& down_ns) {
    GemmTrace t(a100());
    for (const int64_t ns : gate_ns) t.product("aten::mm", mm(8192, 3072, 768, kBf16), kGate, ns);
    for (const int64_t ns : down_ns) t.product("aten::mm", mm(8192, 768, 3072, kBf16), kDown, ns);
    return t.report().comparisons.size();
  };
  EXPECT_EQ(compared({190000, 190000, 190000}, {170000, 170000, 170000}), 1U);
  EXPECT_EQ(compared({190000, 190000}, {170000, 170000, 170000}), 0U);
  EXPECT_EQ(compared({190000, 190000, 190000}, {170000}), 0U);
  // A cold first run says nothing of the faster one; the slower one was as fast once.
  EXPECT_EQ(compared({190000, 190000, 190000}, {300000, 170000, 170000}), 1U);
  EXPECT_EQ(compared({169000, 190000, 190000}, {170000, 170000, 170000}), 0U);
}

TEST(GemmComparisons, ComparesNoTimesThatTheClockCannotTellApart) {
  const auto compared = [](int64_t gate_ns, int64_t down_ns) {
    GemmTrace t(a100());
    t.host_unit_ns = 1000;  // all times are whole microseconds, as before 2024-03
    for (int i = 0; i < 3; ++i) {
      t.product("aten::mm", mm(16, 128, 16, "float"), "ampere_sgemm_128x32_nt", gate_ns);
      t.product("aten::mm", mm(16, 16, 128, "float"), "ampere_sgemm_32x32_sliced1x4_tn", down_ns);
    }
    return t.report().comparisons.size();
  };
  EXPECT_EQ(compared(7000, 5000), 0U);
  EXPECT_EQ(compared(8000, 5000), 1U);
}

TEST(GemmComparisons, NamesTheKernelWhereTheSameProductHasTwo) {
  GemmTrace t(a100());
  for (int i = 0; i < 3; ++i) {
    t.product("aten::mm", mm(8192, 3072, 768, kBf16), kGate, 190000);
    t.product("aten::mm", mm(8192, 3072, 768, kBf16), kDown, 170000);
  }
  const GemmReport r = t.report();
  ASSERT_EQ(r.comparisons.size(), 1U);
  const std::string name = "aten::mm 8192x3072x768";
  EXPECT_TRUE(r.comparisons[0].sentence.starts_with(
      name + " (" + kDown + ") runs 1.12 times as fast as " + name + " (" + kGate + ") "))
      << r.comparisons[0].sentence;
}

std::vector<Finding> tensor_core_findings(const GemmTrace& t) {
  std::vector<Finding> found = explain(t.trace, link(t.trace)).findings;
  std::erase_if(found, [](const Finding& f) { return f.id != "no-tensor-cores"; });
  return found;
}

TEST(TensorCoreFindings, AreOnePerReasonWithWhatCanBeDone) {
  GemmTrace t(v100());
  t.product("aten::mm", mm(64, 64, 64, "float"), "volta_sgemm_128x64_tn", 5000);
  t.product("aten::mm", mm(64, 64, 128, "float"), "volta_sgemm_128x64_tn", 9000);
  t.product("aten::mm", mm(64, 128, 64, "float"), "volta_sgemm_128x64_tn", 7000);
  t.product("aten::mm", mm(128, 64, 64, "float"), "volta_sgemm_128x64_tn", 6000);
  const std::vector<Finding> found = tensor_core_findings(t);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].title,
            "4 matrix products, 27.0 us in all, do not use tensor cores: f32, which tensor cores "
            "take (as TF32) only from compute capability 8.0 on");
  ASSERT_EQ(found[0].evidence.size(), 5U);
  EXPECT_TRUE(found[0].evidence[0].starts_with("aten::mm 64 x 64 x 128: 1 execution, 9.00 us"))
      << found[0].evidence[0];
  EXPECT_EQ(found[0].evidence[3], "and 1 more");
  EXPECT_HAS(found[0].evidence[4], "torch.autocast");
}

TEST(TensorCoreFindings, NameTheProductWhereThereIsOne) {
  GemmTrace t(a100());
  t.product("aten::mm", mm(64, 64, 64, "float"), "ampere_sgemm_128x64_tn", 5000);
  const std::vector<Finding> found = tensor_core_findings(t);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].title, "aten::mm 64 x 64 x 64 does not use tensor cores: f32 without TF32");
}

TEST(TensorCoreFindings, AreNoneWhereNothingCanBeDone) {
  GemmTrace t(a100());
  t.product("aten::mm", mm(64, 64, 64, "double"), "ampere_dgemm_128x64_tn", 5000);
  t.product("aten::mm", mm(1, 4096, 4096, kBf16),
            "void gemv2T_kernel_val<int, int, __nv_bfloat16>(x)", 5000);
  EXPECT_EQ(tensor_core_findings(t).size(), 0U);
}

}  // namespace epilogue::trace::gemm_comparison_test
