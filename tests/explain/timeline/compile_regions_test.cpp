// SPDX-License-Identifier: Apache-2.0
#include "epilogue/trace/time.h"

#include "explain/gpu_trace.h"
#include "support/test.h"

namespace epilogue::trace::compile_regions_test {

using testing::GpuTrace;

TEST(CompileRegions, RegionsGraphsLookupsAndTritonKernels) {
  GpuTrace b;
  b.annotation("ProfilerStep#1", 0, 1000);
  b.op("TorchDynamo Cache Lookup", 0, 30);
  b.op("Torch-Compiled Region: 0/0", 40, 200);
  b.annotation("## Call CompiledFxGraph abc ##", 60, 190);
  b.op("triton_poi_fused_gelu_mul_0", 70, 90);
  b.call("cuLaunchKernel", 75, 85, 1);
  b.op("Torch-Compiled Region: 1/0", 300, 400);  // after a graph break
  b.call("cudaLaunchKernel", 310, 320, 2);
  b.gpu_kernel("triton_poi_fused_gelu_mul_0", 100, 150, 1);
  b.gpu_kernel("gemm", 330, 350, 2);
  const CompileSummary s = compile_summary(b.trace, link(b.trace));
  EXPECT_TRUE(s.is_compiled());
  ASSERT_EQ(s.regions.size(), 2u);
  EXPECT_EQ(s.regions[0].name, "Torch-Compiled Region: 0/0");
  EXPECT_EQ(s.regions[0].cpu_ns, 160);
  EXPECT_EQ(s.regions[0].kernels, 1);
  EXPECT_EQ(s.regions[0].device_ns, 50);
  EXPECT_EQ(s.regions[1].device_ns, 20);
  EXPECT_DOUBLE_EQ(*s.regions_per_step, 2.0);
  EXPECT_DOUBLE_EQ(*s.frames_per_step, 2.0);
  ASSERT_EQ(s.graphs.size(), 1u);
  EXPECT_EQ(s.graphs[0].kernels, 1);
  EXPECT_EQ(s.cache_lookups.count, 1);
  EXPECT_EQ(s.cache_lookups.cpu_ns, 30);
  ASSERT_EQ(s.triton.size(), 1u);
  EXPECT_EQ(s.triton[0].fused_ops, (std::vector<std::string>{"gelu", "mul"}));
  EXPECT_EQ(s.triton[0].device_ns, 50);
}

TEST(CompileRegions, ARegionThatRunsOftenAndItsRecompilationsAreOneFrame) {
  GpuTrace b;
  b.annotation("ProfilerStep#1", 0, 1000);
  b.annotation("ProfilerStep#2", 1000, 2000);
  for (int64_t at = 0; at < 800; at += 200) b.op("Torch-Compiled Region: 0/0", at, at + 100);
  b.annotation("Torch-Compiled Region: 0/1", 1000, 1100);
  b.op("Torch-Compiled Region: 0/0", 1200, 1300);
  b.op("Torch-Compiled Region: 1/0", 2100, 2200);  // outside of all steps
  const CompileSummary s = compile_summary(b.trace, link(b.trace));
  EXPECT_DOUBLE_EQ(*s.regions_per_step, 3.5);
  EXPECT_DOUBLE_EQ(*s.frames_per_step, 1.0);
}

// Frames that resume in a loop share their code, so that all are 1/0; each runs within the frame
// that broke.
TEST(CompileRegions, ARegionWithinAnotherFollowsAGraphBreak) {
  GpuTrace b;
  for (int64_t step = 0; step < 2; ++step) {
    const int64_t at = step * 1000;
    b.annotation("ProfilerStep#" + std::to_string(step + 1), at, at + 1000);
    b.annotation("Torch-Compiled Region: 0/0", at + 10, at + 900);
    for (int64_t i = 0; i < 5; ++i)
      b.annotation("Torch-Compiled Region: 1/0", at + 110 + 10 * i, at + 890 - 10 * i);
    b.op("## Call CompiledFxGraph abc ##", at + 20, at + 100);
    b.op("## Call CompiledFxGraph def ##", at + 200, at + 300);
  }
  b.annotation("Torch-Compiled Region: 0/0", 2100, 2200);  // outside of all steps
  b.annotation("Torch-Compiled Region: 1/0", 2110, 2190);
  const CompileSummary s = compile_summary(b.trace, link(b.trace));
  EXPECT_EQ(s.graph_breaks, 11);
  EXPECT_DOUBLE_EQ(*s.graph_breaks_per_step, 5.0);
  EXPECT_EQ(s.outside_graphs_ns, 2 * (890 - 180) + 100);
}

TEST(CompileRegions, RegionsBesideEachOtherFollowNoBreak) {
  GpuTrace b;
  b.annotation("ProfilerStep#1", 0, 1000);
  b.annotation("Torch-Compiled Region: 0/0", 0, 400);
  b.annotation("Torch-Compiled Region: 0/0", 400, 800);
  b.event(Category::user_annotation, "Torch-Compiled Region: 1/0", 100, 300,
          2);  // a thread of its own
  const CompileSummary s = compile_summary(b.trace, link(b.trace));
  EXPECT_EQ(s.graph_breaks, 0);
  EXPECT_DOUBLE_EQ(*s.graph_breaks_per_step, 0.0);
  EXPECT_EQ(s.outside_graphs_ns, 0) << "no graph is recorded";
}

TEST(CompileRegions, WithoutFramesInTheirNamesTheirNumberIsUnknown) {
  GpuTrace b;
  b.annotation("ProfilerStep#1", 0, 1000);
  b.op("Torch-Compiled Region", 0, 100);
  b.op("Torch-Compiled Region", 200, 300);
  const CompileSummary s = compile_summary(b.trace, link(b.trace));
  EXPECT_DOUBLE_EQ(*s.regions_per_step, 2.0);
  EXPECT_FALSE(s.frames_per_step);
}

TEST(CompileRegions, ATritonKernelsSourceIsWhereItsLaunchOpSays) {
  GpuTrace b;
  b.op("triton_poi_fused_gelu_mul_0", 0, 50);
  b.last_args().other_args = b.trace.strings.intern(
      R"({"kernel_file": "/tmp/x/c1.py", "kernel_hash": "c1", "kernel_kwargs": "XBLOCK=16",)"
      R"( "num_warps": 4, "num_stages": "odd"})");
  b.call("cuLaunchKernel", 10, 20, 1);
  b.gpu_kernel("triton_poi_fused_gelu_mul_0", 30, 60, 1);
  b.op("triton_poi_fused_add_1", 60, 90);
  b.last_args().other_args = b.trace.strings.intern("not JSON");
  b.call("cuLaunchKernel", 70, 80, 2);
  b.gpu_kernel("triton_poi_fused_add_1", 90, 100, 2);
  const CompileSummary s = compile_summary(b.trace, link(b.trace));
  ASSERT_EQ(s.triton.size(), 2u);
  EXPECT_EQ(s.triton[0].file, "/tmp/x/c1.py");
  EXPECT_EQ(s.triton[0].hash, "c1");
  EXPECT_EQ(s.triton[0].config, "XBLOCK=16");
  EXPECT_EQ(s.triton[0].warps, 4);
  EXPECT_FALSE(s.triton[0].stages);
  EXPECT_EQ(s.triton[1].file, "");
  EXPECT_EQ(s.triton[0].files, 1);
  EXPECT_EQ(s.triton[1].files, 0);
}

TEST(CompileRegions, KernelsOfOneNameMayHaveSeveralSources) {
  GpuTrace b;
  for (int i = 0; i < 3; ++i) {
    b.op("triton_poi_fused_add_0", 100 * i, 100 * i + 50);
    b.last_args().other_args =
        b.trace.strings.intern(i == 1 ? R"({"kernel_file": "/tmp/x/c2.py", "kernel_hash": "c2"})"
                                      : R"({"kernel_file": "/tmp/x/c1.py", "kernel_hash": "c1"})");
    b.call("cuLaunchKernel", 100 * i + 10, 100 * i + 20, i + 1);
    b.gpu_kernel("triton_poi_fused_add_0", 100 * i + 30, 100 * i + 60, i + 1);
  }
  const CompileSummary s = compile_summary(b.trace, link(b.trace));
  ASSERT_EQ(s.triton.size(), 1u);
  EXPECT_EQ(s.triton[0].file, "/tmp/x/c1.py");
  EXPECT_EQ(s.triton[0].hash, "c1");
  EXPECT_EQ(s.triton[0].files, 2);
}

TEST(CompileRegions, EagerTracesHaveNone) {
  GpuTrace b;
  b.op("aten::mm", 0, 10);
  const CompileSummary s = compile_summary(b.trace, link(b.trace));
  EXPECT_FALSE(s.is_compiled());
  EXPECT_FALSE(s.regions_per_step);
  EXPECT_FALSE(s.frames_per_step);
}

}  // namespace epilogue::trace::compile_regions_test
