// SPDX-License-Identifier: Apache-2.0
#include "epilogue/trace/critical_path.h"

#include "explain/gpu_trace.h"
#include "support/test.h"

namespace epilogue::trace::critical_path_test {

using namespace testing;

CriticalPath path_of(const Trace& trace) {
  std::optional<CriticalPath> path = critical_path(trace, link(trace));
  EXPECT_TRUE(path);
  return path.value_or(CriticalPath());
}

const PathGroup& group(const CriticalPath& path, PathKind kind, std::string_view name = "") {
  for (const PathGroup& g : path.groups)
    if (g.kind == kind && g.name == name) return g;
  static const PathGroup none;
  ADD_FAILURE() << "no " << path_kind_name(kind) << " " << name;
  return none;
}

void expect_whole(const CriticalPath& path) {
  int64_t sum_ns = 0;
  for (const int64_t ns : path.kind_ns) sum_ns += ns;
  EXPECT_EQ(sum_ns, path.span_ns());
  int64_t at_ns = path.start_ns;
  for (const PathPiece& piece : path.pieces) {
    EXPECT_EQ(piece.start_ns, at_ns);
    at_ns = piece.end_ns;
  }
  EXPECT_EQ(at_ns, path.end_ns);
  for (const PathGroup& g : path.groups) {
    EXPECT_EQ(g.if_half_ns.has_value(), g.if_none_ns.has_value());
    if (g.if_half_ns) {
      EXPECT_LE(*g.if_none_ns, *g.if_half_ns);
      EXPECT_LE(*g.if_half_ns, path.span_ns());
      EXPECT_GE(*g.if_none_ns, path.span_ns() - g.total_ns);
    }
  }
}

// The host launches two kernels early; they run one after the other; it waits for them.
//   host   [mm  launch 10-14 ][launch 20-24] [sync 30 ......................... 215]
//   device          [a 20 ......... 120][b 122 ...... 212]
TEST(CriticalPath, QueuedKernelsAreThePathAndTheHostIsNot) {
  GpuTrace b;
  b.op("aten::mm", 0, 15 * kUs);
  b.op("aten::gelu", 16 * kUs, 25 * kUs);
  b.call("cudaLaunchKernel", 10 * kUs, 14 * kUs, 1);
  b.call("cudaLaunchKernel", 20 * kUs, 24 * kUs, 2);
  b.gpu_kernel("a", 20 * kUs, 120 * kUs, 1);
  b.gpu_kernel("b", 122 * kUs, 212 * kUs, 2);
  b.call("cudaDeviceSynchronize", 30 * kUs, 215 * kUs, 3);
  const CriticalPath path = path_of(b.trace);
  expect_whole(path);
  EXPECT_EQ(path.span_ns(), 215 * kUs);
  EXPECT_EQ(path.of(PathKind::kernel), 190 * kUs);
  EXPECT_EQ(path.of(PathKind::launch_latency), 10 * kUs);
  EXPECT_EQ(path.of(PathKind::device_gap), 2 * kUs);
  EXPECT_EQ(path.of(PathKind::sync_call), 3 * kUs);
  EXPECT_EQ(path.of(PathKind::host_op), 10 * kUs) << "until the first launch";
  EXPECT_EQ(group(path, PathKind::kernel, "a").if_half_ns, 165 * kUs);
  // b would begin 10 after its launch at 20, as a did, and the wait would end 3 after it.
  EXPECT_EQ(group(path, PathKind::kernel, "a").if_none_ns, 123 * kUs);
  // Without b, a is what the host waits for.
  EXPECT_EQ(group(path, PathKind::kernel, "b").if_none_ns, 125 * kUs);
}

// Each kernel is short; the host is what takes time. No kernel is worth a microsecond.
TEST(CriticalPath, OfALaunchBoundRunKernelsSaveNothing) {
  GpuTrace b;
  for (int64_t i = 0; i < 10; ++i) {
    b.op("aten::add", i * 20 * kUs, (i * 20 + 15) * kUs);
    b.call("cudaLaunchKernel", (i * 20 + 5) * kUs, (i * 20 + 11) * kUs, i + 1);
    b.gpu_kernel("add", (i * 20 + 12) * kUs, (i * 20 + 14) * kUs, i + 1);
  }
  const CriticalPath path = path_of(b.trace);
  expect_whole(path);
  EXPECT_EQ(path.span_ns(), 195 * kUs);
  EXPECT_EQ(path.of(PathKind::kernel), 0);
  EXPECT_EQ(path.of(PathKind::launch_call), 60 * kUs);
  EXPECT_EQ(path.of(PathKind::host_op), 90 * kUs);
  EXPECT_EQ(path.of(PathKind::host_between_ops), 45 * kUs);
  EXPECT_EQ(group(path, PathKind::host_op, "aten::add").if_none_ns, 108 * kUs)
      << "the last launch at 99, and 9 until its kernel ends: the host is done at 105";
  EXPECT_EQ(group(path, PathKind::host_between_ops).if_half_ns, (195 - 22) * kUs - 500);
}

// The kernel takes 100 us, but without it the host still needs its time until 70: it saves 40, not
// 100.
TEST(CriticalPath, WhatIfIsTheNextLongestPathNotASubtraction) {
  GpuTrace b;
  b.op("aten::mm", 0, 10 * kUs);
  b.call("cudaLaunchKernel", 2 * kUs, 6 * kUs, 1);
  b.gpu_kernel("long", 8 * kUs, 108 * kUs, 1);
  b.op("aten::index", 10 * kUs, 70 * kUs);
  b.call("cudaStreamSynchronize", 70 * kUs, 110 * kUs);
  const CriticalPath path = path_of(b.trace);
  expect_whole(path);
  const PathGroup& kernel = group(path, PathKind::kernel, "long");
  EXPECT_EQ(kernel.path_ns, 100 * kUs);
  EXPECT_EQ(kernel.if_half_ns, 72 * kUs);  // 70, and the 2 that the call takes to return
  EXPECT_EQ(kernel.if_none_ns, 72 * kUs);
}

// A kernel that was launched before the trace began runs first: the wait is for it.
TEST(CriticalPath, AWaitIsAlsoForWhatWasLaunchedBeforeTheTrace) {
  GpuTrace b;
  b.gpu_kernel("before", 0, 100 * kUs, 1);
  b.call("cudaDeviceSynchronize", 10 * kUs, 103 * kUs, 2);
  b.op("aten::mm", 110 * kUs, 120 * kUs);
  b.call("cudaLaunchKernel", 112 * kUs, 116 * kUs, 3);
  b.gpu_kernel("after", 118 * kUs, 150 * kUs, 3);
  const CriticalPath path = path_of(b.trace);
  expect_whole(path);
  EXPECT_EQ(group(path, PathKind::kernel, "before").path_ns, 100 * kUs);
  EXPECT_EQ(path.of(PathKind::sync_call), 3 * kUs);
}

// The call of stream 7 returns at 62 while stream 8 works until 90: it did not wait for that.
TEST(CriticalPath, AWaitIsNotForAStreamThatWentOn) {
  GpuTrace b;
  b.op("aten::mm", 0, 12 * kUs);
  b.call("cudaLaunchKernel", 1 * kUs, 3 * kUs, 1);
  b.call("cudaLaunchKernel", 5 * kUs, 7 * kUs, 2);
  b.gpu_kernel("waited_for", 10 * kUs, 60 * kUs, 1, 7);
  b.gpu_kernel("beside", 11 * kUs, 90 * kUs, 2, 8);
  b.call("cudaStreamSynchronize", 20 * kUs, 62 * kUs);
  b.op("aten::sum", 62 * kUs, 120 * kUs);
  const CriticalPath path = path_of(b.trace);
  expect_whole(path);
  EXPECT_EQ(group(path, PathKind::kernel, "waited_for").path_ns, 50 * kUs);
  for (const PathGroup& g : path.groups) EXPECT_NE(g.name, "beside");
}

// A copy on stream 9 begins when the kernel of stream 7 has ended, because a call says so.
TEST(CriticalPath, AStreamWaitsForAnother) {
  for (const bool is_recorded : {true, false}) {
    GpuTrace b;
    b.op("aten::mm", 0, 30 * kUs);
    b.call("cudaLaunchKernel", 1 * kUs, 3 * kUs, 1);
    b.gpu_kernel("made", 8 * kUs, 100 * kUs, 1, 7);
    b.call("cudaEventRecord", 4 * kUs, 5 * kUs, 2);
    b.call("cudaStreamWaitEvent", 6 * kUs, 7 * kUs, 3);
    if (is_recorded) {
      Event& sync = b.event(Category::cuda_sync, "Stream Wait Event", 6 * kUs, 7 * kUs, 9);
      sync.correlation = 3;
      sync.args = static_cast<uint32_t>(b.trace.syncs.size());
      SyncArgs& args = b.trace.syncs.emplace_back();
      args.stream = 9;
      args.wait_on_stream = 7;
      args.wait_on_record = 2;
    }
    b.call("cudaMemcpyAsync", 10 * kUs, 12 * kUs, 4);
    b.work(Category::gpu_memcpy, "Memcpy DtoH (Device -> Pinned)", 103 * kUs, 150 * kUs, 4, 9);
    const CriticalPath path = path_of(b.trace);
    expect_whole(path);
    EXPECT_EQ(path.stream_waits, 1);
    EXPECT_EQ(path.inferred_waits, is_recorded ? 0 : 1);
    EXPECT_EQ(group(path, PathKind::kernel, "made").path_ns, 92 * kUs);
    EXPECT_EQ(path.of(PathKind::copy), 47 * kUs);
    // Without the kernel the copy begins 7 after its own launch at 10.
    EXPECT_EQ(group(path, PathKind::kernel, "made").if_none_ns, 64 * kUs);
  }
}

// A graph's kernels are recorded on a stream of their own: the copy waits for them all the same,
// and they for the kernel before.
TEST(CriticalPath, WhatFollowsAGraphWaitsForIt) {
  GpuTrace b;
  b.op("aten::mm", 0, 30 * kUs);
  b.call("cudaLaunchKernel", 1 * kUs, 3 * kUs, 1);
  b.gpu_kernel("first", 8 * kUs, 50 * kUs, 1, 7);
  b.call("cudaGraphLaunch", 5 * kUs, 9 * kUs, 2);
  b.gpu_kernel("of_graph", 52 * kUs, 80 * kUs, 2, 165);
  b.gpu_kernel("of_graph", 82 * kUs, 110 * kUs, 2, 165);
  b.call("cudaMemcpyAsync", 10 * kUs, 12 * kUs, 3);
  b.work(Category::gpu_memcpy, "Memcpy DtoD (Device -> Device)", 113 * kUs, 150 * kUs, 3, 7);
  const CriticalPath path = path_of(b.trace);
  expect_whole(path);
  EXPECT_EQ(path.stream_waits, 2);
  EXPECT_EQ(path.inferred_waits, 2);
  EXPECT_EQ(group(path, PathKind::kernel, "first").path_ns, 42 * kUs);
  EXPECT_EQ(group(path, PathKind::kernel, "of_graph").path_ns, 56 * kUs);
  EXPECT_EQ(path.of(PathKind::device_gap), 7 * kUs);
}

// The backward pass runs on a thread of its own while the first one waits in Python.
TEST(CriticalPath, TheBackwardThreadGoesOnWhereTheForwardOneStopped) {
  GpuTrace b;
  b.op("aten::mm", 0, 20 * kUs, 1);
  b.call("cudaLaunchKernel", 5 * kUs, 8 * kUs, 1, 1);
  b.gpu_kernel("forward", 10 * kUs, 15 * kUs, 1);
  b.op("MmBackward0", 25 * kUs, 125 * kUs, 2);
  b.call("cudaLaunchKernel", 30 * kUs, 33 * kUs, 2, 2);
  b.gpu_kernel("backward", 35 * kUs, 40 * kUs, 2);
  b.op("Optimizer.step#SGD.step", 130 * kUs, 150 * kUs, 1);
  const CriticalPath path = path_of(b.trace);
  expect_whole(path);
  EXPECT_EQ(group(path, PathKind::host_op, "MmBackward0").path_ns, 97 * kUs);
  EXPECT_EQ(group(path, PathKind::host_op, "MmBackward0").if_none_ns, (150 - 97) * kUs);
  EXPECT_EQ(path.of(PathKind::host_between_ops), 10 * kUs);
}

TEST(CriticalPath, ThereIsNoneWithoutLaunchedWork) {
  GpuTrace b;
  b.op("aten::mm", 0, 100);
  EXPECT_FALSE(critical_path(b.trace, link(b.trace)));
  b.gpu_kernel("lost", 10, 20, 7);
  EXPECT_FALSE(critical_path(b.trace, link(b.trace)));
  EXPECT_FALSE(critical_path(Trace(), Links()));
}

}  // namespace epilogue::trace::critical_path_test
