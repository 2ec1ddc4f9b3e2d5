// SPDX-License-Identifier: Apache-2.0
// Work of replayed graphs under the ops that captured it: in captured_ops(), in the key averages,
// in the difference of two traces.
#include "epilogue/trace/diff.h"
#include "epilogue/trace/serving.h"
#include "epilogue/trace/table.h"
#include "explain/gpu_trace.h"
#include "support/test.h"

namespace epilogue::trace::captured_ops_test {

using namespace testing;

constexpr int kLayers = 4;
constexpr int64_t kGemm = 30 * kUs;
constexpr int64_t kCast = 2 * kUs;
constexpr int64_t kGelu = 5 * kUs;

std::string gemm_of(int layer) { return "gemm_" + std::to_string(layer); }

// linear > addmm, with two kernels, then gelu; four times.
GpuTrace eager() {
  GpuTrace t;
  t.trace.device_label = "CUDA";
  int64_t at = 0;
  int64_t correlation = 0;
  for (int layer = 0; layer < kLayers; ++layer, at += 200 * kUs) {
    t.op("aten::linear", at, at + 40 * kUs);
    t.op("aten::addmm", at + 5 * kUs, at + 35 * kUs);
    t.inputs({tensor({8}), tensor({4, 16}), tensor({16, 8})});
    t.call("cudaLaunchKernel", at + 10 * kUs, at + 12 * kUs, ++correlation);
    t.gpu_kernel("cast", at + 50 * kUs, at + 50 * kUs + kCast, correlation);
    t.call("cudaLaunchKernel", at + 15 * kUs, at + 17 * kUs, ++correlation);
    t.gpu_kernel(gemm_of(layer), at + 60 * kUs, at + 60 * kUs + kGemm, correlation);
    t.op("aten::gelu", at + 50 * kUs, at + 60 * kUs);
    t.call("cudaLaunchKernel", at + 52 * kUs, at + 54 * kUs, ++correlation);
    t.gpu_kernel("gelu", at + 100 * kUs, at + 100 * kUs + kGelu, correlation);
  }
  return t;
}

// Replays of that within an op of the host. A kernel that is no one's comes last.
GpuTrace replays(int count, int64_t gemm_ns = kGemm) {
  GpuTrace t;
  t.trace.device_label = "CUDA";
  int64_t at = 0;
  int64_t correlation = 100;
  for (int i = 0; i < count; ++i, at += 1000 * kUs) {
    t.op("run_graph", at, at + 20 * kUs);
    t.call("cudaGraphLaunch", at + 5 * kUs, at + 10 * kUs, ++correlation);
    int64_t start = at + 30 * kUs;
    const auto kernel = [&](const std::string& name, int64_t dur) {
      t.gpu_kernel(name, start, start + dur, correlation);
      start += dur;
    };
    for (int layer = 0; layer < kLayers; ++layer) {
      kernel("cast", kCast);
      kernel(gemm_of(layer), gemm_ns);
      kernel("gelu", kGelu);
    }
    kernel("of_nobody", kUs);
  }
  return t;
}

CapturedOps ops_of(const GpuTrace& t, const GpuTrace& capture) {
  const GraphReference reference(capture.trace, link(capture.trace));
  return captured_ops(t.trace, link(t.trace), &reference);
}

const Row& row(const KeyAverages& averages, std::string_view name) {
  static const Row kNone;
  const Row* found = nullptr;
  for (const Row& r : averages.rows)
    if (r.key == name && r.device == RowDevice::cpu) {
      EXPECT_EQ(found, nullptr) << "two rows of " << name;
      found = &r;
    }
  EXPECT_NE(found, nullptr) << name;
  return found == nullptr ? kNone : *found;
}

TEST(CapturedOps, EachKernelHasItsCallAndTheOpsAroundIt) {
  const GpuTrace t = replays(2);
  const CapturedOps captured = ops_of(t, eager());
  EXPECT_EQ(captured.ops.size(), 3U * kLayers);  // linear, addmm and gelu of each layer, once
  EXPECT_EQ(captured.graph_ns, 2 * (kLayers * (kCast + kGemm + kGelu) + kUs));
  EXPECT_EQ(captured.named_ns, captured.graph_ns - 2 * kUs);
  std::map<std::string, std::set<uint32_t>> calls;
  for (uint32_t i = 0; i < t.trace.events.size(); ++i) {
    const uint32_t op = captured.op_of(i);
    if (op == kNone) continue;
    const std::string kernel(t.trace.name(t.trace.events[i]));
    EXPECT_EQ(captured.ops[op].name, kernel == "gelu" ? "aten::gelu" : "aten::addmm");
    calls[kernel].insert(op);
    if (kernel == "gelu") continue;
    EXPECT_EQ(captured.ops[op].shapes, "[[8], [4, 16], [16, 8]]");
    ASSERT_NE(captured.ops[op].parent, kNone);
    EXPECT_EQ(captured.ops[captured.ops[op].parent].name, "aten::linear");
  }
  EXPECT_EQ(calls["cast"].size(), 4U) << "of each layer";
  EXPECT_EQ(calls["gemm_0"].size(), 1U) << "both replays have the call of one capture";
  EXPECT_FALSE(calls.contains("of_nobody"));
}

TEST(CapturedOps, WithoutACaptureTheTracesOwnOrderNames) {
  GpuTrace t = eager();
  const GpuTrace graphs = replays(1);
  t.call("cudaGraphLaunch", 5000 * kUs, 5010 * kUs, 900);
  int64_t at = 5020 * kUs;
  for (const Event& e : graphs.trace.events)
    if (e.category == Category::kernel) {
      at += 50 * kUs;
      t.gpu_kernel(graphs.trace.name(e), at, at + 10 * kUs, 900);
    }
  EXPECT_GT(captured_ops(t.trace, link(t.trace)).named_ns, 0);
  EXPECT_EQ(captured_ops(graphs.trace, link(graphs.trace)).named_ns, 0);
  EXPECT_EQ(ops_of(eager(), eager()).graph_ns, 0) << "replays none";
}

TEST(CapturedOps, TheTableOfReplaysIsThatOfTheEagerRunTimesTheReplays) {
  constexpr int kReplays = 3;
  const GpuTrace t = replays(kReplays);
  const CapturedOps captured = ops_of(t, eager());
  for (const bool by_shape : {false, true}) {
    const KeyAverages once = key_averages(eager().trace, {.group_by_input_shape = by_shape});
    const KeyAverages all =
        key_averages(t.trace, {.group_by_input_shape = by_shape, .captured = &captured});
    for (const char* op : {"aten::linear", "aten::addmm", "aten::gelu"}) {
      const Row& expected = row(once, op);
      const Row& found = row(all, op);
      EXPECT_EQ(found.count, kReplays * expected.count) << op;
      EXPECT_EQ(found.captured_count, found.count);
      EXPECT_EQ(found.self_device_time_total_ns, kReplays * expected.self_device_time_total_ns);
      EXPECT_EQ(found.captured_self_device_ns, found.self_device_time_total_ns);
      EXPECT_EQ(found.device_time_total_ns, kReplays * expected.device_time_total_ns);
      EXPECT_EQ(found.cpu_time_total_ns, 0);
      EXPECT_EQ(found.cpu_time_avg_us(), 0);
      EXPECT_EQ(found.device_time_avg_us(), expected.device_time_avg_us());
      EXPECT_EQ(found.input_shapes, expected.input_shapes);
      EXPECT_EQ(found.is_top_level, expected.is_top_level);
    }
    // The op around the replay launched all of it; its own is what nobody captured.
    EXPECT_EQ(row(all, "run_graph").self_device_time_total_ns, kReplays * kUs);
    EXPECT_EQ(row(all, "run_graph").device_time_total_ns, captured.graph_ns);
    EXPECT_EQ(row(all, "run_graph").captured_count, 0);
    EXPECT_EQ(all.self_device_time_total_ns(), captured.graph_ns) << "kernels have their own rows";
  }
}

TEST(CapturedOps, AnOpThatAlsoRunsByItselfHasOneRow) {
  GpuTrace t = replays(1);
  t.op("aten::gelu", 5000 * kUs, 5030 * kUs);
  t.call("cudaLaunchKernel", 5002 * kUs, 5004 * kUs, 900);
  t.gpu_kernel("gelu_of_another_size", 5040 * kUs, 5047 * kUs, 900);
  const CapturedOps captured = ops_of(t, eager());
  const KeyAverages averages = key_averages(t.trace, {.captured = &captured});
  const Row& gelu = row(averages, "aten::gelu");
  EXPECT_EQ(gelu.count, kLayers + 1);
  EXPECT_EQ(gelu.captured_count, kLayers);
  EXPECT_EQ(gelu.self_device_time_total_ns, kLayers * kGelu + 7 * kUs);
  EXPECT_EQ(gelu.captured_self_device_ns, kLayers * kGelu);
  EXPECT_EQ(gelu.cpu_time_avg_us(), 30) << "of the call that the host made";
}

TEST(CapturedOps, AnOpWithinOneOfItsNameCountsOnce) {
  GpuTrace capture;
  capture.trace.device_label = "CUDA";
  GpuTrace t;
  t.trace.device_label = "CUDA";
  t.call("cudaGraphLaunch", 0, kUs, 900);
  for (int i = 0; i < 8; ++i) {
    const int64_t at = i * 100 * kUs;
    const std::string kernel = "k" + std::to_string(i);
    capture.op("aten::add", at, at + 20 * kUs);
    capture.op("aten::add", at + kUs, at + 19 * kUs);
    capture.call("cudaLaunchKernel", at + 2 * kUs, at + 4 * kUs, i + 1);
    capture.gpu_kernel(kernel, at + 30 * kUs, at + 34 * kUs, i + 1);
    t.gpu_kernel(kernel, at + 30 * kUs, at + 34 * kUs, 900);
  }
  const CapturedOps captured = ops_of(t, capture);
  const KeyAverages averages = key_averages(t.trace, {.captured = &captured});
  const Row& add = row(averages, "aten::add");
  EXPECT_EQ(add.count, 8);
  EXPECT_EQ(add.self_device_time_total_ns, 32 * kUs);
  EXPECT_EQ(add.device_time_total_ns, 32 * kUs);
}

TEST(CapturedOps, TheDifferenceComparesTheOpsOfGraphs) {
  const GpuTrace before = replays(2);
  const GpuTrace after = replays(2, 20 * kUs);
  const GpuTrace capture = eager();
  const CapturedOps a = ops_of(before, capture);
  const CapturedOps b = ops_of(after, capture);
  const auto differ = [&](std::array<const CapturedOps*, 2> captured) {
    return diff_traces(before.trace, link(before.trace), after.trace, link(after.trace),
                       {.min_part_pct = 0, .captured = captured});
  };
  const TraceDiff plain = differ({});
  for (const DiffPart& part : plain.parts) EXPECT_LACKS(part.what, "aten::addmm");
  EXPECT_FALSE(plain.captured_pct[0]);
  const TraceDiff d = differ({&a, &b});
  int64_t sum = 0;
  int64_t of_addmm = 0;
  for (const DiffPart& part : d.parts) {
    sum += part.delta_ns();
    if (part.what.starts_with("aten::addmm: ")) of_addmm += part.delta_ns();
  }
  EXPECT_EQ(of_addmm, -2 * kLayers * 10 * kUs);
  EXPECT_EQ(sum, d.wall_ns[1] - d.wall_ns[0]) << "the parts add up";
  ASSERT_TRUE(d.captured_pct[0] && d.captured_pct[1]);
  EXPECT_NEAR(*d.captured_pct[0], 100.0 * 148 / 149, 1e-9);
  EXPECT_NEAR(*d.captured_pct[1], 100.0 * 108 / 109, 1e-9);
}

// An eager run beside replays of the same kernels: each op is what it was.
TEST(CapturedOps, AnEagerRunAndItsGraphHaveTheSameOps) {
  const GpuTrace before = eager();
  const GpuTrace after = replays(1);
  const CapturedOps b = ops_of(after, before);
  const TraceDiff d = diff_traces(before.trace, link(before.trace), after.trace, link(after.trace),
                                  {.min_part_pct = 0, .captured = {nullptr, &b}});
  EXPECT_FALSE(d.captured_pct[0]);
  for (const DiffPart& part : d.parts) {
    EXPECT_FALSE(part.what.starts_with("aten::")) << part.what << ": takes as long as before";
    EXPECT_LACKS(part.what, "unknown op");
  }
}

}  // namespace epilogue::trace::captured_ops_test
