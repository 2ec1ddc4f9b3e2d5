// SPDX-License-Identifier: Apache-2.0
// What a finding about kernels that could be one says that they take, and what is left of it.
#include "epilogue/trace/explain.h"
#include "explain/findings/claims.h"
#include "explain/findings/find_finding.h"
#include "explain/gpu_trace.h"
#include "support/test.h"

namespace epilogue::trace::fusion_findings_test {

using namespace testing;

// Ops of 20 us on the host, each of which launches a kernel of `kernel_us`.
Explanation explain_chain(std::initializer_list<const char*> ops, int64_t kernel_us) {
  GpuTrace b;
  int64_t host = 0;
  int64_t device = 0;
  int64_t correlation = 1;
  for (const char* const name : ops) {
    b.op(name, host * kUs, (host + 20) * kUs);
    b.inputs({tensor({1024, 1024}), tensor({1024, 1024})});
    b.call("cudaLaunchKernel", (host + 5) * kUs, (host + 10) * kUs, correlation);
    device = std::max(device, host + 12);
    b.gpu_kernel("elementwise_kernel", device * kUs, (device + kernel_us) * kUs, correlation++);
    device += kernel_us;
    host += 20;
  }
  return explain(b.trace, link(b.trace));
}

TEST(FusionFindings, WhereTheDeviceWaitsTheHostsTimeIsWhatTheyTake) {
  const Explanation e = explain_chain({"aten::mul", "aten::add", "aten::mul", "aten::add"}, 2);
  ASSERT_EQ(e.verdicts.whole.bound, Bound::overhead);
  const Finding f = finding_of(e, "fusion");
  const Fusion& fusion = e.fusions.fusions.front();
  EXPECT_DOUBLE_EQ(*f.cost_us, fusion.host_us);
  EXPECT_GT(fusion.host_us, 60);  // four ops, but for what recording them costs
  EXPECT_DOUBLE_EQ(*f.saving_us, fusion.host_saving_us);
  EXPECT_GT(*f.cost_us - *f.saving_us, 10) << "the op that stays takes its time";
  EXPECT_HAS(f.evidence.front(), "on the host");
}

TEST(FusionFindings, WhereTheHostWaitsTheDevicesTimeIsWhatTheyTake) {
  const Explanation e = explain_chain({"aten::mul", "aten::add", "aten::mul", "aten::add"}, 200);
  ASSERT_EQ(e.verdicts.whole.bound, Bound::memory);
  const Finding f = finding_of(e, "fusion");
  EXPECT_DOUBLE_EQ(*f.cost_us, 800);
  EXPECT_LT(*f.saving_us, 800);
  EXPECT_LACKS(f.evidence.front(), "on the host");
}

// What it would save cannot be saved again by a finding about one of its ops.
TEST(FusionFindings, ClaimsWhatItSavesOfItsOps) {
  const Explanation e = explain_chain({"aten::mul", "aten::add", "aten::mul", "aten::add"}, 200);
  const Finding f = finding_of(e, "fusion");
  double claimed = 0;
  for (const Claim& claim : f.claims) {
    ASSERT_EQ(claim.ops.size(), 1U);
    EXPECT_TRUE(claim.ops[0] == "aten::mul" || claim.ops[0] == "aten::add") << claim.ops[0];
    claimed += claim.us;
  }
  EXPECT_EQ(f.claims.size(), 2U);
  EXPECT_NEAR(claimed, *f.saving_us, 1e-6);
  const TimeLedger ledger = ledger_after(e, e.findings);
  EXPECT_NEAR(ledger.left_us("aten::mul") + ledger.left_us("aten::add"), 800 - *f.saving_us, 1e-6);
}

// Where the device waits, what fewer ops would save is idle time: host-overhead has the rest.
TEST(FusionFindings, ClaimsIdleTimeWhereTheDeviceWaits) {
  const Explanation e = explain_chain({"aten::mul", "aten::add", "aten::mul", "aten::add"}, 2);
  const Finding f = finding_of(e, "fusion");
  ASSERT_EQ(f.claims.size(), 1U);
  EXPECT_EQ(f.claims[0].ops.front(), "idle: host_in_ops");
  double saved = 0;
  for (const Finding& other : e.findings)
    if (!other.claims.empty() && other.claims[0].ops.front().starts_with("idle: "))
      saved += other.saving_us.value_or(0);
  EXPECT_LE(saved, static_cast<double>(e.idle.front().idle_ns) / 1000 + 1e-6);
}

TEST(FusionFindings, ManyFillsAreNamedOnceWithTheirRemedy) {
  const Explanation e =
      explain_chain({"aten::fill_", "aten::fill_", "aten::fill_", "aten::fill_", "aten::fill_",
                     "aten::fill_", "aten::fill_", "aten::fill_", "aten::fill_", "aten::fill_"},
                    2);
  const Finding f = finding_of(e, "fusion");
  EXPECT_EQ(f.title, "one kernel could run 10 x aten::fill_");
  EXPECT_HAS(f.action, "set_to_none=True");
}

TEST(FusionFindings, AFewFillsAreNoGradients) {
  const Explanation e = explain_chain({"aten::fill_", "aten::fill_", "aten::mul", "aten::add"}, 2);
  EXPECT_LACKS(finding_of(e, "fusion").action, "zero_grad");
}

}  // namespace epilogue::trace::fusion_findings_test
