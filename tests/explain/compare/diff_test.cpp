// SPDX-License-Identifier: Apache-2.0
// Differences between small traces: every part known, and the sum always closed.
#include "epilogue/trace/diff.h"

#include "explain/compare/diff_testing.h"
#include "support/test.h"

namespace epilogue::trace::diff_test {

using namespace testing;

// An op from `start` with one kernel of `us`, both as long.
void run(TraceBuilder& b, const char* op, const char* kernel, int64_t start_us, int64_t us) {
  b.op(op, start_us * kUs, (start_us + us) * kUs);
  b.kernel(kernel, start_us * kUs, (start_us + us) * kUs, 0);
}

TEST(Diff, EqualTracesDoNotDiffer) {
  TraceBuilder a;
  run(a, "aten::mm", "gemm", 0, 100);
  const TraceDiff d = diff(a, a);
  EXPECT_TRUE(d.parts.empty()) << d.parts.front().what;
  EXPECT_EQ(d.wall_ns[0], d.wall_ns[1]);
  EXPECT_TRUE(d.kernels_added.empty());
  EXPECT_TRUE(d.kernels_removed.empty());
  EXPECT_TRUE(d.kernels_changed.empty());
}

TEST(Diff, ASlowerKernelIsNamed) {
  TraceBuilder a, b;
  run(a, "aten::mm", "gemm", 0, 100);
  run(a, "aten::add", "add", 100, 10);
  run(b, "aten::mm", "gemm", 0, 150);
  run(b, "aten::add", "add", 150, 10);
  const TraceDiff d = diff(a, b);
  const DiffPart& part = test::found(find_part(d, "aten::mm: same kernel, gemm"));
  EXPECT_EQ(part.delta_ns(), 50 * kUs);
  EXPECT_EQ(part.why, "1 execution, mean 100.0 -> 150.0 us");
  ASSERT_EQ(d.kernels_changed.size(), 1U);
  EXPECT_EQ(d.kernels_changed[0].name, "gemm");
}

// The host is ahead: the kernel begins in the step that launched it and ends behind it.
TEST(Diff, AKernelThatOutlastsItsStepCountsInFull) {
  TraceBuilder a, b;
  for (const auto& [t, us] : {std::pair{&a, 300}, {&b, 200}}) {
    t->annotation("ProfilerStep#1", 0, 100 * kUs);
    t->op("aten::mm", 0, 60 * kUs);
    t->kernel("gemm", 50 * kUs, 51 * kUs, t->last_id());
    t->trace.events.back().dur_ns = us * kUs;
  }
  const TraceDiff d = diff(a, b);
  EXPECT_EQ(d.wall_ns[0], 350 * kUs);
  const DiffPart& part = test::found(find_part(d, "aten::mm: same kernel, gemm"));
  EXPECT_EQ(part.delta_ns(), -100 * kUs);
}

TEST(Diff, AnotherKernelOfTheSameOpIsExplainedByItsFields) {
  TraceBuilder a, b;
  run(a, "aten::mm", "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn", 0, 100);
  run(b, "aten::mm", "ampere_bf16_s16816gemm_bf16_128x256_ldg8_f2f_stages_64x3_tn", 0, 80);
  const TraceDiff d = diff(a, b);
  const DiffPart& part = test::found(find_part(d, "aten::mm: other kernels"));
  EXPECT_EQ(part.delta_ns(), -20 * kUs);
  EXPECT_HAS(part.why, "128x128");
  EXPECT_HAS(part.why, "128x256");
  EXPECT_EQ(d.kernels_added.size(), 1U);
  EXPECT_EQ(d.kernels_removed.size(), 1U);
}

TEST(Diff, ATritonKernelTakesTheOpsThatItNames) {
  TraceBuilder a, b;
  run(a, "aten::gelu", "vectorized_gelu", 0, 90);
  run(a, "aten::mul", "vectorized_mul", 90, 110);
  run(b, "triton_poi_fused_gelu_mul_0", "triton_poi_fused_gelu_mul_0", 0, 120);
  const TraceDiff d = diff(a, b);
  const DiffPart& part = test::found(find_part(d, "triton_poi_fused_gelu_mul_0: fused"));
  EXPECT_EQ(part.delta_ns(), -80 * kUs);
  EXPECT_EQ(part.why,
            "2 kernels of aten::gelu, aten::mul became 1; saved 80.0 us: launches 2 -> 1");
}

// A kernel that moves so many bytes.
void run_bytes(TraceBuilder& b, const char* op, const char* kernel, int64_t start_us, int64_t us,
               int64_t bytes, const char* fused_ops = "") {
  run(b, op, kernel, start_us, us);
  b.trace.kernels.back().bytes = bytes;
  b.trace.kernels.back().fused_ops = b.trace.strings.intern(fused_ops);
}

// The kernels of a gated MLP: 100 + 20 + 100 + 30 + 100 us.
TraceBuilder eager_mlp() {
  TraceBuilder a;
  run_bytes(a, "aten::mm", "gemm", 0, 100, 5000);
  run_bytes(a, "aten::gelu", "gelu", 100, 20, 2000);
  run_bytes(a, "aten::mm", "gemm", 120, 100, 5000);
  run_bytes(a, "aten::mul", "mul", 220, 30, 3000);
  run_bytes(a, "aten::mm", "gemm", 250, 100, 5000);
  return a;
}

TEST(Diff, AFusedKernelTakesTheOpsThatItsTraceNames) {
  TraceBuilder b;
  run_bytes(b, "epilogue::row_chain", "chain", 0, 200, 7000,
            "aten::mm, aten::gelu, aten::mm, aten::mul, aten::mm");
  const TraceDiff d = diff(eager_mlp(), b);
  ASSERT_EQ(d.parts.size(), 1U);
  EXPECT_EQ(d.parts[0].what, "chain: fused");
  EXPECT_EQ(d.parts[0].delta_ns(), -150 * kUs);
  EXPECT_EQ(d.parts[0].why,
            "5 kernels of aten::mm, aten::gelu, aten::mul became 1; saved 150 us: launches 5 -> 1, "
            "bytes read and written 19.5 KiB -> 6.84 KiB");
  EXPECT_EQ(d.parts[0].kernels, (std::array<double, 2>{5, 1}));
  EXPECT_EQ(d.parts[0].bytes, (std::array<int64_t, 2>{20000, 7000}));
}

TEST(Diff, FusedKernelsThatNameOneOpAreOnePart) {
  TraceBuilder b;
  run_bytes(b, "epilogue::row_chain", "first", 0, 120, 6000,
            "aten::mm, aten::gelu, aten::mm, aten::mul");
  run_bytes(b, "epilogue::row_chain", "second", 120, 90, 5000, "aten::mm");
  const TraceDiff d = diff(eager_mlp(), b);
  ASSERT_EQ(d.parts.size(), 1U);
  EXPECT_EQ(d.parts[0].what, "first and 1 more: fused");
  EXPECT_EQ(d.parts[0].before_ns, 350 * kUs);
  EXPECT_EQ(d.parts[0].after_ns, 210 * kUs);
}

TEST(Diff, BackFromFusedToEagerIsASplit) {
  TraceBuilder a;
  run_bytes(a, "epilogue::fused_gated_mlp", "chain", 0, 200, 7000,
            "aten::mm, aten::gelu, aten::mm, aten::mul, aten::mm");
  const TraceDiff d = diff(a, eager_mlp());
  ASSERT_EQ(d.parts.size(), 1U);
  EXPECT_EQ(d.parts[0].what, "chain: split");
  EXPECT_EQ(d.parts[0].why,
            "1 became 5 kernels of aten::mm, aten::gelu, aten::mul; lost 150 us: launches 1 -> 5, "
            "bytes read and written 6.84 KiB -> 19.5 KiB");
}

TEST(Diff, BytesThatOneTraceDoesNotSayAreNotCompared) {
  TraceBuilder a = eager_mlp();
  a.trace.kernels.front().bytes = -1;
  TraceBuilder b;
  run_bytes(b, "epilogue::row_chain", "chain", 0, 200, 7000, "aten::mm, aten::gelu, aten::mul");
  const TraceDiff d = diff(a, b);
  ASSERT_EQ(d.parts.size(), 1U);
  EXPECT_EQ(d.parts[0].bytes, (std::array<int64_t, 2>{-1, 7000}));
  EXPECT_LACKS(d.parts[0].why, "bytes");
}

TEST(Diff, IdleTimeOfTheHostIsAPartOfItsOwn) {
  TraceBuilder a, b;
  run(a, "aten::mm", "gemm", 0, 10);
  a.op("aten::item", 10 * kUs, 60 * kUs);  // the device idles, the host is in an op
  run(a, "aten::mm", "gemm", 60, 10);
  run(b, "aten::mm", "gemm", 0, 10);
  run(b, "aten::mm", "gemm", 10, 10);
  const TraceDiff d = diff(a, b);
  const DiffPart& part = test::found(find_part(d, "device idle: host in ops"));
  EXPECT_EQ(part.delta_ns(), -50 * kUs);
  EXPECT_EQ(d.unexplained_ns, 0);
}

TEST(Diff, StepsCountWhereBothHaveThem) {
  TraceBuilder a, b;
  for (TraceBuilder* t : {&a, &b}) run(*t, "aten::mm", "gemm", 500, 10);  // outside all steps
  a.annotation("ProfilerStep#1", 0, 100 * kUs);
  a.annotation("ProfilerStep#2", 100 * kUs, 200 * kUs);
  b.annotation("ProfilerStep#1", 0, 70 * kUs);
  b.annotation("ProfilerStep#2", 70 * kUs, 140 * kUs);
  const TraceDiff d = diff(a, b);
  EXPECT_TRUE(d.by_steps);
  EXPECT_FALSE(d.per_step);
  EXPECT_EQ(d.wall_ns[0], 200 * kUs);
  EXPECT_EQ(d.wall_ns[1], 140 * kUs);
  EXPECT_EQ(d.kernels, (std::array<double, 2>{0, 0}));
  EXPECT_EQ(d.ops, (std::array<double, 2>{0, 0}));
}

// Steps of 101 and 121 ns, each with a kernel of 60 ns.
TraceBuilder stepped(int count, int64_t step_ns) {
  TraceBuilder b;
  for (int i = 0; i < count; ++i) {
    const int64_t start_ns = i * step_ns;
    b.annotation("ProfilerStep#" + std::to_string(i), start_ns, start_ns + step_ns);
    b.op("aten::mm", start_ns, start_ns + 70);
    b.kernel("gemm", start_ns, start_ns + 60, 0);
  }
  return b;
}

TEST(Diff, OtherNumbersOfStepsAreComparedPerStep) {
  const TraceDiff d = diff(stepped(3, 101), stepped(2, 121));
  EXPECT_TRUE(d.per_step);
  EXPECT_EQ(d.steps, (std::array<int64_t, 2>{3, 2}));
  EXPECT_EQ(d.wall_ns, (std::array<int64_t, 2>{101, 121})) << "the sums are 303 and 242";
  EXPECT_EQ(d.busy_ns, (std::array<int64_t, 2>{60, 60}));
  EXPECT_EQ(d.kernels, (std::array<double, 2>{1, 1}));
  EXPECT_EQ(d.launches, (std::array<double, 2>{1, 1}));
  EXPECT_EQ(d.ops, (std::array<double, 2>{1, 1}));
  EXPECT_TRUE(d.kernels_changed.empty()) << "as often per step, and as long";
  ASSERT_EQ(d.parts.size(), 1U);
  EXPECT_EQ(d.parts[0].what, "device idle: host between ops (Python)");
  EXPECT_EQ(d.parts[0].delta_ns(), 20);
}

TEST(Diff, AveragesOverStepsStillAddUp) {
  TraceBuilder a = stepped(3, 101);
  a.kernel("other", 61, 68, 0);  // 7 ns in one of three steps
  const TraceDiff d = diff(a, stepped(2, 121));
  EXPECT_EQ(d.kernels[0], 4.0 / 3);
  const DiffPart& gone = test::found(find_part(d, "aten::mm: gone"));
  EXPECT_NEAR(static_cast<double>(gone.before_ns), 7.0 / 3, 1);
  EXPECT_EQ(gone.why, "0.33 -> 0 executions per step of other");
}

TEST(Diff, AKernelOfTwoOpsIsBookedToEach) {
  TraceBuilder a, b;
  run(a, "aten::addmm", "gemm", 0, 100);
  run(a, "aten::mm", "gemm", 100, 20);
  run(b, "aten::addmm", "gemm", 0, 80);
  run(b, "aten::mm", "small_gemm", 80, 5);
  const TraceDiff d = diff(a, b);
  ASSERT_EQ(d.parts.size(), 2U);
  EXPECT_EQ(d.parts[0].what, "aten::addmm: same kernel, gemm");
  EXPECT_EQ(d.parts[0].before_ns, 100 * kUs);
  EXPECT_EQ(d.parts[0].after_ns, 80 * kUs);
  EXPECT_EQ(d.parts[1].what, "aten::mm: other kernels");
  EXPECT_EQ(d.parts[1].before_ns, 20 * kUs);
  EXPECT_EQ(d.parts[1].after_ns, 5 * kUs);
  EXPECT_EQ(d.parts[1].kernel_names[0], std::vector<std::string>{"gemm"});
  ASSERT_EQ(d.kernels_changed.size(), 1U) << "by name, over all ops";
  EXPECT_EQ(d.kernels_changed[0].count, (std::array<double, 2>{2, 1}));
  EXPECT_EQ(d.kernels_changed[0].total_ns, (std::array<int64_t, 2>{120 * kUs, 80 * kUs}));
}

TEST(Diff, AKernelThatMovedToAnotherOpIsTheSameKernel) {
  TraceBuilder a, b;
  run(a, "aten::linear", "gemm", 0, 100);
  run(b, "aten::mm", "gemm", 0, 90);
  const TraceDiff d = diff(a, b);
  ASSERT_EQ(d.parts.size(), 1U);
  EXPECT_EQ(d.parts[0].what, "gemm: same kernel");
  EXPECT_EQ(d.parts[0].why, "1 execution, mean 100.0 -> 90.0 us; of aten::linear -> aten::mm");
}

TEST(Diff, KernelsOfUnknownOpsAreMatchedByName) {
  TraceBuilder a, b, c;
  run(a, "aten::mm", "gemm", 0, 100);
  b.kernel("gemm", 0, 90 * kUs, 0);  // as in a graph
  run(c, "aten::mm", "gemm", 0, 50);
  c.kernel("gemm", 50 * kUs, 80 * kUs, 0);
  const TraceDiff moved = diff(a, b);
  ASSERT_EQ(moved.parts.size(), 1U);
  EXPECT_EQ(moved.parts[0].what, "gemm: same kernel");
  EXPECT_EQ(moved.parts[0].delta_ns(), -10 * kUs);
  const TraceDiff partly = diff(a, c);
  ASSERT_EQ(partly.parts.size(), 1U);
  EXPECT_EQ(partly.parts[0].what, "gemm: same kernel");
  EXPECT_EQ(partly.parts[0].delta_ns(), -20 * kUs);
}

TEST(Diff, KernelsWithOneBeginningOfTheirNamesAreToldApart) {
  const std::string start =
      "void at::native::elementwise_kernel<128, 2, at::native::gpu_kernel_impl_nocast<at::native::";
  const std::string end = " >(at::TensorIteratorBase&)::{lambda(int)#1}>(int)";
  const std::string add = start + "CUDAFunctor_add<float>" + end;
  const std::string copy =
      start + "direct_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda(float)#1}" + end;
  TraceBuilder a, b;
  run(a, "aten::add_", add.c_str(), 0, 100);
  run(a, "aten::copy_", copy.c_str(), 100, 100);
  run(b, "aten::add_", add.c_str(), 0, 10);
  run(b, "aten::copy_", copy.c_str(), 10, 20);
  const TraceDiff d = diff(a, b);
  ASSERT_EQ(d.parts.size(), 2U);
  EXPECT_EQ(d.parts[0].what, "aten::add_: same kernel, elementwise add f32, strided");
  EXPECT_EQ(d.parts[0].kernel_names[1], std::vector<std::string>{add}) << "in full";
  EXPECT_EQ(d.parts[1].what, "aten::copy_: same kernel, elementwise direct_copy f32, strided");
  ASSERT_EQ(d.kernels_changed.size(), 2U);
  EXPECT_NE(d.kernels_changed[0].label, d.kernels_changed[1].label);
}

TEST(Diff, UnchangedPartsAreNotCountedAsFaster) {
  TraceBuilder a, b;
  run(a, "aten::mm", "gemm", 0, 10000);
  run(a, "aten::add", "add", 10000, 10);
  run(a, "aten::mul", "mul", 10010, 10);
  run(b, "aten::mm", "gemm", 0, 10000);
  run(b, "aten::add", "add", 10000, 9);
  run(b, "aten::mul", "mul", 10009, 10);
  const TraceDiff d = diff_traces(a.trace, link(a.trace), b.trace, link(b.trace));
  ASSERT_EQ(d.parts.size(), 1U);
  EXPECT_EQ(d.parts[0].what, "1 smaller change, faster");
  EXPECT_EQ(d.parts[0].before_ns, 10 * kUs);
}

TEST(Diff, AFusionIsNamedHoweverLittleItSaved) {
  TraceBuilder b;
  run_bytes(b, "epilogue::row_chain", "chain", 0, 349, 7000,
            "aten::mm, aten::gelu, aten::mm, aten::mul, aten::mm");
  const TraceBuilder a = eager_mlp();
  const TraceDiff d = diff_traces(a.trace, link(a.trace), b.trace, link(b.trace));
  ASSERT_EQ(d.parts.size(), 1U);
  EXPECT_EQ(d.parts[0].what, "chain: fused");
  EXPECT_EQ(d.parts[0].delta_ns(), -1 * kUs);
}

TEST(Diff, OverlappingKernelsAreBookedOnce) {
  TraceBuilder a, b;
  run(a, "aten::mm", "first", 0, 100);
  run(a, "aten::mm", "second", 50, 100);
  run(b, "aten::mm", "first", 0, 100);
  const TraceDiff d = diff(a, b);
  EXPECT_EQ(d.busy_ns[0], 150 * kUs);
  const DiffPart& gone = test::found(find_part(d, "aten::mm: gone"));
  EXPECT_EQ(gone.delta_ns(), -50 * kUs);
}

TEST(Diff, EmptyTracesAreEqual) {
  const TraceBuilder a, b;
  EXPECT_EQ(diff(a, b).wall_ns, (std::array<int64_t, 2>{0, 0}));
}

}  // namespace epilogue::trace::diff_test
