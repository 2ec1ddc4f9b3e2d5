// SPDX-License-Identifier: Apache-2.0
// Findings name the sources of Triton kernels, where they were recorded.
#include "explain/findings/kernel_sources.h"
#include "explain/findings/find_finding.h"
#include "explain/gpu_trace.h"
#include "support/test.h"

namespace epilogue::trace::kernel_sources_test {

using namespace testing;

TritonKernel triton(const char* name, const char* file, std::vector<std::string> ops = {}) {
  TritonKernel k = {.name = name, .file = file};
  k.files = k.file.empty() ? 0 : 1;
  k.fused_ops = std::move(ops);
  return k;
}

Finding finding(std::string title, std::vector<std::string> evidence = {}) {
  return Finding{.title = std::move(title), .evidence = std::move(evidence)};
}

TEST(KernelSources, OfAKernelThatIsNamedTheSourceIsSaidBeforeTheAdvice) {
  const TritonKernel kernels[] = {
      triton("triton_poi_fused_add_gelu_0", "/t/c1.py", {"add", "gelu"}),
      triton("triton_poi_fused_add_1", "/t/c2.py", {"add"}), triton("triton_red_fused_sum_2", "")};
  Finding f = finding("one kernel could run triton_poi_fused_add_gelu_0 + triton_red_fused_sum_2",
                      {"3 times", "fuse them"});
  f.action = "fuse them";
  name_sources(kernels, {&f, 1});
  ASSERT_EQ(f.sources.size(), 1U) << "the second is not named, the third's was not recorded";
  EXPECT_EQ(f.sources[0].file, "/t/c1.py");
  EXPECT_EQ(f.evidence,
            (std::vector<std::string>{
                "3 times", "triton_poi_fused_add_gelu_0, from /t/c1.py (add, gelu)", "fuse them"}));
}

TEST(KernelSources, ANameIsTakenAsAWhole) {
  const TritonKernel kernels[] = {triton("triton_poi_fused_add_1", "/t/c1.py")};
  for (const char* text : {"triton_poi_fused_add_10", "xtriton_poi_fused_add_1",
                           "triton_poi_fused_add_1_", "triton_poi_fused_add_12 runs"}) {
    Finding f = finding(text);
    name_sources(kernels, {&f, 1});
    EXPECT_TRUE(f.sources.empty()) << text;
    EXPECT_TRUE(f.evidence.empty());
  }
  Finding both = finding("triton_poi_fused_add_10 and (triton_poi_fused_add_1)");
  name_sources(kernels, {&both, 1});
  EXPECT_EQ(both.sources.size(), 1U);
}

TEST(KernelSources, SeveralSourcesOfOneNameAndManyKernelsAreCounted) {
  std::vector<TritonKernel> kernels;
  Finding f = finding("a chain");
  for (int i = 0; i < 5; ++i) {
    const std::string name = "triton_poi_" + std::to_string(i);
    kernels.push_back(triton(name.c_str(), "/t/c.py"));
    f.kernels.push_back(name);
  }
  kernels[0].files = 3;
  name_sources(kernels, {&f, 1});
  EXPECT_EQ(f.sources.size(), 5U);
  ASSERT_EQ(f.evidence.size(), 4U);
  EXPECT_EQ(f.evidence[0], "triton_poi_0, from /t/c.py and 2 more of that name");
  EXPECT_EQ(f.evidence[3], "and the sources of 2 more");
}

// Two pointwise kernels of Inductor, one after the other on the same tensor; the first op says
// where its source lies.
GpuTrace compiled_trace() {
  GpuTrace b;
  const char* names[] = {"triton_poi_fused_add_gelu_0", "triton_poi_fused_mul_1"};
  for (int step = 0; step < 4; ++step)
    for (int i = 0; i < 2; ++i) {
      const int64_t at = (400 * step + 200 * i) * kUs;
      b.op(names[i], at, at + 20 * kUs);
      b.inputs({tensor({1024, 1024}), tensor({1024, 1024})});
      if (i == 0)
        b.last_args().other_args = b.trace.strings.intern(
            R"({"kernel_file": "/tmp/torchinductor_me/c1/c1.py", "kernel_backend": "triton"})");
      const int64_t correlation = 2 * step + i + 1;
      b.call("cuLaunchKernel", at + 5 * kUs, at + 10 * kUs, correlation);
      b.gpu_kernel(names[i], at + 15 * kUs, at + (i == 0 ? 195 : 60) * kUs, correlation);
    }
  return b;
}

TEST(KernelSources, AGapBetweenKernelsSaysWhereTheyComeFrom) {
  const GpuTrace b = compiled_trace();
  const Finding gap = finding_of(explain(b.trace, link(b.trace)), "idle-gap");
  ASSERT_EQ(gap.sources.size(), 1U) << "of the other kernel nothing was recorded";
  EXPECT_EQ(gap.sources[0].kernel, "triton_poi_fused_add_gelu_0");
  EXPECT_EQ(gap.evidence.back(),
            "triton_poi_fused_add_gelu_0, from /tmp/torchinductor_me/c1/c1.py (add, gelu)");
}

}  // namespace epilogue::trace::kernel_sources_test
