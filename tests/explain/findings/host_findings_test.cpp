// SPDX-License-Identifier: Apache-2.0
// Findings of runs without a device: traces that have one, and traces that just do not.
#include "epilogue/trace/explain.h"
#include "explain/findings/find_finding.h"
#include "explain/gpu_trace.h"
#include "support/test.h"

namespace epilogue::trace::host_findings_test {

using namespace testing;

// 537 MFLOP.
void product(GpuTrace& b, int64_t start_us, int64_t end_us, const char* type) {
  b.op("aten::addmm", start_us * kUs, end_us * kUs);
  b.inputs({tensor({512}, type), tensor({512, 1024}, type), tensor({1024, 512}, type), scalar("1"),
            scalar("1")});
}

TEST(HostFindings, ATypeWithoutInstructionsIsNamedWithWhatF32WouldSave) {
  GpuTrace b;
  product(b, 0, 33'500, "c10::BFloat16");  // 16 GFLOP/s
  product(b, 33'500, 37'080, "float");     // 150 GFLOP/s
  const Explanation e = explain(b);
  const Finding f = finding_of(e, "slow-dtype");
  EXPECT_HAS(f.title, "products in bf16");
  EXPECT_NEAR(*f.saving_us, 33'500 - 3'580, 20);
  EXPECT_EQ(e.findings[1].id, "slow-dtype") << "the largest comes first";

  GpuTrace fast;
  product(fast, 0, 1'200, "c10::BFloat16");
  product(fast, 1'200, 4'780, "float");
  EXPECT_EQ(find_finding(explain(fast), "slow-dtype"), nullptr);
}

TEST(HostFindings, WithoutF32BesideItASlowTypeIsJudgedByWhatAnyCpuDoes) {
  GpuTrace slow;
  product(slow, 0, 33'500, "c10::BFloat16");
  const Explanation e = explain(slow);
  ASSERT_NE(find_finding(e, "slow-dtype"), nullptr);
  EXPECT_FALSE(find_finding(e, "slow-dtype")->saving_us);
  GpuTrace fast;
  product(fast, 0, 17'000, "c10::BFloat16");  // 32 GFLOP/s
  EXPECT_EQ(find_finding(explain(fast), "slow-dtype"), nullptr);
}

Explanation explain_on(const GpuTrace& b, const char* cpu, int threads) {
  return explain(b.trace, link(b.trace),
                 ExplainOptions{.cpu = estimate_cpu_peaks(cpu, threads).value()});
}

TEST(HostFindings, ProductsAreComparedWithTheCpuThatIsNamed) {
  GpuTrace b;
  product(b, 0, 3'580, "float");  // 150 GFLOP/s
  product(b, 3'580, 7'160, "c10::BFloat16");
  product(b, 7'160, 10'740, "double");
  const Explanation e = explain_on(b, "EPYC 7763 @ 2.5GHz", 4);  // 320 GFLOP/s
  ASSERT_EQ(e.host->products.size(), 3U);
  for (const HostProduct& p : e.host->products) {
    const double peak = p.type == "f64" ? 160 : 320;  // bf16 is computed as f32
    EXPECT_DOUBLE_EQ(*p.peak_gflops, peak) << p.type;
    EXPECT_NEAR(*p.peak_pct, p.gflops / peak * 100, 1e-9);
  }
  EXPECT_FALSE(is_peak_too_low(*e.host));
  EXPECT_TRUE(is_peak_too_low(*explain_on(b, "EPYC 7763 @ 2.5GHz", 1).host));
  const Explanation none = explain(b);
  EXPECT_FALSE(none.host->peaks);
  EXPECT_FALSE(none.host->products.front().peak_pct);
  EXPECT_FALSE(is_peak_too_low(*none.host));
}

TEST(HostFindings, OfACpuThatIsNamedItsInstructionsAreKnown) {
  GpuTrace b;
  product(b, 0, 33'500, "c10::BFloat16");  // 16 GFLOP/s
  const auto title = [](const Explanation& e) {
    const Finding* f = find_finding(e, "slow-dtype");
    return f == nullptr ? "" : f->title;
  };
  const std::string takes = "products in bf16 take 33.5 ms of 33.5 ms (100 %): ";
  EXPECT_EQ(title(explain(b)), takes + "this CPU most likely has no instructions for bf16");
  EXPECT_EQ(title(explain_on(b, "EPYC 7763", 1)), takes + "Zen 3 has no instructions for bf16");
  const Explanation amx = explain_on(b, "Sapphire Rapids", 1);
  EXPECT_EQ(title(amx), takes + "slow, although Sapphire Rapids has instructions for bf16");
  EXPECT_HAS(find_finding(amx, "slow-dtype")->action, "ONEDNN_MAX_CPU_ISA");
}

TEST(HostFindings, WhereAnotherProductOfTheTypeIsFastItsInstructionsAreThere) {
  GpuTrace b;
  product(b, 0, 33'500, "c10::BFloat16");         // 16 GFLOP/s
  b.op("aten::bmm", 33'500 * kUs, 33'600 * kUs);  // 537 MFLOP in 100 us
  b.inputs({tensor({1, 512, 1024}, "c10::BFloat16"), tensor({1, 1024, 512}, "c10::BFloat16")});
  EXPECT_EQ(find_finding(explain(b), "slow-dtype"), nullptr);
}

TEST(HostFindings, WithoutInstructionsASlowTypeIsJudgedByF32sPeak) {
  GpuTrace b;
  product(b, 0, 9'000, "c10::BFloat16");  // 59.7 GFLOP/s
  EXPECT_EQ(find_finding(explain(b), "slow-dtype"), nullptr);
  const Explanation e = explain_on(b, "EPYC 7763 @ 2.5GHz", 8);  // a sixth of 640: 107
  const Finding f = finding_of(e, "slow-dtype");
  EXPECT_FALSE(f.saving_us) << "what f32 would take is not known";
  EXPECT_EQ(f.evidence.at(0),
            "aten::addmm 512 x 512 x 1024 bf16: 1 execution, 9.00 ms in all, 59.7 GFLOP/s (9 % of "
            "the estimated peak for f32)");
  EXPECT_EQ(f.evidence.at(1),
            "the estimated peak for f32 is 640 GFLOP/s: compare with f32 products of these sizes");
  EXPECT_EQ(find_finding(explain_on(b, "EPYC 7763 @ 2.5GHz", 4), "slow-dtype"), nullptr)
      << "a sixth of 320 is 53";
  EXPECT_EQ(find_finding(explain_on(b, "Sapphire Rapids", 8), "slow-dtype"), nullptr)
      << "it has instructions";
  // An estimate that another product exceeds says nothing.
  product(b, 9'000, 9'200, "double");  // 2.7 TFLOP/s
  EXPECT_EQ(find_finding(explain_on(b, "EPYC 7763 @ 2.5GHz", 8), "slow-dtype"), nullptr);
}

TEST(HostFindings, WhereAllIsSlowThreadsContend) {
  GpuTrace b;
  product(b, 0, 33'500, "c10::BFloat16");
  b.op("aten::copy_", 33'500 * kUs, 48'500 * kUs);  // 1 MiB in 15 ms
  b.inputs({tensor({256, 512}), tensor({256, 512})});
  const Explanation e = explain(b);
  const Finding f = finding_of(e, "thread-contention");
  EXPECT_HAS(f.evidence.at(0), "aten::copy_: 15.0 ms in 1 call, 1.00 MiB each");
  EXPECT_EQ(find_finding(e, "slow-dtype"), nullptr) << "the type need not be the cause";
  GpuTrace fast;
  fast.op("aten::copy_", 0, 1'000 * kUs);
  fast.inputs({tensor({256, 512}), tensor({256, 512})});
  EXPECT_EQ(find_finding(explain(fast), "thread-contention"), nullptr);
}

// Twelve calls of relu on 512 x 384 f32, 1.5 MiB each, and of a norm on the same.
GpuTrace small_loops(int64_t fastest_us, int64_t others_us, const std::vector<int64_t>& strides) {
  GpuTrace b;
  int64_t at = 0;
  for (int i = 0; i < 12; ++i) {
    const int64_t us = i == 0 ? fastest_us : others_us;
    OpInput x = tensor({512, 384});
    x.strides = strides;
    b.op("aten::clamp_min", at, at + us * kUs);
    b.inputs({x});
    b.op("aten::native_layer_norm", at + us * kUs, at + 2 * us * kUs);
    b.inputs({x});
    at += 2 * us * kUs;
  }
  return b;
}

TEST(HostFindings, SmallLoopsThatAreSlowEachTimeWaitForThreads) {
  const std::vector<int64_t> contiguous = {384, 1};
  const Explanation e = explain(small_loops(250, 470, contiguous));  // 6.3 and 3.3 GB/s
  const Finding f = finding_of(e, "thread-contention");
  EXPECT_HAS(f.evidence.at(0), "12 calls, 1.50 MiB each, 3.4");
  EXPECT_NEAR(*f.cost_us, 2 * (250 + 11 * 470), 1e-6) << "the norms suffer as well";
}

TEST(HostFindings, SmallLoopsThatAreFastOnceWereInterruptedOnly) {
  EXPECT_EQ(find_finding(explain(small_loops(100, 470, {384, 1})), "thread-contention"), nullptr);
  EXPECT_EQ(find_finding(explain(small_loops(250, 300, {384, 1})), "thread-contention"), nullptr);
}

TEST(HostFindings, LoopsThatAreSlowMostOfTheTimeWaitForThreadsHoweverFastSomeAre) {
  GpuTrace b = small_loops(100, 2'000, {384, 1});  // 15.7 GB/s once, else 0.8
  b.op("aten::mul", 60'000 * kUs, 60'100 * kUs);   // and a chain, whose saving is not sure now
  b.inputs({tensor({256, 256}), tensor({256, 256})});
  b.op("aten::add", 60'100 * kUs, 80'000 * kUs);
  b.inputs({tensor({256, 256}), tensor({256, 256})});
  const Explanation e = explain(b);
  ASSERT_GE(e.findings.size(), 3U);
  EXPECT_EQ(e.findings[1].id, "thread-contention") << "before all that it makes slow";
  bool has_saving = false;
  for (const Finding& f : e.findings) {
    if (!f.saving_us) continue;
    has_saving = true;
    EXPECT_EQ(f.confidence, Confidence::low) << f.title;
  }
  EXPECT_TRUE(has_saving);
}

TEST(HostFindings, TransposedSmallLoopsMayBeSlow) {
  EXPECT_EQ(find_finding(explain(small_loops(250, 470, {1, 512})), "thread-contention"), nullptr);
  EXPECT_EQ(find_finding(explain(small_loops(250, 470, {})), "thread-contention"), nullptr)
      << "not recorded";
}

TEST(HostFindings, OnADeviceAttentionSavesTheSoftmaxToo) {
  GpuTrace b;
  int64_t at = 0;
  int64_t correlation = 0;
  const auto op = [&](const char* name, const char* kernel, int64_t us, std::vector<OpInput> in) {
    b.op(name, at, at + 4 * kUs);
    b.inputs(std::move(in));
    b.call("cudaLaunchKernel", at + kUs, at + 3 * kUs, ++correlation);
    at += us * kUs;
    b.gpu_kernel(kernel, at, at + us * kUs, correlation);
  };
  op("aten::bmm", "ampere_sgemm_128x64_tn", 100, {tensor({32, 256, 64}), tensor({32, 64, 256})});
  op("aten::div", "elementwise_kernel", 50, {tensor({32, 256, 256})});
  op("aten::_softmax", "softmax_warp_forward", 60, {tensor({32, 256, 256})});
  op("aten::bmm", "ampere_sgemm_128x64_tn", 100, {tensor({32, 256, 256}), tensor({32, 256, 64})});
  EXPECT_DOUBLE_EQ(*finding_of(explain(b), "unfused-attention").saving_us, 110);
}

TEST(HostFindings, AttentionOfProductsAndASoftmaxIsOnePattern) {
  GpuTrace b;
  int64_t at = 0;
  const auto op = [&](const char* name, int64_t us, std::vector<OpInput> inputs) {
    b.op(name, at * kUs, (at + us) * kUs);
    b.inputs(std::move(inputs));
    at += us;
  };
  op("aten::bmm", 100, {tensor({32, 256, 64}), tensor({32, 64, 256})});
  op("aten::div", 50, {tensor({32, 256, 256})});
  op("aten::_softmax", 60, {tensor({32, 256, 256})});
  op("aten::bmm", 100, {tensor({32, 256, 256}), tensor({32, 256, 64})});
  const Finding f = finding_of(explain(b), "unfused-attention");
  EXPECT_DOUBLE_EQ(*f.saving_us, 50);  // the softmax is computed either way
  EXPECT_EQ(f.title,
            "attention runs as aten::bmm + aten::div + aten::_softmax + aten::bmm: one kernel does "
            "it");
  GpuTrace head;  // a classifier
  head.op("aten::addmm", 0, 100 * kUs);
  head.inputs({tensor({10}), tensor({256, 64}), tensor({64, 10})});
  head.op("aten::_softmax", 100 * kUs, 160 * kUs);
  head.inputs({tensor({256, 10})});
  EXPECT_EQ(find_finding(explain(head), "unfused-attention"), nullptr);
}

TEST(HostFindings, AnOptimizersStepAsksForFused) {
  GpuTrace b;
  b.annotation("Optimizer.step#AdamW.step", 0, 80 * kUs);
  int64_t at = 0;
  for (const char* name : {"aten::mul_", "aten::lerp_", "aten::mul_", "aten::addcmul_",
                           "aten::sqrt", "aten::div", "aten::add_", "aten::addcdiv_"}) {
    b.op(name, at * kUs, (at + 10) * kUs);
    b.inputs({tensor({512, 512}), tensor({512, 512})});
    at += 10;
  }
  const Explanation e = explain(b);
  const Finding f = finding_of(e, "unfused-optimizer");
  EXPECT_EQ(f.title, "AdamW runs as 8 ops: one kernel does a step");
  EXPECT_NEAR(*f.saving_us, 80 * 2.0 / 3, 1e-9);
  EXPECT_EQ(find_finding(e, "fusion"), nullptr) << "its remedy is another one";
  GpuTrace fused;
  fused.annotation("Optimizer.step#AdamW.step", 0, 80 * kUs);
  fused.op("aten::_fused_adamw_", 0, 80 * kUs);
  EXPECT_EQ(find_finding(explain(fused), "unfused-optimizer"), nullptr);
}

TEST(HostFindings, PyTorchsOwnConvolutionIsAFallback) {
  GpuTrace b;
  b.op("aten::_slow_conv2d_forward", 0, 900 * kUs);
  b.op("aten::relu", 900 * kUs, 1000 * kUs);
  EXPECT_NE(find_finding(explain(b), "fallback-convolution"), nullptr);
  GpuTrace taken;
  taken.op("aten::mkldnn_convolution", 0, 900 * kUs);
  EXPECT_EQ(find_finding(explain(taken), "fallback-convolution"), nullptr);
}

TEST(HostFindings, TheDataLoaderIsNamedWithItsShare) {
  GpuTrace b;
  b.annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 0, 670 * kUs);
  b.op("aten::gelu", 670 * kUs, 1000 * kUs);
  const Explanation e = explain(b);
  const Finding f = finding_of(e, "data-loader");
  EXPECT_EQ(f.title, "the data loader takes 670 us of 1.00 ms (67 %)");
  EXPECT_DOUBLE_EQ(*f.saving_us, 670);
  EXPECT_EQ(e.findings.front().title,
            "data-bound on the CPU: the data loader takes 67 % of the time");
  EXPECT_EQ(e.verdicts.whole.bound, Bound::cpu_only) << "for scripts";
}

TEST(HostFindings, SmallOpsAndPythonAreFindingsFromATenthOfTheTimeOn) {
  GpuTrace b;
  for (int64_t i = 0; i < 100; ++i) b.op("aten::add", i * 10 * kUs, (i * 10 + 5) * kUs);
  const Explanation e = explain(b);
  ASSERT_NE(find_finding(e, "dispatch"), nullptr);
  EXPECT_EQ(find_finding(e, "dispatch")->title, "calling 100 ops takes 695 us of 995 us (70 %)");
  EXPECT_EQ(find_finding(e, "between-ops"), nullptr) << "gaps as short as these are the calls";
  GpuTrace python;
  for (int64_t i = 0; i < 10; ++i) python.op("aten::gelu", i * 100 * kUs, (i * 100 + 60) * kUs);
  const Explanation slow = explain(python);
  ASSERT_NE(find_finding(slow, "between-ops"), nullptr);
  EXPECT_EQ(find_finding(slow, "between-ops")->evidence.at(0),
            "with_stack=True names the functions");
  GpuTrace clean;
  clean.op("aten::gelu", 0, 1000 * kUs);
  EXPECT_EQ(find_finding(explain(clean), "dispatch"), nullptr);
  EXPECT_EQ(find_finding(explain(clean), "between-ops"), nullptr);
}

TEST(HostFindings, StepsThatOldTracesRecordAsOpsAreNoOps) {
  GpuTrace b;
  b.op("ProfilerStep#5", 0, 1000 * kUs);
  b.op("aten::gelu", 0, 900 * kUs);
  EXPECT_EQ(explain(b).ops, 1);
}

TEST(HostFindings, ALongGapIsAFindingAndManyShortOnesAreNone) {
  GpuTrace b;
  b.op("aten::mm", 0, 10 * kUs);
  b.call("cudaLaunchKernel", 2 * kUs, 4 * kUs, 1);
  b.gpu_kernel("first", 5 * kUs, 10 * kUs, 1);
  b.call("cudaFree", 12 * kUs, 99 * kUs);
  b.call("cudaLaunchKernel", 100 * kUs, 101 * kUs, 2);
  b.gpu_kernel("second", 102 * kUs, 110 * kUs, 2);
  const Explanation e = explain(b);
  const Finding gap = finding_of(e, "idle-gap");
  EXPECT_EQ(gap.evidence.at(0), "meanwhile the host was in cudaFree");
  EXPECT_EQ(gap.evidence.at(1), "between first and second");
  EXPECT_EQ(gap.action.find("the allocator asks the driver for memory"), 0U) << gap.action;
  EXPECT_EQ(find_finding(e, "slow-call"), nullptr) << "the gap has claimed its time";
  GpuTrace even;
  for (int64_t i = 0; i < 40; ++i) even.gpu_kernel("k", i * 100, i * 100 + 50);
  EXPECT_EQ(find_finding(explain(even), "idle-gap"), nullptr);
}

TEST(HostFindings, CallsThatStartNoWorkAreNamedWhereNoGapIsLong) {
  GpuTrace b;
  for (int64_t i = 0; i < 40; ++i) {
    const int64_t at = 40 * i;
    b.call("cudaFree", at * kUs, (at + 15) * kUs);
    b.call("cudaLaunchKernel", (at + 16) * kUs, (at + 17) * kUs, i + 1);
    b.gpu_kernel("k", (at + 18) * kUs, (at + 38) * kUs, i + 1);
  }
  const Explanation e = explain(b);
  const Finding& call = test::found(find_finding(e, "slow-call"));
  EXPECT_EQ(call.title, "cudaFree takes 600 us of the host's time");
  double saved_us = 0;
  for (const Finding& f : e.findings)
    if (f.id == "slow-call" || f.id == "host-overhead")
      saved_us += f.saving_us.value_or(f.cost_us.value_or(0));
  // The first call stands before the first kernel: that is no idle time.
  EXPECT_LE(saved_us, static_cast<double>(e.idle.front().host_ns()) / kUs + 16) << "the same time";
}

TEST(HostFindings, OpsThatAreNoViewsAreNotCalledViews) {
  GpuTrace b;
  b.op("aten::randperm", 0, 40 * kUs);
  b.op("aten::randperm", 40 * kUs, 80 * kUs);
  b.op("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 80 * kUs, 400 * kUs);
  b.op("aten::mm", 500 * kUs, 600 * kUs);
  b.call("cudaLaunchKernel", 510 * kUs, 520 * kUs, 1);
  b.gpu_kernel("gemm", 520 * kUs, 525 * kUs, 1);
  const Finding f = finding_of(explain(b), "no-launch-ops");
  EXPECT_EQ(f.title, "2 ops start no device work and take 80.0 us of the host's time");
  EXPECT_LACKS(f.evidence.back(), "mostly views");
  EXPECT_FALSE(f.saving_us);
}

}  // namespace epilogue::trace::host_findings_test
