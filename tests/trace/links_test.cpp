// SPDX-License-Identifier: Apache-2.0
#include "epilogue/trace/links.h"

#include "support/test.h"
#include "trace/trace_builder.h"

namespace epilogue::trace::links_test {

using testing::TraceBuilder;

// A trace whose events are written by index: add() returns it.
struct Events : TraceBuilder {
  uint32_t last() const { return static_cast<uint32_t>(trace.events.size()) - 1; }
  uint32_t add_op(std::string_view name, int64_t start_ns, int64_t end_ns, int64_t tid = 1) {
    op(name, start_ns, end_ns, tid);
    return last();
  }
  uint32_t add_call(std::string_view name, int64_t start_ns, int64_t end_ns, int64_t correlation,
                    int64_t tid = 1, int64_t external_id = 0) {
    Event& e = event(Category::cuda_runtime, name, start_ns, end_ns, tid);
    e.correlation = correlation;
    e.external_id = external_id;
    return last();
  }
  uint32_t add_work(Category category, int64_t start_ns, int64_t end_ns, int64_t correlation,
                    int64_t external_id = 0) {
    Event& e = event(category, "work", start_ns, end_ns, 7);
    e.correlation = correlation;
    e.external_id = external_id;
    return last();
  }
  uint32_t add_kernel(int64_t start_ns, int64_t end_ns, int64_t correlation,
                      int64_t external_id = 0) {
    return add_work(Category::kernel, start_ns, end_ns, correlation, external_id);
  }
};

TEST(Links, KernelBelongsToTheInnermostOpAroundItsLaunch) {
  Events b;
  const uint32_t linear = b.add_op("aten::linear", 0, 100);
  const uint32_t view = b.add_op("aten::t", 5, 10);
  const uint32_t addmm = b.add_op("aten::addmm", 20, 80);
  const uint32_t call = b.add_call("cudaLaunchKernel", 30, 40, 1);
  const uint32_t kernel = b.add_kernel(200, 300, 1);
  const Links links = link(b.trace);
  EXPECT_EQ(links.parent[linear], kNone);
  EXPECT_EQ(links.parent[view], linear);
  EXPECT_EQ(links.parent[addmm], linear);
  EXPECT_EQ(links.parent[call], addmm);
  EXPECT_EQ(links.op[call], addmm);
  EXPECT_EQ(links.launch[kernel], call);
  EXPECT_EQ(links.op[kernel], addmm);
  EXPECT_EQ(links.op[linear], kNone) << "ops have parents, not ops";
  EXPECT_EQ(links.kernels, 1);
  EXPECT_EQ(links.kernels_without_launch, 0);
  EXPECT_EQ(links.launches_without_kernel, 0);
}

TEST(Links, OrderInTheFileDoesNotMatter) {
  Events b;
  const uint32_t kernel = b.add_kernel(200, 300, 1);
  const uint32_t call = b.add_call("cudaLaunchKernel", 30, 40, 1);
  const uint32_t inner = b.add_op("aten::addmm", 20, 80);
  const uint32_t outer = b.add_op("aten::linear", 0, 100);
  const Links links = link(b.trace);
  EXPECT_EQ(links.op[kernel], inner);
  EXPECT_EQ(links.parent[inner], outer);
  EXPECT_EQ(links.launch[kernel], call);
}

TEST(Links, OtherThreadsAreNoParents) {
  Events b;
  b.add_op("aten::linear", 0, 100, 1);
  const uint32_t other = b.add_op("aten::mm", 10, 20, 2);
  const uint32_t call = b.add_call("cudaLaunchKernel", 30, 40, 1, 3);
  const Links links = link(b.trace);
  EXPECT_EQ(links.parent[other], kNone);
  EXPECT_EQ(links.parent[call], kNone);
}

TEST(Links, AnnotationsThatOverlapOpsInPartAreNoParents) {
  Events b;
  b.annotation("forward", 0, 50);
  const uint32_t op = b.add_op("aten::mm", 40, 90);
  const uint32_t call = b.add_call("cudaLaunchKernel", 60, 70, 1);
  const Links links = link(b.trace);
  EXPECT_EQ(links.parent[op], kNone);
  EXPECT_EQ(links.parent[call], op);
}

TEST(Links, OpsThatOverlapInPartAreNoParents) {
  Events b;
  const uint32_t first = b.add_op("a", 0, 50);
  const uint32_t second = b.add_op("b", 40, 90);
  const uint32_t third = b.add_op("c", 45, 50);
  const Links links = link(b.trace);
  EXPECT_EQ(links.parent[first], kNone);
  EXPECT_EQ(links.parent[second], kNone);
  EXPECT_EQ(links.parent[third], second);
}

TEST(Links, ExternalIdIsNotBelievedWhereThereIsACorrelation) {
  Events b;
  const uint32_t wrong = b.add_op("aten::result_type", 0, 10);  // External id 1
  const uint32_t right = b.add_op("aten::conv2d", 20, 60);      // External id 2
  b.add_call("cudaLaunchKernel", 30, 40, 1, 1, 1);
  const uint32_t misled = b.add_kernel(100, 200, 1, 1);  // names op 1, its own correlation
  b.add_call("cudaLaunchKernel", 45, 50, 2, 1, 2);
  const uint32_t honest = b.add_kernel(200, 300, 2, 2);
  b.add_call("cudaLaunchKernel", 51, 52, 77, 1, 77);
  const uint32_t nothing = b.add_kernel(300, 400, 77, 77);  // names no op at all
  const Links links = link(b.trace);
  EXPECT_EQ(links.op[misled], right);
  EXPECT_EQ(links.op[honest], right);
  EXPECT_EQ(links.op[nothing], right);
  EXPECT_NE(links.op[misled], wrong);
  EXPECT_EQ(links.external_id_disagrees, 2);
  EXPECT_EQ(links.linked_by_external_id, 0);
}

// ROCm until 2023: neither calls nor kernels carry a correlation, and ids of ops are others.
TEST(Links, ExternalIdMayBeThatOfTheLaunchCall) {
  Events b;
  const uint32_t wrong = b.add_op("aten::empty", 0, 10);  // External id 1
  const uint32_t right = b.add_op("aten::mm", 20, 60);    // External id 2
  const uint32_t call = b.add_call("hipExtModuleLaunchKernel", 30, 40, 0, 1, 1);
  const uint32_t kernel = b.add_kernel(100, 200, 0, 1);
  const Links links = link(b.trace);
  EXPECT_EQ(links.launch[kernel], call);
  EXPECT_EQ(links.op[kernel], right);
  EXPECT_NE(links.op[kernel], wrong);
  EXPECT_EQ(links.kernels_without_launch, 0);
  EXPECT_EQ(links.linked_by_external_id, 1);
}

TEST(Links, AnExternalIdOfSeveralCallsIsAnOps) {
  Events b;
  const uint32_t op = b.add_op("aten::mm", 20, 60);  // External id 1
  b.add_call("hipLaunchKernel", 30, 40, 0, 1, 1);
  b.add_call("hipLaunchKernel", 41, 50, 0, 1, 1);
  const uint32_t kernel = b.add_kernel(100, 200, 0, 1);
  const Links links = link(b.trace);
  EXPECT_EQ(links.launch[kernel], kNone);
  EXPECT_EQ(links.op[kernel], op);
}

TEST(Links, ExternalIdLinksWhatHasNoCorrelation) {
  Events b;
  const uint32_t op = b.add_op("aten::mm", 0, 10);
  const uint32_t kernel = b.add_kernel(100, 200, 0, b.last_id());
  const uint32_t lost = b.add_kernel(200, 300, 0, 99);
  const Links links = link(b.trace);
  EXPECT_EQ(links.op[kernel], op);
  EXPECT_EQ(links.launch[kernel], kNone);
  EXPECT_EQ(links.op[lost], kNone);
  EXPECT_EQ(links.linked_by_external_id, 2);
  EXPECT_EQ(links.kernels_without_launch, 2);
  EXPECT_EQ(links.external_id_disagrees, 0);
}

TEST(Links, CorrelationZeroIsNone) {
  Events b;
  b.add_call("hipLaunchKernel", 0, 10, 0);
  const uint32_t kernel = b.add_kernel(20, 30, 0);
  const Links links = link(b.trace);
  EXPECT_EQ(links.launch[kernel], kNone);
  EXPECT_EQ(links.launches.size(), 1u);
  EXPECT_EQ(links.launches_without_kernel, 0) << "without a correlation it is unknown";
}

TEST(Links, OneGraphLaunchHasManyKernels) {
  Events b;
  const uint32_t op = b.add_op("graph", 0, 100);
  const uint32_t call = b.add_call("cudaGraphLaunch", 10, 20, 5);
  const uint32_t first = b.add_kernel(100, 110, 5);
  const uint32_t second = b.add_kernel(110, 120, 5);
  const Links links = link(b.trace);
  EXPECT_EQ(links.launch[first], call);
  EXPECT_EQ(links.launch[second], call);
  EXPECT_EQ(links.op[second], op);
  EXPECT_EQ(links.launches_without_kernel, 0);
  EXPECT_EQ(links.launches, std::vector<uint32_t>{call});
}

TEST(Links, WorkLaunchedBeforeTheWindowBelongsToNoStep) {
  Events b;
  b.annotation("ProfilerStep#7", 0, 100);
  b.add_op("aten::mm", 10, 50);
  const uint32_t call = b.add_call("cudaLaunchKernel", 20, 30, 2);
  const uint32_t before = b.add_kernel(5, 60, 1);   // its launch is not in the file
  const uint32_t late = b.add_kernel(150, 250, 2);  // runs in the next step
  b.annotation("ProfilerStep#8", 100, 300);
  const uint32_t next = b.add_op("aten::add", 120, 130);
  const Links links = link(b.trace);
  ASSERT_EQ(links.steps.size(), 2u);
  EXPECT_EQ(links.step[before], kNone);
  EXPECT_EQ(links.op[before], kNone);
  EXPECT_EQ(links.step[late], 0u);
  EXPECT_EQ(links.step[call], 0u);
  EXPECT_EQ(links.step[next], 1u);
  EXPECT_EQ(links.kernels_without_launch, 1);
}

TEST(Links, StepsTakeOpsOfOtherThreadsAndOnlyOfTheirProcess) {
  Events b;
  b.annotation("ProfilerStep#1", 0, 100, 1);
  const uint32_t backward = b.add_op("autograd::engine", 10, 20, 2);
  const uint32_t elsewhere = b.add_op("aten::mm", 10, 20, 1);
  b.trace.events[elsewhere].pid = 99;
  const uint32_t at_end = b.add_op("aten::mm", 100, 110, 1);
  const Links links = link(b.trace);
  EXPECT_EQ(links.step[backward], 0u);
  EXPECT_EQ(links.step[elsewhere], kNone);
  EXPECT_EQ(links.step[at_end], kNone) << "a step ends before its end";
}

TEST(Links, LaunchesWithoutKernelCountsKernelAndGraphLaunchesOnly) {
  Events b;
  b.add_call("cudaLaunchKernel", 0, 1, 1);
  b.add_call("cuLaunchKernelEx", 1, 2, 2);
  b.add_call("hipGraphLaunch", 2, 3, 3);
  b.add_call("cudaMemcpyAsync", 3, 4, 4);
  b.add_call("cudaLaunchHostFunc", 4, 5, 5);
  b.add_call("cudaLaunchKernel", 5, 6, 6);
  b.add_kernel(10, 20, 6);
  const Links links = link(b.trace);
  EXPECT_EQ(links.launches.size(), 4u);
  EXPECT_EQ(links.launches_without_kernel, 3);
}

TEST(Links, OfEqualSpansTheEarlierOpIsTheParent) {
  Events b;
  const uint32_t child = b.add_op("aten::addmm", 10, 20);
  b.last_args().ev_idx = 5;
  const uint32_t parent = b.add_op("aten::linear", 10, 20);
  b.last_args().ev_idx = 4;
  const uint32_t call = b.add_call("cudaLaunchKernel", 10, 20, 1);
  const Links links = link(b.trace);
  EXPECT_EQ(links.parent[child], parent);
  EXPECT_EQ(links.parent[parent], kNone);
  EXPECT_EQ(links.parent[call], child);
}

TEST(Links, SpansWithoutLengthAreChildrenButNoParentsOfOps) {
  Events b;
  const uint32_t outer = b.add_op("outer", 10, 20);
  const uint32_t first = b.add_op("first", 10, 10);
  const uint32_t second = b.add_op("second", 10, 10);
  const uint32_t call = b.add_call("cudaLaunchKernel", 10, 10, 1);
  const uint32_t after = b.add_op("after", 20, 20);
  const Links links = link(b.trace);
  EXPECT_EQ(links.parent[first], outer);
  EXPECT_EQ(links.parent[second], outer);
  EXPECT_EQ(links.parent[call], second);
  EXPECT_EQ(links.parent[after], kNone) << "what starts where an op ends is not inside";
}

TEST(Links, AsynchronousOpsAreNoParents) {
  Events b;
  b.add_op("async", 0, 100);
  b.last_args().is_async = true;
  const uint32_t inner = b.add_op("aten::mm", 10, 20);
  EXPECT_EQ(link(b.trace).parent[inner], kNone);
}

TEST(Links, ScatteredIdsAreFound) {
  Events b;
  const uint32_t low = b.add_call("cudaLaunchKernel", 0, 1, INT64_MIN);
  const uint32_t high = b.add_call("cudaLaunchKernel", 1, 2, INT64_MAX);
  const uint32_t a = b.add_kernel(10, 20, INT64_MIN);
  const uint32_t c = b.add_kernel(20, 30, INT64_MAX);
  const uint32_t lost = b.add_kernel(30, 40, 12345);
  const Links links = link(b.trace);
  EXPECT_EQ(links.launch[a], low);
  EXPECT_EQ(links.launch[c], high);
  EXPECT_EQ(links.launch[lost], kNone);
}

TEST(Links, ListsAreSortedByStart) {
  Events b;
  const uint32_t late = b.add_work(Category::gpu_memcpy, 50, 60, 0);
  const uint32_t early = b.add_kernel(10, 20, 0);
  const uint32_t fill = b.add_work(Category::gpu_memset, 30, 40, 0);
  const Links links = link(b.trace);
  EXPECT_EQ(links.device_work, (std::vector<uint32_t>{early, fill, late}));
  EXPECT_EQ(links.kernels, 1);
}

TEST(Links, EmptyTraceHasNoLinks) {
  const Links links = link(Trace());
  EXPECT_TRUE(links.parent.empty());
  EXPECT_TRUE(links.device_work.empty());
  EXPECT_EQ(links.kernels, 0);
}

TEST(Links, LaunchNames) {
  for (const char* name :
       {"cudaLaunchKernel", "cudaLaunchKernelExC", "cudaLaunchCooperativeKernel", "cudaGraphLaunch",
        "cuLaunchKernelEx", "hipExtModuleLaunchKernel", "hipGraphLaunch", "epiLaunchKernel"})
    EXPECT_TRUE(is_kernel_launch_name(name)) << name;
  for (const char* name : {"cudaMemcpyAsync", "cudaLaunchHostFunc", "cudaDeviceSynchronize", ""})
    EXPECT_FALSE(is_kernel_launch_name(name)) << name;
  EXPECT_TRUE(is_graph_launch_name("cuGraphLaunch"));
  EXPECT_FALSE(is_graph_launch_name("cudaLaunchKernel"));
}

}  // namespace epilogue::trace::links_test
